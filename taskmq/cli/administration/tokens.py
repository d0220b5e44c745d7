"""`taskmq admin token`."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from taskmq.cli.actor import me
from taskmq.cli.administration.store import administer, at_store, user_named
from taskmq.cli.globals import current_globals
from taskmq.cli.output import confirmed, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.contracts.identity import ApiToken
from taskmq.model.identity import read_scopes
from taskmq.model.units import parse_duration, to_ms

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration, NewSecret
    from taskmq.contracts.identity import IdentityStore

__all__ = ["TOKEN_COLUMNS", "TOKEN_LISTS", "app"]

app = App(name="token", help="API tokens: add, list, remove.", result_action="return_value")

TOKEN_COLUMNS: Final = ("id", "user", "name", "scopes", "tenants", "tasks", "created", "expires", "last_used")
_INSTANTS: Final = ("created", "expires", "last_used")
TOKEN_LISTS: Final = ("scopes", "tenants", "tasks")
_PAGE: Final = 1000


@app.command
@over_http("accounts:add_token")
def add(
    user: str,
    name: str,
    /,
    *,
    scope: Annotated[list[str] | None, Parameter(negative="")] = None,
    tenant: Annotated[list[str] | None, Parameter(negative="")] = None,
    task: Annotated[list[str] | None, Parameter(negative="")] = None,
    expires: str | None = None,
) -> None:
    """Make an API token for a user. Its secret is printed once, and kept nowhere.

    It may never do more than its user.

    Parameters
    ----------
    user
        Whose it is.
    name
        What it is for, such as ci; unique among the user's.
    scope
        What it is good for: a permission (jobs.read), a kind (jobs.*) or a role (viewer); several times for more.
        Default: all that its user may do, but for the account itself.
    tenant
        Where it is good; several times for more. Default: wherever its user has a role.
    task
        Pattern of the tasks that it may call, such as billing.*; several times for more. Default: all.
    expires
        When it ends, from now on, such as 90d. Default: never.
    """
    scopes = None if scope is None else read_scopes(scope)
    lifetime = None if expires is None else to_ms(parse_duration(expires, what="--expires"))

    async def run(store: "IdentityStore", administration: "IdentityAdministration") -> "NewSecret":
        from taskmq.contracts.system_clock import SystemClock

        return await administration.add_token(
            (await user_named(store, user)).id,
            name,
            scopes=scopes,
            tenants=None if tenant is None else frozenset(tenant),
            tasks=task or ("*",),
            expires=None if lifetime is None else SystemClock().now_ms() + lifetime,
            by=me(),
        )

    made = administer(run)
    print_record({**_described(made.token, user), "token": made.secret})
    note("keep the token now: it is not shown again")


@app.command(name="list")
@over_http("accounts:list_tokens")
def list_tokens(user: str | None = None, /) -> None:
    """List the tokens of a user, or of everybody, without their secrets.

    Parameters
    ----------
    user
        Whose; default: everybody's.
    """

    async def run(store: "IdentityStore") -> list[tuple[ApiToken, str]]:
        if user is not None:
            found = await user_named(store, user)
            return [(each, found.name) for each in await store.credentials.tokens(found.id)]
        names: dict[str, str] = {}
        after = ""
        while page := await store.accounts.users(after=after, limit=_PAGE):
            names |= {each.id: each.name for each in page}
            after = page[-1].name
        return [(each, names.get(each.user_id, "")) for each in await store.credentials.tokens()]

    print_rows(TOKEN_COLUMNS, [_described(token, name) for token, name in at_store(run)])


@app.command
@confirmed("Revoke token {token} for good?")
@over_http("accounts:remove_token")
def remove(token: str, /) -> None:
    """Revoke a token; within a minute it is worthless everywhere.

    Parameters
    ----------
    token
        Its id, which `taskmq admin token list` shows.
    """

    async def run(_: "IdentityStore", administration: "IdentityAdministration") -> None:
        await administration.revoke_token(token, by=me())

    administer(run)
    note(f"token {token} is revoked")


def _described(token: ApiToken, user: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": token.id, "user": user, **msgspec.to_builtins(token)}
    for name in TOKEN_LISTS:
        facts[name] = None if facts[name] is None else sorted(facts[name])
    if current_globals().output == "table":
        facts |= {name: when(facts[name]) for name in _INSTANTS}
        facts |= {name: "all" if facts[name] in (None, ["*"]) else ",".join(facts[name]) for name in TOKEN_LISTS}
    return facts
