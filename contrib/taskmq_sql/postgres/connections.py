"""Dedicated, self-healing connections to PostgreSQL."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final, Literal, Protocol, TypeVar, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreUnavailable
from taskmq_sql.postgres.failures import (
    COLLISIONS,
    FAILURES,
    OUTAGE,
    connect_failure,
    describe,
    is_lost,
    outage_of,
    refusal_of,
    sqlstate,
)
from taskmq_sql.postgres.statements.settings import EVERY

T = TypeVar("T")

Row = Any
"""A record of asyncpg: fields by position or by name."""

Purpose = Literal["read", "statement", "transaction", "unsynced transaction"]
"""The cost of a lost connection: "read", nothing; "statement", one statement, which may have been committed;
"transaction", a transaction, whose outcome is uncertain only if its commit was under way. The commit of an "unsynced
transaction" does not wait for the disk: if the server crashes, the transaction may be undone, but only together with
all that were committed after it."""

_BEGIN: Final[dict[Purpose, str]] = {
    "transaction": "begin",
    "unsynced transaction": "begin; set local synchronous_commit = off",
}
_SECONDS_TO_CONNECT: Final = 10.0
_SECONDS_TO_ANSWER: Final = 60.0
_SECONDS_TO_CANCEL: Final = 5.0
# A new connection is ready sooner than one whose server does not answer.
_SECONDS_TO_RECOVER: Final = 1.0
_TRIES: Final = 5


class Connection(Protocol):
    """The part of asyncpg's connection that this package uses."""

    async def fetch(self, query: str, *args: object) -> Sequence[Row]: ...
    async def fetchrow(self, query: str, *args: object) -> Row | None: ...
    async def fetchval(self, query: str, *args: object) -> Any: ...
    async def execute(self, query: str, *args: object) -> str: ...
    async def executemany(self, command: str, args: Sequence[Sequence[object]]) -> None: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...


_connect: Final = cast("Callable[..., Awaitable[Connection]]", asyncpg.connect)

# Ids of PostgreSQL's built-in types are below this one, in every version and database (transam.h).
_FIRST_OWN_TYPE: Final = 16_384
_built_in_types: Final[dict[frozenset[int], Sequence[Row]]] = {}


