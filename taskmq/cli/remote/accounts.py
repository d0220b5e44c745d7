"""`taskmq admin token` through a server."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from taskmq.api.sign_in import TokenView
from taskmq.cli.administration.store import read_own_password
from taskmq.cli.administration.tokens import TOKEN_COLUMNS, TOKEN_LISTS
from taskmq.cli.exits import OK
from taskmq.cli.globals import current_globals
from taskmq.cli.output import note, print_record
from taskmq.cli.server_link import show_rows, text_of_instant
from taskmq.errors import ConfirmationNeeded, IdentityNotFound, NotPermitted
from taskmq.http import Client
from taskmq.model.units import parse_duration

__all__ = [
    "add_token",
    "list_tokens",
    "remove_token",
]


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
        found, name = client.users.tokens(_user_id_of(client, user)), user
    show_rows(TOKEN_COLUMNS, found, lambda token: _token_row(token, name))
    return OK


def remove_token(client: Client, *, token: str) -> int:
    client.tokens.revoke(token)
    note(f"token {token} is revoked")
    return OK


def _user_id_of(client: Client, name: str) -> str:
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
