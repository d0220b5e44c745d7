"""`taskmq admin token`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
from cyclopts import Parameter

from taskmq.cli.administration.store import read_own_password, user_id_of
from taskmq.cli.globals import current_globals
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note, print_record
from taskmq.cli.server_link import Api, ask, show_rows, text_of_instant
from taskmq.errors import ConfirmationNeeded, NotPermitted
from taskmq.model.identity import read_scopes
from taskmq.model.units import parse_duration

if TYPE_CHECKING:
    from taskmq.api.sign_in import NewTokenView, TokenView
    from taskmq.cli.operator import OperatorApi
    from taskmq.http import AsyncClient

app = Noun(name="token", help="Manage API tokens: add, list, remove.")

_COLUMNS: Final = ("id", "user", "name", "scopes", "tenants", "tasks", "created", "expires", "last_used")
_LISTS: Final = ("scopes", "tenants", "tasks")


@app.command
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
    """Create an API token for a user. Its secret is printed once and not stored.

    A token never allows more than its user may do.

    Args:
        user: The owner of the token.
        name: The purpose of the token, such as ci; unique per user.
        scope: What the token allows: a permission (jobs.read), a kind (jobs.*) or a role (viewer); may be repeated.
            Default: all that its user may do, except changing the account.
        tenant: Tenant that the token is valid for; may be repeated.
            Default: all tenants on which its user has a role.
        task: Pattern of the tasks that it may call, such as billing.*; may be repeated. Default: all.
        expires: Time until the token expires, such as 90d. Default: never.
    """
    if scope is not None:
        read_scopes(scope)
    ends = None if expires is None else datetime.now(UTC) + parse_duration(expires, what="--expires")

    async def run(api: Api) -> "NewTokenView":
        if current_globals().server is None:
            tokens = cast("OperatorApi", api).tokens_of(await user_id_of(api, user), user)
            return await tokens.add(name, scopes=scope, tenants=tenant, tasks=task or ["*"], expires_at=ends)
        client = cast("AsyncClient", api)
        me = (await client.account.me()).user
        if user != me:
            raise NotPermitted(
                f"through a server you can only create your own tokens, and you are {me}: sign in as {user}"
            )
        make = partial(client.tokens.add, name, scopes=scope, tenants=tenant, tasks=task or ["*"], expires_at=ends)
        try:
            return await make()
        except ConfirmationNeeded:
            return await make(password=read_own_password(user))

    made = ask(run)
    facts = _row(made) if current_globals().output == "table" else msgspec.to_builtins(made)
    facts.pop("secret", None)
    print_record({**facts, "token": made.secret})
    note("copy the token now: it is not shown again")


@app.command(name="list")
def list_tokens(user: str | None = None, /) -> None:
    """List the tokens of a user, or of all users, without their secrets.

    Args:
        user: The owner. Default: all users; through a server, only your own tokens.
    """

    async def run(api: Api) -> "Sequence[TokenView]":
        if user is None:
            return await api.tokens.list()
        if current_globals().server is not None:
            client = cast("AsyncClient", api)
            # Listing one's own tokens needs no permission to read users.
            if (await client.account.me()).user.casefold() == user.casefold():
                return await client.tokens.list()
        return await api.users.tokens(await user_id_of(api, user))

    show_rows(_COLUMNS, ask(run), _row)


@app.command
@ask_first("Revoke token {token} for good?")
def remove(token: str, /) -> None:
    """Revoke a token. It is rejected everywhere within a minute.

    Args:
        token: The token's id, from `taskmq admin token list`.
    """
    ask(lambda api: api.tokens.revoke(token))
    note(f"token {token} revoked")


def _row(token: "TokenView") -> dict[str, Any]:
    facts = {
        "id": token.id,
        "user": token.user,
        "name": token.name,
        "created": text_of_instant(token.created),
        "expires": text_of_instant(token.expires_at),
        "last_used": text_of_instant(token.last_used),
    }
    for name in _LISTS:
        found = getattr(token, name)
        facts[name] = "all" if found in (None, ["*"]) else ",".join(found)
    return facts
