"""Parts shared by the commands of administration: store access, user lookup, and prompts for secrets."""

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

T = TypeVar("T")


def at_store(use: Callable[[IdentityStore], Coroutine[Any, Any, T]]) -> T:
    """Call `use` with the store of the app (--app) or of --store, and return its result."""

    async def run(target: "TaskMQ") -> T:
        store = target.sessions.store()
        await store.check()
        return await use(store.identity)

    return run_with_app(run)


def administer(use: "Callable[[IdentityStore, IdentityAdministration], Coroutine[Any, Any, T]]") -> T:
    """Call `use` with the store and its account administration, and return its result."""
    from taskmq.access import IdentityAdministration, PasswordHasher

    async def run(store: IdentityStore) -> T:
        return await use(store, IdentityAdministration(store, hasher=PasswordHasher()))

    return at_store(run)


async def user_id_of(api: "Api", name: str) -> str:
    """Return the id of the user with this name.

    Raises:
        IdentityNotFound: no user has this name.
    """
    async for user in api.users.list():
        if user.name.casefold() == name.casefold():
            return user.id
    raise IdentityNotFound(f"no user {name!r}; list users with `taskmq admin user list`")


def read_own_password(user: str) -> str:
    """Read the caller's own password: prompted for on a terminal, else the first line of standard input.

    Raises:
        InvalidOption: no password was given.
    """
    if sys.stdin.isatty():
        return getpass.getpass(f"Password of {user}: ")
    return _first_line(user)


def read_password(user: str) -> str:
    """Read a new password: prompted for twice on a terminal, else the first line of standard input. Never an
    argument.

    Raises:
        InvalidOption: the two entries differ, or no password was given.
    """
    if not sys.stdin.isatty():
        return _first_line(user)
    password = getpass.getpass(f"Password of {user}: ")
    if getpass.getpass("Again: ") != password:
        raise InvalidOption("the passwords do not match; nothing was changed")
    return password


def _first_line(user: str) -> str:
    password = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    if not password:
        raise InvalidOption(f"no password for {user}: pass it on the first line of standard input")
    return password
