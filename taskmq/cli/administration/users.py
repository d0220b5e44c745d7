"""`taskmq admin user`."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from taskmq.cli.actor import me
from taskmq.cli.administration.store import administer, at_store, read_password, user_named
from taskmq.cli.globals import current_globals
from taskmq.cli.output import confirmed, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.contracts.identity import ApiToken, BrowserSession, User, UserAccount, UserChange

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration, PasswordSet
    from taskmq.contracts.identity import IdentityStore

__all__ = ["USER_COLUMNS", "app", "password_is_set"]

app = App(
    name="user",
    help="Users: add, list, show, password, disable, enable, remove.",
    result_action="return_value",
)

USER_COLUMNS: Final = ("name", "email", "created", "last_login", "password_changed", "disabled")
_INSTANTS: Final = ("created", "last_login", "password_changed", "disabled")
_PAGE: Final = 200


@app.command
@over_http("accounts:add_user")
def add(
    name: str,
    /,
    *,
    email: str = "",
    password: Annotated[bool, Parameter(negative="--no-password")] = True,
) -> None:
    """Add a user without a role; `taskmq admin role add` grants one.

    Parameters
    ----------
    name
        The user's name.
    email
        Where they are reached.
    password
        Ask for a password, or read it from the first line of standard input; without one they have tokens only.
    """
    given = read_password(name) if password else None

    async def run(_: "IdentityStore", administration: "IdentityAdministration") -> User:
        return await administration.add_user(name, given, email=email, by=me())

    print_record(_described(administer(run)))


@app.command(name="list")
@over_http("accounts:list_users")
def list_users() -> None:
    """List all users."""

    async def run(store: "IdentityStore") -> list[User]:
        found: list[User] = []
        while page := await store.accounts.users(after=found[-1].name if found else "", limit=_PAGE):
            found += page
        return found

    print_rows(USER_COLUMNS, [_described(each) for each in at_store(run)])


@app.command
@over_http("accounts:show_user")
def show(name: str, /) -> None:
    """Show a user with their roles, sessions and tokens.

    Parameters
    ----------
    name
        The user.
    """

    async def run(store: "IdentityStore") -> tuple[UserAccount, list[BrowserSession], list[ApiToken]]:
        user = await user_named(store, name)
        account = await store.accounts.account(user.id)
        assert account is not None
        return account, await store.credentials.sessions(user.id), await store.credentials.tokens(user.id)

    account, sessions, tokens = at_store(run)
    roles: list[dict[str, Any]] = [msgspec.to_builtins(each) for each in account.memberships]
    record = {**_described(account.user), "roles": roles, "sessions": sessions, "tokens": tokens}
    if current_globals().output == "table":
        record["roles"] = ", ".join(f"{each.role} of {each.tenant}" for each in account.memberships)
        record["sessions"] = ", ".join(f"{each.id} from {each.address}" for each in sessions)
        record["tokens"] = ", ".join(f"{each.name} ({each.id})" for each in tokens)
    print_record(record)


@app.command
@over_http("accounts:set_password")
def password(name: str, /, *, keep_tokens: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Give a user another password; all their sessions end, and their API tokens are revoked.

    The password is asked for, or read from the first line of standard input.

    Parameters
    ----------
    name
        The user.
    keep_tokens
        Leave their API tokens good, such as where the user has only forgotten the password.
    """
    given = read_password(name)

    async def run(store: "IdentityStore", administration: "IdentityAdministration") -> "PasswordSet":
        user = await user_named(store, name)
        return await administration.set_password(user.id, given, by=me(), keeps_tokens=keep_tokens)

    done = administer(run)
    note(password_is_set(name, done.sessions_ended, done.tokens_revoked, done.tokens_left))


@app.command
@over_http("accounts:disable_user")
def disable(name: str, /) -> None:
    """Make all credentials of a user worthless, within a minute everywhere, until they are enabled.

    Parameters
    ----------
    name
        The user.
    """
    _change(name, UserChange(is_disabled=True))
    note(f"user {name} is disabled; `taskmq admin user enable {name}` undoes it")


@app.command
@over_http("accounts:enable_user")
def enable(name: str, /) -> None:
    """Let a user in again that was disabled; their sessions have ended, their tokens are good again.

    Parameters
    ----------
    name
        The user.
    """
    _change(name, UserChange(is_disabled=False))
    note(f"user {name} is enabled")


@app.command
@confirmed("Remove user {name} for good, and erase them from the audit?")
@over_http("accounts:remove_user")
def remove(name: str, /) -> None:
    """Remove a user for good, with roles, sessions and tokens, and erase the person from the audit.

    The audit keeps what they did, under an id, and its chain of hashes stays whole.

    Parameters
    ----------
    name
        The user.
    """

    async def run(store: "IdentityStore", administration: "IdentityAdministration") -> None:
        await administration.erase_user((await user_named(store, name)).id, by=me())

    administer(run)
    note(f"user {name} is removed")


def password_is_set(name: str, sessions_ended: int, tokens_revoked: int, tokens_left: int) -> str:
    """Say what another password has ended, and what lives on."""
    return (
        f"user {name} has another password: {sessions_ended} sessions have ended, {tokens_revoked} API tokens are "
        f"revoked, {tokens_left} are still good"
    )


def _change(name: str, change: UserChange) -> None:
    async def run(store: "IdentityStore", administration: "IdentityAdministration") -> None:
        await administration.change_user((await user_named(store, name)).id, change, by=me())

    administer(run)


def _described(user: User) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(user)
    if current_globals().output == "table":
        facts |= {name: when(facts[name]) for name in _INSTANTS}
    return facts
