"""`taskmq admin user` and `taskmq admin token` through a server."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from taskmq.api.accounts import UserView
from taskmq.api.sign_in import TokenView
from taskmq.cli.administration.store import read_own_password, read_password
from taskmq.cli.administration.tokens import TOKEN_COLUMNS, TOKEN_LISTS
from taskmq.cli.administration.users import USER_COLUMNS, password_is_set
from taskmq.cli.exits import OK
from taskmq.cli.globals import current_globals
from taskmq.cli.output import note, print_record
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.errors import ConfirmationNeeded, IdentityNotFound, NotPermitted
from taskmq.http import Client
from taskmq.model.units import parse_duration

__all__ = [
    "add_token",
    "add_user",
    "disable_user",
    "enable_user",
    "list_tokens",
    "list_users",
    "remove_token",
    "remove_user",
    "set_password",
    "show_user",
    "user_id_of",
]


def add_user(client: Client, *, name: str, email: str, password: bool) -> int:
    given = read_password(name) if password else None
    made = client.users.add(name, given, email=email)
    show_record(made, lambda: _row(made))
    return OK


def list_users(client: Client) -> int:
    show_rows(USER_COLUMNS, list(client.users.list()), _row)
    return OK


def show_user(client: Client, *, name: str) -> int:
    found = client.users.get(user_id_of(client, name))

    def record() -> dict[str, Any]:
        roles = found.memberships or []
        return {**_row(found), "roles": ", ".join(f"{each.role} of {each.tenant}" for each in roles)}

    show_record(found, record)
    return OK


def set_password(client: Client, *, name: str, keep_tokens: bool) -> int:
    user_id = user_id_of(client, name)
    done = client.users.change(user_id, password=read_password(name), keep_tokens=keep_tokens)
    note(password_is_set(name, done.sessions_ended, done.tokens_revoked, done.tokens_left))
    return OK


def disable_user(client: Client, *, name: str) -> int:
    client.users.change(user_id_of(client, name), is_disabled=True)
    note(f"user {name} is disabled; `taskmq admin user enable {name}` undoes it")
    return OK


def enable_user(client: Client, *, name: str) -> int:
    client.users.change(user_id_of(client, name), is_disabled=False)
    note(f"user {name} is enabled")
    return OK


def remove_user(client: Client, *, name: str) -> int:
    client.users.erase(user_id_of(client, name))
    note(f"user {name} is removed")
    return OK


def add_token(
    client: Client,
    *,
    user: str,
    name: str,
    scope: list[str] | None,
    tenant: list[str] | None,
    task: list[str] | None,
    expires: str | None,
) -> int:
    _check_own(client, user)
    ends = None
    if expires is not None:
        ends = datetime.now(UTC) + parse_duration(expires, what="--expires")
    make = partial(client.tokens.add, name, scopes=scope, tenants=tenant, tasks=task or ["*"], expires_at=ends)
    try:
        made = make()
    except ConfirmationNeeded:
        made = make(password=read_own_password(user))
    facts = msgspec.to_builtins(made)
    secret = facts.pop("secret")
    print_record({**(_token_row(made, user) if current_globals().output == "table" else facts), "token": secret})
    note("keep the token now: it is not shown again")
    return OK


def list_tokens(client: Client, *, user: str | None) -> int:
    me = client.account.me().user
    if user is None or user.casefold() == me.casefold():
        found, name = client.tokens.list(), me
    else:
        found, name = client.users.tokens(user_id_of(client, user)), user
    show_rows(TOKEN_COLUMNS, found, lambda token: _token_row(token, name))
    return OK


def remove_token(client: Client, *, token: str) -> int:
    client.tokens.revoke(token)
    note(f"token {token} is revoked")
    return OK


def user_id_of(client: Client, name: str) -> str:
    """The id of a user, by their name.

    Raises:
        IdentityNotFound: there is none.
    """
    # Users come by name: from the last one before this.
    found = next((user.id for user in client.users.list() if user.name == name), None)
    if found is None:
        raise IdentityNotFound(f"there is no user {name!r}; `taskmq admin user list` shows who is there")
    return found


def _check_own(client: Client, user: str) -> None:
    me = client.account.me().user
    if user != me:
        raise NotPermitted(f"through a server you see your own tokens, and you are {me}: {user} has to sign in")


def _row(user: UserView) -> dict[str, Any]:
    return {
        "id": user.id,
        "name": user.name,
        "email": user.email,
        "created": text_of_instant(user.created),
        "version": user.version,
        "disabled": text_of_instant(user.disabled),
        "password_changed": "set" if user.has_password else "",
        "last_login": text_of_instant(user.last_login),
    }


def _token_row(token: TokenView, user: str) -> dict[str, Any]:
    facts = {
        "id": token.id,
        "user": user,
        "name": token.name,
        "created": text_of_instant(token.created),
        "expires": text_of_instant(token.expires_at),
        "last_used": text_of_instant(token.last_used),
    }
    for name in TOKEN_LISTS:
        found = getattr(token, name)
        facts[name] = "all" if found in (None, ["*"]) else ",".join(found)
    return facts
