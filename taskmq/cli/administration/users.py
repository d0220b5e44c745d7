"""`taskmq admin user`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.cli.administration.store import read_password, user_id_of
from taskmq.cli.globals import current_globals
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note, print_record
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant

if TYPE_CHECKING:
    from taskmq.api.accounts import ChangedUserView, UserView
    from taskmq.api.sign_in import SessionView, TokenView

app = Noun(name="user", help="Manage users: add, list, show, password, disable, enable, remove.")

_COLUMNS: Final = ("name", "email", "created", "last_login", "password", "disabled")


@app.command
def add(
    name: str,
    /,
    *,
    email: str = "",
    password: Annotated[bool, Parameter(negative="--no-password")] = True,
) -> None:
    """Add a user without a role; grant one with `taskmq admin role add`.

    Args:
        name: The user's name.
        email: The user's email address.
        password: Prompt for a password, or read it from the first line of standard input.
            Without one, the user can only use tokens.
    """
    given = read_password(name) if password else None
    made = ask(lambda api: api.users.add(name, given, email=email))
    show_record(made, lambda: _row(made))


@app.command(name="list")
def list_users() -> None:
    """List all users."""

    async def read(api: Api) -> "list[UserView]":
        return [user async for user in api.users.list()]

    show_rows(_COLUMNS, ask(read), _row)


@app.command
def show(name: str, /) -> None:
    """Show a user with their roles, sessions and tokens.

    Args:
        name: The user.
    """

    async def read(api: Api) -> "tuple[UserView, Sequence[SessionView], Sequence[TokenView]]":
        user_id = await user_id_of(api, name)
        return await api.users.get(user_id), await api.users.sessions(user_id), await api.users.tokens(user_id)

    user, sessions, tokens = ask(read)
    if current_globals().output == "table":
        record = {
            **_row(user),
            "roles": ", ".join(f"{each.role} of {each.tenant}" for each in user.memberships or []),
            "sessions": ", ".join(f"{each.id} from {each.address}" for each in sessions),
            "tokens": ", ".join(f"{each.name} ({each.id})" for each in tokens),
        }
    else:
        record = {**msgspec.to_builtins(user), "sessions": sessions, "tokens": tokens}
    print_record(record)


@app.command
def password(name: str, /, *, keep_tokens: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Set a new password for a user. Ends all their sessions and revokes their API tokens.

    Prompts for the password, or reads it from the first line of standard input.

    Args:
        name: The user.
        keep_tokens: Keep the user's API tokens valid, for example if the user only forgot the password.
    """
    given = read_password(name)

    async def run(api: Api) -> "ChangedUserView":
        return await api.users.change(await user_id_of(api, name), password=given, keep_tokens=keep_tokens)

    done = ask(run)
    note(
        f"password of user {name} changed: {done.sessions_ended} sessions ended, {done.tokens_revoked} API "
        f"tokens revoked, {done.tokens_left} still valid"
    )


@app.command
def disable(name: str, /) -> None:
    """Block all credentials of a user, within a minute everywhere, until the user is enabled again.

    Args:
        name: The user.
    """
    _set_disabled(name, is_disabled=True)
    note(f"user {name} disabled; undo with `taskmq admin user enable {name}`")


@app.command
def enable(name: str, /) -> None:
    """Enable a disabled user. Their tokens are valid again; their sessions have ended.

    Args:
        name: The user.
    """
    _set_disabled(name, is_disabled=False)
    note(f"user {name} enabled")


@app.command
@ask_first("Remove user {name} for good and erase them from the audit?")
def remove(name: str, /) -> None:
    """Remove a user for good with roles, sessions and tokens, and erase the person from the audit.

    The audit keeps the user's actions under an id, and its hash chain stays valid.

    Args:
        name: The user.
    """

    async def run(api: Api) -> None:
        await api.users.erase(await user_id_of(api, name))

    ask(run)
    note(f"user {name} removed")


def _set_disabled(name: str, *, is_disabled: bool) -> None:
    async def run(api: Api) -> None:
        await api.users.change(await user_id_of(api, name), is_disabled=is_disabled)

    ask(run)


def _row(user: "UserView") -> dict[str, Any]:
    return {
        "id": user.id,
        "name": user.name,
        "email": user.email,
        "created": text_of_instant(user.created),
        "last_login": text_of_instant(user.last_login),
        "password": "set" if user.has_password else "",
        "disabled": text_of_instant(user.disabled),
        "version": user.version,
    }
