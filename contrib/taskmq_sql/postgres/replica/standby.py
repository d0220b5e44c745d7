"""The standby: who may read from it, and what happens if it cannot answer."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.contracts.jobs import AcceptedAge, ReplicaStatus, accepted_age
from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreMismatch, StoreRefused, StoreUnavailable
from taskmq_sql.postgres.connections import Connection, Connections, Purpose
from taskmq_sql.postgres.replica.positions import Positions

T = TypeVar("T")

_log = logging.getLogger("taskmq.store")

_SAMPLES_SECONDS: Final = 1.0
_RETRIES_SECONDS: Final = 5.0
# Half of the time that a server has for a read, so that the primary can still answer.
_PATIENCE: Final = 5.0
_POSITION: Final = """
select (pg_current_wal_lsn() - '0/0')::bigint as position, system_identifier as server, current_database() as database
from pg_control_system()"""
_REPLAYED: Final = """
select pg_is_in_recovery() as is_standby, (pg_last_wal_replay_lsn() - '0/0')::bigint as position,
  system_identifier as server, current_database() as database
from pg_control_system()"""
_PROMOTED: Final = "it is not a standby, as it accepts writes: was it promoted?"


class _Unusable(Exception):
    """Raised when the replica must not answer a read, with the reason; "" if that is no problem."""


class _Promoted(_Unusable):
    """Raised when the replica accepts writes."""


class _Conflict(Exception):
    """Raised when the replica cancelled a read in favour of its recovery."""


class Replica:
    """A streaming standby of a database. Examines the primary's log from the first read on.

    Args:
        max_age: seconds that it may be behind.
        walks, reads: connections to the standby, for the statements of those of the primary.
    """

    def __init__(
        self, *, address: str, max_age: float, primary: Connections, walks: Connections, reads: Connections
    ) -> None:
        self.address = address
        self.walks = walks
        self.reads = reads
        self._max_age = max_age
        self._primary = primary
        self._positions = Positions(reach=max_age)
        self._server: tuple[int, str] | None = None
        self._problem = ""
        self._conflicts = 0
        self._watching = TaskSet("store replica", failure="watching the store's replica failed")

    async def read(
        self, connections: Connections, work: Callable[[Connection], Awaitable[T]], accepted: AcceptedAge
    ) -> T:
        """Run `work` at the standby and note the age of its result.

        Raises:
            _Unusable: the primary must run it.
        """
        await self._begin()
        if self._problem:
            raise _Unusable(self._problem)

        async def read(connection: Connection) -> tuple[T, float]:
            position = await self._read_position(connection)
            now = monotonic()
            # Measured before the statements, which see at least that much.
            age = self._positions.age(position, now=now)
            if age > min(self._max_age, accepted.limit):
                raise _Unusable(self._lateness(position, now))
            try:
                return await work(connection), now - age
            except (asyncpg.SerializationError, asyncpg.QueryCanceledError) as error:
                raise _Conflict(str(error)) from error

        try:
            result, since = await self._within(connections, read)
        except _Conflict as error:
            self._conflicts += 1
            if self._conflicts == 1:
                _log.warning("replica %s cancelled a read, the primary answers: %s", self.address, error)
            raise _Unusable("") from error
        except _Unusable as error:
            self._note(str(error))
            raise
        accepted.note(monotonic() - since)
        return result

    async def status(self) -> ReplicaStatus:
        """Examine the standby; see `Replicated.replica_status`."""
        await self._begin()
        age, is_promoted = math.inf, False
        try:
            position = await self._within(self.reads, self._read_position)
            now = monotonic()
            age = self._positions.age(position, now=now)
            problem = self._lateness(position, now)
        except _Unusable as error:
            problem, is_promoted = str(error), isinstance(error, _Promoted)
        return ReplicaStatus(
            address=self.address,
            age=age if age < math.inf else None,
            problem=problem,
            is_promoted=is_promoted,
            conflicts=self._conflicts,
        )

    async def aclose(self) -> None:
        """Close the connections to the standby."""
        await self._watching.aclose()
        await self.walks.aclose()
        await self.reads.aclose()

    async def _begin(self) -> None:
        if not len(self._watching):
            self._watching.start(self._watch())
        if not self._positions:
            await self._sample()

    async def _watch(self) -> None:
        while True:
            await self._sample()
            if self._problem:
                self._note((await self.status()).problem)
            await asyncio.sleep(_RETRIES_SECONDS if self._problem else _SAMPLES_SECONDS)

    async def _sample(self) -> None:
        at = monotonic()
        try:
            row = await self._primary.run("read", lambda connection: connection.fetchrow(_POSITION))
        except (StoreUnavailable, StoreRefused, StoreMismatch):
            # Without new positions, the standby's age grows until it is not read any more.
            return
        assert row is not None
        self._server = row["server"], row["database"]
        self._positions.add(at, row["position"])

    async def _read_position(self, connection: Connection) -> int:
        """Return the position that the standby has replayed.

        Raises:
            _Unusable: it is no standby of the primary.
        """
        row = await connection.fetchrow(_REPLAYED)
        assert row is not None
        if self._server is not None and self._server != (row["server"], row["database"]):
            raise _Unusable("it is the standby of another server, or another database")
        if not row["is_standby"]:
            raise _Promoted(_PROMOTED)
        return int(row["position"] or 0)

    async def _within(self, connections: Connections, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await connections.run("read", work)
        except TimeoutError:
            raise _Unusable(f"it did not answer within {_PATIENCE:g} s") from None
        except StoreRefused as error:
            # It may be the caller's fault, or a table that the standby does not have yet.
            raise _Unusable("") from error
        except (StoreUnavailable, StoreMismatch) as error:
            raise _Unusable(str(error)) from error

    def _lateness(self, position: int, now: float) -> str:
        least = self._positions.least_age(position, now=now)
        return f"it is over {math.floor(self._max_age):,} s behind" if least > self._max_age else ""

    def _note(self, problem: str) -> None:
        """Log a problem when it begins and when it ends."""
        if problem and not self._problem:
            _log.warning("replica %s is not read, the primary answers: %s", self.address, problem)
        elif self._problem and not problem:
            _log.info("replica %s is read again", self.address)
        self._problem = problem


class Shown:
    """Connections whose reads may go to the replica: those of lists, counts and history."""

    def __init__(self, primary: Connections) -> None:
        self._primary = primary
        self._replica: tuple[Replica, Connections] | None = None

    def use(self, replica: Replica, connections: Connections) -> None:
        """Read from the replica on these connections."""
        self._replica = replica, connections

    async def run(self, purpose: Purpose, work: Callable[[Connection], Awaitable[T]]) -> T:
        """See `Connections.run`."""
        if self._replica is not None and (accepted := accepted_age()) is not None and accepted.limit > 0:
            replica, connections = self._replica
            try:
                return await replica.read(connections, work, accepted)
            except _Unusable:
                pass
        return await self._primary.run(purpose, work)
