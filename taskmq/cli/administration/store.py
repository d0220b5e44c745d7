"""What the commands of administration have in common: the store, who they are, and secrets that no argument holds."""

import getpass
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from taskmq.cli.globals import run_with_app
from taskmq.contracts.identity import IdentityStore
from taskmq.errors import IdentityNotFound, InvalidOption

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration
    from taskmq.app import TaskMQ
    from taskmq.cli.server_link import Api

__all__ = ["administer", "at_store", "read_own_password", "read_password", "user_id_of"]

T = TypeVar("T")


def at_store(use: Callable[[IdentityStore], Coroutine[Any, Any, T]]) -> T:
    """What `use` comes to at the store of the app (--app) or of --store."""

    async def run(target: "TaskMQ") -> T:
        store = target.sessions.store()
        await store.check()
        return await use(store.identity)

    return run_with_app(run)


def administer(use: "Callable[[IdentityStore, IdentityAdministration], Coroutine[Any, Any, T]]") -> T:
    """The same, with what changes accounts."""
    from taskmq.access import IdentityAdministration, PasswordHasher

    async def run(store: IdentityStore) -> T:
        return await use(store, IdentityAdministration(store, hasher=PasswordHasher()))

    return at_store(run)


async def user_id_of(api: "Api", name: str) -> str:
    """The id of a user, by their name.

    Raises:
        IdentityNotFound: there is none.
    """
    async for user in api.users.list():
        if user.name.casefold() == name.casefold():
            return user.id
    raise IdentityNotFound(f"there is no user {name!r}; `taskmq admin user list` shows who is there")


def read_own_password(user: str) -> str:
    """The password that the caller has: typed on a terminal, else the first line of standard input.

    Raises:
        InvalidOption: there is none.
    """
    if sys.stdin.isatty():
        return getpass.getpass(f"Password of {user}: ")
    return _first_line(user)


def read_password(user: str) -> str:
    """A new password: typed twice on a terminal, else the first line of standard input. Never an argument.

    Raises:
        InvalidOption: the two differ, or there is none.
    """
    if not sys.stdin.isatty():
        return _first_line(user)
    password = getpass.getpass(f"Password of {user}: ")
    if getpass.getpass("Again: ") != password:
        raise InvalidOption("the two passwords differ: nothing was changed")
    return password


def _first_line(user: str) -> str:
    password = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    if not password:
        raise InvalidOption(f"no password for {user}: write it on the first line of standard input")
    return password