class _TypeCachingConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that caches array types of built-in types for the whole process.

    asyncpg would query them once per connection, with a statement slower than any of taskmq's. With versions of
    asyncpg that lack this method, it still does.
    """

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Sequence[Row], Any]:
        asked = frozenset(typeoids)
        if (known := _built_in_types.get(asked)) is not None:
            # The name of a statement; it must not be that of the one being prepared.
            return known, SimpleNamespace(name="known")
        types, statement = cast(
            "tuple[Sequence[Row], Any]",
            await super()._introspect_types(asked, timeout),  # pyright: ignore[reportUnknownMemberType]
        )
        if max(asked) < _FIRST_OWN_TYPE:
            _built_in_types[asked] = types
        return types, statement


class Connections:
    """Up to `size` connections of one kind, opened on first use and reopened after a loss.

    Args:
        url: of the database.
        address: the URL without its password, for messages.
        name: application name shown at the server.
        settings: statements that each new connection runs first.
        plans: number of plans that each connection keeps.
        prepare: checks a new connection before its first use; an exception rejects the connection.
        heal: creates the missing daily partitions.
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
        prepare: Callable[[Connection], Awaitable[object]],
        heal: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._url = url
        self._address = address
        self._name = name
        self._settings = [*EVERY, *settings]
        self._plans = plans
        self._prepare = prepare
        self._heal = heal
        self.size = size
        self._room = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._connecting = TaskSet("store connection", failure="opening a connection to the store failed")
        self._recovering = TaskSet("store rollback", failure="rolling back a cancelled call at the store failed")
        self._leaving = TaskSet("store cancellation", failure="cancelling a statement at the store failed")
        self._is_closed = False

    async def run(self, purpose: Purpose, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` on one connection and return its result.

        A transaction covers all of `work`. If it collides with another one, it rolls back and `work` runs again. If
        the connection of a read or of an open transaction is lost, for example after a stall of 5 s, `work` runs
        once more on a new connection. If `work` raises an exception of its own, the transaction rolls back, and the
        connection stays open. If the caller is cancelled, the statement is cancelled at the server, too, the
        transaction rolls back, and the connection stays open.

        Raises:
            StoreUnavailable: the server is unreachable or the connection was lost; `is_certain` if nothing was
                changed.
            StoreRefused: the server rejected a statement or a value; nothing was changed.
        """
        async with self._room:
            was_lost = False
            for _ in range(_TRIES):
                connection = await self._open()
                progress = _Progress(purpose)
                try:
                    return await self._attempt(connection, work, progress)
                except asyncpg.PostgresError as error:
                    if not await self._can_retry(connection, error):
                        if not sqlstate(error).startswith(OUTAGE):
                            raise refusal_of(self._address, error) from None
                        if was_lost or not is_lost(error) or not progress.is_undone:
                            raise outage_of(self._address, error, is_undone=progress.is_undone) from error
                        was_lost = True
                except FAILURES as error:
                    self._cancel_and_drop(connection)
                    if isinstance(error, ValueError):
                        raise refusal_of(self._address, error) from None
                    if was_lost or not is_lost(error) or not progress.is_undone:
                        raise outage_of(self._address, error, is_undone=progress.is_undone) from error
                    was_lost = True
                except asyncio.CancelledError:
                    self._recover(connection)
                    raise
                except Exception:
                    # The work raised it between two statements.
                    await self._roll_back(connection)
                    raise
                except BaseException:
                    self._drop(connection)
                    raise
                finally:
                    self._give_back(connection)
            raise StoreUnavailable(f"{self._address}: the change collided with others {_TRIES} times; retry it")

    async def connect_bare(self) -> Connection:
        """Open a separate connection without prepared statements and settings; the caller closes it.

        Raises:
            StoreUnavailable: the server is unreachable.
        """
        try:
            return await _connect(
                self._url, timeout=_SECONDS_TO_CONNECT, command_timeout=_SECONDS_TO_ANSWER, statement_cache_size=0
            )
        except FAILURES as error:
            raise connect_failure(self._address, error) from error

    async def aclose(self) -> None:
        """Close all connections and abort what they run."""
        self._is_closed = True
        await self._connecting.aclose(grace=2.0)
        await self._recovering.aclose(grace=2.0)
        await self._leaving.aclose(grace=2.0)
        for connection in list(self._used):
            self._drop(connection)
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=2.0)
            except FAILURES:
                connection.terminate()

    async def _attempt(
        self, connection: Connection, work: Callable[[Connection], Awaitable[T]], progress: "_Progress"
    ) -> T:
        if (begin := _BEGIN.get(progress.purpose)) is None:
            return await work(connection)
        await connection.execute(begin)
        result = await work(connection)
        progress.is_committing = True
        await connection.execute("commit")
        return result

    async def _can_retry(self, connection: Connection, error: asyncpg.PostgresError) -> bool:
        state = sqlstate(error)
        is_full_day = isinstance(error, asyncpg.CheckViolationError) and "no partition" in str(error)
        # An upgrade changed a table after the statement was prepared.
        is_outdated = isinstance(error, asyncpg.InvalidCachedStatementError)
        if state not in COLLISIONS and not is_full_day and not is_outdated:
            if not await self._roll_back(connection) or state.startswith(OUTAGE):
                self._drop(connection)
            return False
        if not await self._roll_back(connection):
            return False
        if is_full_day:
            await self._make_room(connection)
        return True

    async def _make_room(self, connection: Connection) -> None:
        try:
            await self._heal(connection)
        except FAILURES as error:
            # A transaction may still be open.
            self._drop(connection)
            raise StoreUnavailable(
                f"{self._address} lacks a partition for today, which could not be created: {describe(error)}; "
                "nothing was changed"
            ) from error
        except asyncio.CancelledError:
            self._cancel_and_drop(connection)
            raise

    async def _roll_back(self, connection: Connection) -> bool:
        if connection.is_closed():
            return False
        try:
            await connection.execute("rollback")
        except FAILURES:
            self._drop(connection)
            return False
        except asyncio.CancelledError:
            self._cancel_and_drop(connection)
            raise
        return True

    async def _open(self) -> Connection:
        if not self._idle:
            await self._recovering.wait(_SECONDS_TO_RECOVER)
        if self._is_closed:
            raise StoreUnavailable(f"{self._address} is closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                self._used.add(connection)
                return connection
        connection = await self._connect_detached()
        self._used.add(connection)
        return connection

    async def _connect_detached(self) -> Connection:
        made: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        # In a task that is never cancelled: if asyncpg is cancelled during TLS negotiation, it leaves an error
        # unretrieved.
        self._connecting.start(self._connect_for(made))
        try:
            return await made
        except asyncio.CancelledError:
            if not made.cancelled() and made.exception() is None:
                self._keep(made.result())
            raise

    async def _connect_for(self, made: "asyncio.Future[Connection]") -> None:
        try:
            connection = await self._open_new()
        except Exception as error:  # noqa: BLE001 - passed to the caller that waits for the connection
            if not made.done():
                made.set_exception(error)
            return
        if made.done():
            self._keep(connection)
        else:
            made.set_result(connection)

    async def _open_new(self) -> Connection:
        connection: Connection | None = None
        try:
            connection = await _connect(
                self._url,
                timeout=_SECONDS_TO_CONNECT,
                command_timeout=_SECONDS_TO_ANSWER,
                statement_cache_size=self._plans,
                max_cached_statement_lifetime=0,
                connection_class=_TypeCachingConnection,
                server_settings={"application_name": self._name},
            )
            await connection.execute(";".join(self._settings))
            await self._prepare(connection)
        except BaseException as error:
            if connection is not None:
                connection.terminate()
            if isinstance(error, FAILURES):
                raise connect_failure(self._address, error) from error
            raise
        return connection

    def _give_back(self, connection: Connection) -> None:
        if connection in self._used:
            self._used.remove(connection)
            self._keep(connection)

    def _keep(self, connection: Connection) -> None:
        """Keep a connection for later calls, unless there are enough."""
        if self._is_closed or connection.is_closed() or len(self._used) + len(self._idle) >= self.size:
            connection.terminate()
        else:
            self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        self._used.discard(connection)
        connection.terminate()

    def _recover(self, connection: Connection) -> None:
        """Keep the connection of a cancelled call, which may have left a statement running or a transaction open."""
        self._used.discard(connection)
        if connection.is_closed() or self._is_closed:
            connection.terminate()
        else:
            self._recovering.start(self._cancel_and_keep(connection))

    async def _cancel_and_keep(self, connection: Connection) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS_TO_CANCEL):
                # asyncpg waits here until the server has cancelled the statement.
                if await self._roll_back(connection):
                    self._keep(connection)

    def _cancel_and_drop(self, connection: Connection) -> None:
        """Drop a connection whose statement may still run; the server would continue it until the end."""
        self._used.discard(connection)
        if connection.is_closed() or self._is_closed:
            connection.terminate()
        else:
            self._leaving.start(_end(connection))


class _Progress:
    """Progress of one attempt."""

    def __init__(self, purpose: Purpose) -> None:
        self.purpose: Purpose = purpose
        self.is_committing = False

    @property
    def is_undone(self) -> bool:
        """Whether the loss of the connection leaves nothing changed."""
        return self.purpose == "read" or (self.purpose in _BEGIN and not self.is_committing)


def column_of(values: Sequence[object]) -> Sequence[object] | None:
    """Return a column's values for `unnest`; None if all are null, since `unnest` fills short columns with nulls.

    It saves time: asyncpg inspects each element of an array before it sends it.
    """
    return None if values.count(None) == len(values) else values


def shared_column(values: Sequence[object]) -> Sequence[object]:
    """Return a column's values for a statement in which a single one counts for all rows; this saves time, too."""
    return values[:1] if values.count(values[0]) == len(values) else values


async def _end(connection: Connection) -> None:
    """Cancel the connection's statement at the server and close it; if the server does not answer, just drop it."""
    try:
        async with asyncio.timeout(_SECONDS_TO_CANCEL):
            await connection.close(timeout=_SECONDS_TO_CANCEL)
    except FAILURES:
        pass
    finally:
        connection.terminate()
