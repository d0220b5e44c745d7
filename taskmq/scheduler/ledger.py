"""What one partition has at the broker and with workers: every job that was dispatched and not reported yet.

The reports of a partition come to its holder alone, so the holder knows how many jobs of a queue are in flight. The
store
learns in batches what has become of batches: that the broker has confirmed them, and that all their jobs have left.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, DispatchStore, JobRecord
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.model.keys import tenant_key

__all__ = ["Flight", "Ledger", "public_name"]

_log = logging.getLogger("taskmq.scheduler")

# What comes within this time is written together: a batch that is not confirmed in the store is published twice after
# a crash, and a statement for each batch costs more than that.
_TOGETHER: Final = 0.02
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


def _none(_: DispatchedJob, /) -> bool:
    """No run is ever stopped for others."""
    return False


def _nobody_asks(job_id: str, seconds: float | None, /) -> None:
    """What leaves makes no difference to other jobs."""


class Flight(NamedTuple):
    """A job in flight.

    Attributes:
        name: the id by which people know it.
        gives_way: its run may be stopped for others.
    """

    token: int
    batch: int
    queue: str
    task: str
    name: str
    gives_way: bool = False


class Ledger:
    """The jobs of one partition that are in flight, by their ids: a `Service`, which tells the store of batches.

    Args:
        left: called with each job that leaves, and the seconds for which it has run, as far as that is known.
        gives_way: whether the run of a job may be stopped for others.

    Attributes:
        giving_way: how many jobs in flight are such ones.
    """

    def __init__(
        self,
        store: DispatchStore,
        *,
        left: Callable[[str, float | None], None] = _nobody_asks,
        gives_way: Callable[[DispatchedJob], bool] = _none,
    ) -> None:
        self._store = store
        self._gives_way = gives_way
        self.giving_way = 0
        self._tell_left = left
        self._flights: dict[str, Flight] = {}
        self._running: set[str] = set()
        self._detached: dict[str, float] = {}
        self._left_of: dict[int, int] = {}
        self._queues: Counter[str] = Counter()
        self._confirmed: set[int] = set()
        self._empty: set[int] = set()
        self._has_news = asyncio.Event()
        self._is_drained = asyncio.Event()
        self._is_drained.set()
        self._is_stopping = asyncio.Event()

    def __len__(self) -> int:
        """How many jobs are in flight."""
        return len(self._flights)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._flights

    def count(self, queue: str) -> int:
        """How many jobs of a queue are in flight."""
        return self._queues[queue]

    def queues(self) -> Counter[str]:
        """How many jobs of each queue are in flight."""
        return +self._queues

    def add(self, batch: DispatchBatch) -> None:
        """A batch is on its way."""
        if not batch.jobs:
            self._empty.add(batch.id)
            self._has_news.set()
            return
        self._left_of[batch.id] = len(batch.jobs)
        for job in batch.jobs:
            # In a batch of an earlier dispatch it does not count any more.
            if (earlier := self._flights.get(job.id)) is not None:
                self._leave(job.id, earlier)
            gives_way = self._gives_way(job)
            self._flights[job.id] = Flight(job.token, batch.id, job.queue, job.task, public_name(job), gives_way)
            self.giving_way += gives_way
            self._queues[job.queue] += 1
        self._is_drained.clear()

    def confirmed(self, batch: int) -> None:
        """The broker has confirmed all of a batch that it was given."""
        if batch in self._left_of:
            self._confirmed.add(batch)
            self._has_news.set()

    def left(self, job_id: str, token: int, *, seconds: float | None = None) -> Flight | None:
        """The job has been reported, given back or ended: it is not in flight any more.

        None, and nothing is changed, where it is not in flight under this token.

        Args:
            seconds: for which it has run, 0: it never did; None: unknown.
        """
        flight = self._flights.get(job_id)
        if flight is None or flight.token != token:
            return None
        self._leave(job_id, flight, seconds)
        return flight

    def find(self, job_id: str, token: int) -> Flight | None:
        """The job, where it is in flight under this token."""
        flight = self._flights.get(job_id)
        return flight if flight is not None and flight.token == token else None

    def began(self, job_id: str) -> None:
        """It is known to run; nothing where it is not in flight."""
        if job_id in self._flights:
            self._running.add(job_id)

    def runs(self, job_id: str, token: int) -> bool:
        """Whether it is in flight under this token, and is known to run."""
        return self.find(job_id, token) is not None and job_id in self._running

    def waits(self, job_id: str, token: int) -> bool:
        """Whether it is in flight under this token, and is not known to run."""
        return self.find(job_id, token) is not None and job_id not in self._running

    def heard(self, job_id: str, token: int, *, now: float) -> bool:
        """It runs without its message, and its worker says so; False where it is not in flight under this token.

        Args:
            now: of a monotonic clock, seconds.
        """
        if self.find(job_id, token) is None:
            return False
        self._detached[job_id] = now
        return True

    def has_message(self, job_id: str) -> None:
        """It runs with a message again: another worker has got it, since the first one was too slow to say so."""
        self._detached.pop(job_id, None)

    def last_heard(self, job_id: str) -> float | None:
        """When the worker of a job without a message said so; None where the job has its message."""
        return self._detached.get(job_id)

    def tokens(self) -> dict[str, int]:
        """The token of each job in flight."""
        return {job_id: flight.token for job_id, flight in self._flights.items()}

    async def wait_until_drained(self) -> None:
        """Return once nothing is in flight."""
        await self._is_drained.wait()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._has_news.set()

    async def run(self) -> None:
        """Write confirmed batches to the store until `stop`; it ends with what is known by then."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            await self._has_news.wait()
            await pause(self._is_stopping, _TOGETHER)
            self._has_news.clear()
            try:
                await self._tell()
                backoff.reset()
            except StoreUnavailable as error:
                _log.debug("writing confirmed batches to the store failed, trying again: %s", error)
                if await pause(self._is_stopping, backoff.next()):
                    # Its next holder publishes again what is not confirmed there.
                    return
                self._has_news.set()
            if self._is_stopping.is_set():
                return

    async def _tell(self) -> None:
        if empty := tuple(self._empty):
            await self._store.forget(empty)
            self._empty.difference_update(empty)
            self._confirmed.difference_update(empty)
        if confirmed := tuple(self._confirmed):
            await self._store.confirm(confirmed)
            self._confirmed.difference_update(confirmed)

    def _leave(self, job_id: str, flight: Flight, seconds: float | None = None) -> None:
        del self._flights[job_id]
        self._running.discard(job_id)
        self._detached.pop(job_id, None)
        self._tell_left(job_id, seconds)
        self._queues[flight.queue] -= 1
        self.giving_way -= flight.gives_way
        self._left_of[flight.batch] -= 1
        if not self._left_of[flight.batch]:
            del self._left_of[flight.batch]
            self._confirmed.discard(flight.batch)
            self._empty.add(flight.batch)
            self._has_news.set()
        if not self._flights:
            self._is_drained.set()


def public_name(job: DispatchedJob | JobRecord) -> str:
    """The id by which people know a job: the one that its submitter has chosen, or the store's."""
    return job.id if job.key is None else tenant_key(job.tenant or None, job.key)
