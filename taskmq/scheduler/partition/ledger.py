"""The jobs of one partition that are at the broker or with workers: dispatched, and not reported yet.

The reports of a partition come to its holder alone, so the holder knows how many jobs of a queue are in flight. The
ledger also collects what the store has yet to learn of batches: the broker has confirmed them, or all their jobs have
left. It has no clock and does no I/O; its events are for the services that wait.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, JobRecord
from taskmq.model.keys import tenant_key

__all__ = ["Flight", "Ledger", "public_name"]


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
    """The jobs of one partition that are in flight, by their ids.

    Args:
        gives_way: whether the run of a job may be stopped for others.

    Attributes:
        giving_way: how many jobs in flight are such ones.
        confirmed: batches that the broker has confirmed, and of which the store has not been informed.
        empty: batches of which no job is in flight any more, and that the store has not forgotten.
        has_news: set when `confirmed` or `empty` has grown.
        is_drained: set while nothing is in flight.
    """

    def __init__(self, *, gives_way: Callable[[DispatchedJob], bool]) -> None:
        self._gives_way = gives_way
        self.giving_way = 0
        self.confirmed: set[int] = set()
        self.empty: set[int] = set()
        self.has_news = asyncio.Event()
        self.is_drained = asyncio.Event()
        self.is_drained.set()
        self._flights: dict[str, Flight] = {}
        # Running jobs, with their workers.
        self._running: dict[str, str] = {}
        # Jobs whose message came back: when, if a worker may have begun to run them; else -inf.
        self._returned: dict[str, float] = {}
        self._detached: dict[str, float] = {}
        self._left_of: dict[int, int] = {}
        self._queues: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of jobs in flight."""
        return len(self._flights)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._flights

    def count(self, queue: str) -> int:
        """Count the jobs of a queue that are in flight."""
        return self._queues[queue]

    def queues(self) -> Counter[str]:
        """Count the jobs in flight by queue."""
        return +self._queues

    def add(self, batch: DispatchBatch) -> list[str]:
        """Note the jobs of a batch as in flight; return those that were in flight by an earlier dispatch."""
        if not batch.jobs:
            self.empty.add(batch.id)
            self.has_news.set()
            return []
        again: list[str] = []
        self._left_of[batch.id] = len(batch.jobs)
        for job in batch.jobs:
            if (earlier := self._flights.get(job.id)) is not None:
                # In a batch of an earlier dispatch it does not count any more.
                self._leave(job.id, earlier)
                again.append(job.id)
                if earlier.token != job.token:
                    self._returned.pop(job.id, None)
            if job.crashes is not None:
                self._returned.setdefault(job.id, -inf)
            gives_way = self._gives_way(job)
            self._flights[job.id] = Flight(job.token, batch.id, job.queue, job.task, public_name(job), gives_way)
            self.giving_way += gives_way
            self._queues[job.queue] += 1
        self.is_drained.clear()
        return again

    def confirm(self, batch: int) -> None:
        """Note that the broker has confirmed all of a batch that it was given."""
        if batch in self._left_of:
            self.confirmed.add(batch)
            self.has_news.set()

    def leave(self, job_id: str, token: int) -> Flight | None:
        """Remove a job that was reported, withdrawn or ended; None where it is not in flight under this token."""
        flight = self.find(job_id, token)
        if flight is not None:
            self._leave(job_id, flight)
            self._returned.pop(job_id, None)
        return flight

    def find(self, job_id: str, token: int) -> Flight | None:
        """Return the job's flight, or None where it is not in flight under this token."""
        flight = self._flights.get(job_id)
        return flight if flight is not None and flight.token == token else None

    def begin(self, job_id: str, worker: str = "") -> None:
        """Note that a job is known to run, at this worker; does nothing where it is not in flight."""
        if job_id in self._flights:
            self._running[job_id] = worker

    def worker_of(self, job_id: str) -> str:
        """Return the worker that is known to run the job; empty where there is none."""
        return self._running.get(job_id, "")

    def come_back(self, job_id: str, *, now: float) -> None:
        """Note that a job's message came back, and no start was reported.

        The first time a worker may have begun to run it. From then on workers report each start before the run.

        Args:
            now: of a monotonic clock, seconds.
        """
        self._returned.setdefault(job_id, now)

    def came_back(self, job_id: str) -> float | None:
        """Return when a job's message came back from a worker that may have begun to run it; None where none did."""
        at = self._returned.get(job_id, -inf)
        return None if at == -inf else at

    def settle_return(self, job_id: str) -> None:
        """Note that it is decided whether the worker died from which the job's message came back."""
        self._returned[job_id] = -inf

    def runs(self, job_id: str, token: int) -> bool:
        """Whether the job is in flight under this token, and is known to run."""
        return self.find(job_id, token) is not None and job_id in self._running

    def waits(self, job_id: str, token: int) -> bool:
        """Whether the job is in flight under this token, and is not known to run."""
        return self.find(job_id, token) is not None and job_id not in self._running

    def hear(self, job_id: str, token: int, *, now: float, worker: str) -> bool:
        """Note that the worker of a run without a message is alive; False where it is not in flight under this token.

        Where another worker runs the job by a later message, that one counts.

        Args:
            now: of a monotonic clock, seconds.
        """
        if self.find(job_id, token) is None:
            return False
        if self._running.get(job_id) in (None, "", worker):
            self._detached[job_id] = now
        return True

    def attach(self, job_id: str) -> None:
        """Note that the job runs with a message again: another worker got it before the first could report that."""
        self._detached.pop(job_id, None)

    def last_heard(self, job_id: str) -> float | None:
        """Return when the worker of a job without a message was heard; None where the job has its message."""
        return self._detached.get(job_id)

    def tokens(self) -> dict[str, int]:
        """Return the token of each job in flight."""
        return {job_id: flight.token for job_id, flight in self._flights.items()}

    def _leave(self, job_id: str, flight: Flight) -> None:
        del self._flights[job_id]
        self._running.pop(job_id, None)
        self._detached.pop(job_id, None)
        self._queues[flight.queue] -= 1
        self.giving_way -= flight.gives_way
        self._left_of[flight.batch] -= 1
        if not self._left_of[flight.batch]:
            del self._left_of[flight.batch]
            self.confirmed.discard(flight.batch)
            self.empty.add(flight.batch)
            self.has_news.set()
        if not self._flights:
            self.is_drained.set()


def public_name(job: DispatchedJob | JobRecord) -> str:
    """Return the id by which people know a job: the one that its submitter has chosen, or the store's."""
    return job.id if job.key is None else tenant_key(job.tenant or None, job.key)
