"""Calls of the API, through a server or at the local app, and output of their results."""

import math
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from taskmq.api.values import MOST_PER_PAGE
from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.output import note, print_record, print_rows
from taskmq.errors import NotAuthenticated, NotPermitted, RequestRefused, UnsupportedFeature

if TYPE_CHECKING:
    from taskmq.cli.operator import OperatorApi
    from taskmq.http import AsyncClient

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Api: TypeAlias = "OperatorApi | AsyncClient"
"""API that a command calls, at the app or through a server. Type checkers check each call against both."""
_SHOWN_AGE: Final = 1.0
"""Seconds; a replica that keeps up is not worth a line."""
_HINTS: Final = {
    "bulk_not_found": "list them with `taskmq bulk list`",
    "failure_group_not_found": "list them with `taskmq failure-group list`",
    "node_not_found": "list the nodes with `taskmq node list`",
}


def ask(use: "Callable[[Api], Awaitable[T]]", *, tenant: str | None = None, may_be_stale: bool = False) -> T:
    """Call `use` with the API, through the server if there is one, else at the local app; return its result.

    Args:
        use: makes the calls.
        tenant: the tenant that the calls are about. Default: the caller's.
        may_be_stale: whether a replica of the store may answer, on a terminal. Scripts may decide on the result.
    """
    import asyncio

    limit = None if may_be_stale and sys.stdout.isatty() else 0.0
    return asyncio.run((_ask_server if current_globals().server else _ask_app)(use, tenant, limit))


async def _ask_app(use: "Callable[[Api], Awaitable[T]]", tenant: str | None, max_age: float | None) -> T:
    from taskmq.cli.operator import OperatorApi
    from taskmq.contracts.jobs import accept_age

    async with open_app() as app:
        with _hints(), accept_age(math.inf if max_age is None else max_age) as accepted:
            found = await use(OperatorApi(app, tenant))
    _show_age(accepted.age)
    return found


async def _ask_server(use: "Callable[[Api], Awaitable[T]]", tenant: str | None, max_age: float | None) -> T:
    try:
        from taskmq.http import AsyncClient
    except ImportError as error:
        raise UnsupportedFeature(f"--server needs {error.name}: run pip install 'taskmq[client]'") from error

    options = current_globals()
    whose = options.tenant if tenant is None else tenant
    insecure = options.is_insecure
    async with AsyncClient(options.server, insecure=insecure, tenant=whose, max_age=max_age) as client:
        with _hints():
            found = await use(client)
        _show_age(client.age)
    return found


def _show_age(age: float) -> None:
    if age > _SHOWN_AGE:
        note(f"from a replica, up to {math.ceil(age)} s old")


@contextmanager
def _hints() -> Generator[None]:
    """Add to errors what the user can do about them."""
    server = current_globals().server
    try:
        yield
    except NotAuthenticated as error:
        if server:
            error.add_note(f"$TASKMQ_TOKEN must be a valid token of {server}; see `taskmq admin token`")
        raise
    except NotPermitted as error:
        if server:
            error.add_note(f"the roles and scopes of $TASKMQ_TOKEN do not allow this at {server}")
        raise
    except RequestRefused as error:
        if (hint := _HINTS.get(error.code)) is not None:
            error.add_note(hint)
        raise


class _Page(Protocol[T_co]):
    """A page of a list of the API."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def next(self) -> str | None: ...


class Pages(Protocol[T_co]):
    """Call that returns a page."""

    def __call__(self, *, limit: int, cursor: str | None) -> Awaitable[_Page[T_co]]: ...


class Listed(NamedTuple, Generic[T]):
    """First items of a list; `next` is the cursor of the rest, or None at the end."""

    items: list[T]
    next: str | None


async def first_items(pages: Pages[T], limit: int, *, after: str | None = None) -> Listed[T]:
    """Return the first items of a list, reading page by page; fewer, with a `next`, if a bounded search ended.

    Args:
        pages: reads one page.
        after: cursor of an earlier list.
    """
    found: list[T] = []
    while len(found) < limit:
        page = await pages(limit=min(limit - len(found), MOST_PER_PAGE), cursor=after)
        found += page.items
        after = page.next
        if after is None or not page.items:
            break
    return Listed(found, after)


def show_rows(
    columns: Sequence[str],
    found: Sequence[Any],
    row: Callable[[Any], Mapping[str, Any]],
    *,
    folded: Sequence[str] = (),
) -> None:
    """Print items as rows for people, and as the API returns them for programs."""
    if current_globals().output == "table":
        print_rows(columns, [row(one) for one in found], folded=folded)
    else:
        print_rows(columns, [msgspec.to_builtins(one) for one in found])


def show_record(found: Any, record: Callable[[], Mapping[str, Any]]) -> None:
    """Print one item for people, and as the API returns it for programs."""
    print_record(record() if current_globals().output == "table" else msgspec.to_builtins(found))


def text_of_instant(text: str | None) -> str:
    """Format an instant of the API for people, to the second."""
    return "" if text is None else f"{text[:19]}Z"
