"""Dedicated connections to PostgreSQL, which come back, and the border at which its errors become ours."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final, Literal, Protocol, TypeVar, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreRefused, StoreUnavailable

__all__ = ["HOT", "LISTS", "LOOKUPS", "WALKS", "Connection", "Connections", "Purpose", "Row", "column_of", "undone"]

T = TypeVar("T")

Row = Any
"""One of asyncpg's records: by position, or by name."""

HOT: Final = (
    "set enable_seqscan = off",
    "set enable_nestloop = off",
    "set enable_mergejoin = off",
    "set plan_cache_mode = force_generic_plan",
)
"""Hot statements have one good plan, by primary keys; statistics of a table that was empty just now know another.
Where they loop (`lateral`), there is no other way. Each plan is made once: making one takes longer than carrying it
out, and PostgreSQL would make most of them anew for each call, because it expects those to be cheaper."""
LOOKUPS: Final = ("set plan_cache_mode = force_generic_plan",)
"""Single rows by their keys: one plan each, which leaves out the days that it need not look at when it begins."""
WALKS: Final = (
    "set enable_seqscan = off",
    "set enable_bitmapscan = off",
    "set enable_sort = off",
    "set enable_incremental_sort = off",
    "set plan_cache_mode = force_generic_plan",
)
"""Walks down indexes: each statement names the order of its own index, or rows by their keys."""
LISTS: Final = ("set plan_cache_mode = force_custom_plan",)
"""Other lists: a plan that was made for every tenant takes the wrong index for most of them."""
_EVERY: Final = (
    "set default_transaction_isolation = 'read committed'",
    # Compiling a plan takes longer than any of these statements, and is done where statistics are wrong.
    "set jit = off",
    # What a process holds that is frozen or cut off in the middle of a transaction: the server asks for nothing by
    # itself, and keeps its locks for hours. A transaction here thinks for milliseconds, and a lease lasts for 5 s.
    "set idle_in_transaction_session_timeout = '5s'",
    "set tcp_user_timeout = '10s'",
)

Purpose = Literal["read", "statement", "transaction"]
"""What is lost with a connection: nothing; one statement, which may have been committed; a transaction, which was
committed or not only where its commit was on its way."""

_SECONDS_TO_CONNECT: Final = 10.0
_SECONDS_TO_ANSWER: Final = 60.0
_SECONDS_TO_CANCEL: Final = 5.0
_TRIES: Final = 5
_READ_ONLY: Final = "25006"
_NOT_ALLOWED: Final = "42501"
# Answers of a server that has done nothing: it has no room; is a standby; another session has a lock for longer than
# the database's settings allow, or a statement has taken longer than they do; the user may not do that.
_REFUSALS: Final = ("53", _READ_ONLY, "55", "57014", _NOT_ALLOWED)
# A statement that was prepared is not there, or one of its name is: it is another connection's.
_MIXED_UP: Final = ("26000", "42P05")
# Classes of SQLSTATE: connection; operator intervention; system error; wrong user or database; time limits of
# transactions; internal error.
_OUTAGE: Final = (*_REFUSALS, *_MIXED_UP, "08", "57", "58", "28", "3D", "25P", "XX")
_DATA: Final = "22"
_COLLISIONS: Final = ("40001", "40P01")
_POOLED: Final = (
    "a pooler before it gives each transaction another connection: have it pool sessions (PgBouncer: "
    "pool_mode = session), or name the server itself"
)


class Connection(Protocol):
    """What is used of asyncpg's connection."""

    async def fetch(self, query: str, *args: object) -> Sequence[Row]: ...
    async def fetchrow(self, query: str, *args: object) -> Row | None: ...
    async def fetchval(self, query: str, *args: object) -> Any: ...
    async def execute(self, query: str, *args: object) -> str: ...
    async def executemany(self, command: str, args: Sequence[Sequence[object]]) -> None: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...


_connect: Final = cast("Callable[..., Awaitable[Connection]]", asyncpg.connect)

# PostgreSQL's own types have numbers below this one, the same in each version and database (transam.h).
_FIRST_OWN_TYPE: Final = 16_384
_built_in_types: Final[dict[frozenset[int], Sequence[Row]]] = {}


class _Knowing(asyncpg.Connection):  # type: ignore[misc]
    """A connection that knows what an array of a built-in type is, once another one of this process has asked.

    asyncpg asks on each connection, with a statement that takes the server longer than any of ours does. Where a
    version of asyncpg has no such method, it asks again.
    """

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Sequence[Row], Any]:
        asked = frozenset(typeoids)
        if (known := _built_in_types.get(asked)) is not None:
            # The name of a statement that did not take the place of the one being prepared.
            return known, SimpleNamespace(name="known")
        types, statement = cast(
            "tuple[Sequence[Row], Any]",
            await super()._introspect_types(asked, timeout),  # pyright: ignore[reportUnknownMemberType]
        )
        if max(asked) < _FIRST_OWN_TYPE:
            _built_in_types[asked] = types
        return types, statement


class Connections:
    """Up to `size` connections of one kind, made when they are first needed and again when they are lost.

    Args:
        url: of the database.
        address: the same without its password, for messages.
        name: shown at the server as that of the application.
        settings: statements that each connection begins with.
        plans: how many plans each connection keeps.
        prepare: what is done with a new connection before it is used; may refuse it with an exception.
        heal: what is done where a table has no room for a day.
    """

    def __init__(
        self,
        url: str,
        *,
        address: str,
        name: str,
        size: int,
        settings: Sequence[str],
        plans: int = 100,
        prepare: Callable[[Connection], Awaitable[None]],
        heal: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._url = url
        self._address = address
        self._name = name
        self._settings = [*_EVERY, *settings]
        self._plans = plans
        self._prepare = prepare
        self._heal = heal
        self.size = size
        self._places = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._connecting = TaskSet("store connection", failure="a connection to the store was not made")
        self._leaving = TaskSet("store cancellation", failure="a statement was not cancelled at the store")
        self._is_closed = False

    async def run(self, purpose: Purpose, work: Callable[[Connection], Awaitable[T]]) -> T:
        """What `work` returns, done on one connection.

        A transaction is one for all of `work`, and begins again where it collides with another one: `work` is called
        anew then. Where the call is cancelled, so is its statement at the server.

        Raises:
            StoreUnavailable: the server cannot be reached, or was lost; `is_certain` where nothing was changed.
            StoreRefused: the statement or a value of it cannot be; nothing was changed.
        """
        async with self._places:
            for _ in range(_TRIES):
                connection = await self._open()
                progress = _Progress()
                try:
                    return await self._attempt(connection, purpose, work, progress)
                except asyncpg.PostgresError as error:
                    if not await self._may_try_again(connection, error):
                        if _sqlstate(error).startswith(_OUTAGE):
                            raise self._lost(error, purpose, progress) from error
                        raise self._refused(_reason(error)) from None
                except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                    self._leave(connection)
                    if isinstance(error, ValueError):
                        raise self._refused(type(error).__name__) from None
                    raise self._lost(error, purpose, progress) from error
                except asyncio.CancelledError:
                    # The call may have left a transaction open, or an answer that nothing has read.
                    self._leave(connection)
                    raise
                except BaseException:
                    self._drop(connection)
                    raise
                finally:
                    self._give_back(connection)
            raise StoreUnavailable(f"{self._address}: the change collided with others {_TRIES} times; try again")

    async def connect_bare(self) -> Connection:
        """A connection beside these that prepares nothing by name, and has no settings; the caller ends it.

        Raises:
            StoreUnavailable: the server cannot be reached.
        """
        try:
            return await _connect(
                self._url, timeout=_SECONDS_TO_CONNECT, command_timeout=_SECONDS_TO_ANSWER, statement_cache_size=0
            )
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreUnavailable(f"{self._address} is not reachable: {_text(error)}") from error

    async def aclose(self) -> None:
        """Close them all; what is under way is cut."""
        self._is_closed = True
        await self._connecting.aclose(grace=2.0)
        await self._leaving.aclose(grace=2.0)
        for connection in list(self._used):
            self._drop(connection)
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=2.0)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()

    async def _attempt(
        self,
        connection: Connection,
        purpose: Purpose,
        work: Callable[[Connection], Awaitable[T]],
        progress: "_Progress",
    ) -> T:
        if purpose != "transaction":
            return await work(connection)
        await connection.execute("begin")
        try:
            result = await work(connection)
        except _Undone as undone:
            await connection.execute("rollback")
            return cast("T", undone.result)
        progress.is_committing = True
        await connection.execute("commit")
        return result

    async def _may_try_again(self, connection: Connection, error: asyncpg.PostgresError) -> bool:
        state = _sqlstate(error)
        is_full_day = isinstance(error, asyncpg.CheckViolationError) and "no partition" in str(error)
        # An upgrade has changed a table under a statement that was prepared before.
        is_outdated = isinstance(error, asyncpg.InvalidCachedStatementError)
        if state not in _COLLISIONS and not is_full_day and not is_outdated:
            if not await self._rolled_back(connection) or state.startswith(_OUTAGE):
                self._drop(connection)
            return False
        if not await self._rolled_back(connection):
            return False
        if is_full_day:
            await self._make_room(connection)
        return True

    async def _make_room(self, connection: Connection) -> None:
        try:
            await self._heal(connection)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            # In the middle of a transaction, perhaps.
            self._drop(connection)
            raise StoreUnavailable(
                f"{self._address} has no room for today, and none could be made: {_text(error)}; nothing was changed"
            ) from error

    async def _rolled_back(self, connection: Connection) -> bool:
        if connection.is_closed():
            return False
        try:
            await connection.execute("rollback")
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._drop(connection)
            return False
        return True

    async def _open(self) -> Connection:
        if self._is_closed:
            raise StoreUnavailable(f"{self._address} is closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                self._used.add(connection)
                return connection
        connection = await self._connected()
        self._used.add(connection)
        return connection

    async def _connected(self) -> Connection:
        made: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        # By itself: where asyncpg is cancelled as it asks for TLS, it leaves an error that is not retrieved.
        self._connecting.start(self._connect_for(made))
        try:
            return await made
        except asyncio.CancelledError:
            if not made.cancelled() and made.exception() is None:
                made.result().terminate()
            raise

    async def _connect_for(self, made: "asyncio.Future[Connection]") -> None:
        try:
            connection = await self._opened()
        except Exception as error:  # noqa: BLE001 - for who waits for the connection
            if not made.done():
                made.set_exception(error)
            return
        if made.done():
            connection.terminate()
        else:
            made.set_result(connection)

    async def _opened(self) -> Connection:
        connection: Connection | None = None
        try:
            connection = await _connect(
                self._url,
                timeout=_SECONDS_TO_CONNECT,
                command_timeout=_SECONDS_TO_ANSWER,
                statement_cache_size=self._plans,
                max_cached_statement_lifetime=0,
                connection_class=_Knowing,
                server_settings={"application_name": self._name},
            )
            await connection.execute(";".join(self._settings))
            await self._prepare(connection)
        except BaseException as error:
            if connection is not None:
                connection.terminate()
            if isinstance(error, (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)):
                if isinstance(error, asyncpg.PostgresError) and _sqlstate(error) in _MIXED_UP:
                    raise StoreUnavailable(f"{self._address}: {_POOLED}") from error
                raise StoreUnavailable(f"{self._address} is not reachable: {_text(error)}") from error
            raise
        return connection

    def _give_back(self, connection: Connection) -> None:
        if connection in self._used:
            self._used.remove(connection)
            if self._is_closed or connection.is_closed():
                connection.terminate()
            else:
                self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        self._used.discard(connection)
        connection.terminate()

    def _leave(self, connection: Connection) -> None:
        """Drop a connection whose statement may go on: the server would work on it until it has the answer."""
        self._used.discard(connection)
        if connection.is_closed() or self._is_closed:
            connection.terminate()
        else:
            self._leaving.start(_end(connection))

    def _refused(self, why: str) -> StoreRefused:
        return StoreRefused(f"{self._address} has refused a statement ({why}); nothing was changed")

    def _lost(self, error: Exception, purpose: Purpose, progress: "_Progress") -> StoreUnavailable:
        state = _sqlstate(error) if isinstance(error, asyncpg.PostgresError) else ""
        if state in _MIXED_UP:
            return StoreUnavailable(f"{self._address}: {_POOLED}; nothing was changed")
        is_refused = state.startswith(_REFUSALS)
        is_undone = purpose == "transaction" and not progress.is_committing
        is_certain = purpose == "read" or is_undone or is_refused
        what = "nothing was changed" if is_certain else "it is not known whether the change was made"
        verb = "has refused" if is_refused else "was lost"
        return StoreUnavailable(f"{self._address} {verb}: {_text(error)}; {what}", is_certain=is_certain)


class _Progress:
    """How far a transaction has come."""

    def __init__(self) -> None:
        self.is_committing = False


class _Undone(Exception):
    """Raised by the work of a transaction that comes to nothing: it is rolled back, and returns `result`."""

    def __init__(self, result: object) -> None:
        self.result = result


def undone(result: object) -> Exception:
    """What the work of a transaction raises so that it is rolled back and `run` returns `result`."""
    return _Undone(result)


def column_of(values: Sequence[object]) -> Sequence[object] | None:
    """The values of a column for `unnest`, or None where all are null: `unnest` fills shorter columns up with nulls.

    asyncpg looks at each element of an array before it sends it.
    """
    return None if values.count(None) == len(values) else values


async def _end(connection: Connection) -> None:
    """End a connection once the server has cancelled what it was asked for; without that where it does not answer."""
    try:
        async with asyncio.timeout(_SECONDS_TO_CANCEL):
            await connection.close(timeout=_SECONDS_TO_CANCEL)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        pass
    finally:
        connection.terminate()


def _sqlstate(error: asyncpg.PostgresError) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def _reason(error: asyncpg.PostgresError) -> str:
    """Describe a refused statement without values, which the details and errors about data contain."""
    kind = type(error).__name__
    return kind if _sqlstate(error).startswith(_DATA) else f"{kind}: {error.args[0]}"


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
