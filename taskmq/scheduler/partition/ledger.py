"""The jobs of one partition in flight: dispatched, and not reported yet.

Only the holder of a partition gets its reports, so it knows how many jobs of a queue are in flight. The ledger also
collects confirmed batches and batches without jobs, until the store has recorded them. It has no clock and does no
I/O; its events wake waiting services.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from math import inf

import msgspec

from taskmq.contracts.jobs import DispatchBatch, DispatchedJob
from taskmq.stored_jobs.new_jobs import name_of


class Flight(msgspec.Struct, frozen=True, gc=False):
    """A job in flight.

    Attributes:
        name: public id of the job.
        gives_way: whether its run may be stopped for others.
        runs_once: whether it never runs a second time.
    """

    token: int
    batch: int
    queue: str
    task: str
    name: str
    gives_way: bool = False
    runs_once: bool = False


class Ledger:
    """The jobs of one partition in flight, by id.

    Args:
        gives_way: returns whether the run of a job may be stopped for others.
        runs_once: returns whether a job never runs a second time.

    Attributes:
        giving_way: number of jobs in flight whose run may be stopped.
        confirmed: confirmed batches that the store has not recorded yet.
        empty: batches without jobs in flight that the store has not deleted yet.
        has_news: set when `confirmed` or `empty` has grown.
        is_drained: set while nothing is in flight.
    """

    def __init__(
        self, *, gives_way: Callable[[DispatchedJob], bool], runs_once: Callable[[DispatchedJob], bool]
    ) -> None:
        self._gives_way = gives_way
        self._runs_once = runs_once
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
        # Workers that have reported that they run a job without a message, by the job.
        self._heard: dict[str, str] = {}
        self._left_of: dict[int, int] = {}
        self._queues: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of jobs in flight."""
        return len(self._flights)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._flights

    def count(self, queue: str) -> int:
        """Return the number of jobs of a queue in flight."""
        return self._queues[queue]

    def queues(self) -> Counter[str]:
        """Count the jobs in flight by queue."""
        return +self._queues

    def add(self, batch: DispatchBatch) -> list[str]:
        """Add the jobs of a batch. Returns those that were already in flight by an earlier dispatch."""
        if not batch.jobs:
            self.empty.add(batch.id)
            self.has_news.set()
            return []
        again: list[str] = []
        self._left_of[batch.id] = len(batch.jobs)
        for job in batch.jobs:
            if (earlier := self._flights.get(job.id)) is not None:
                # It no longer counts in the batch of the earlier dispatch.
                self._leave(job.id, earlier)
                again.append(job.id)
                if earlier.token != job.token:
                    self._returned.pop(job.id, None)
            if job.crashes is not None:
                self._returned.setdefault(job.id, -inf)
            gives_way, runs_once = self._gives_way(job), self._runs_once(job)
            self._flights[job.id] = Flight(
                job.token, batch.id, job.queue, job.task, name_of(job), gives_way, runs_once
            )
            self.giving_way += gives_way
            self._queues[job.queue] += 1
        self.is_drained.clear()
        return again

    def confirm(self, batch: int) -> None:
        """Record that the broker has confirmed a whole batch."""
        if batch in self._left_of:
            self.confirmed.add(batch)
            self.has_news.set()

    def leave(self, job_id: str, token: int) -> Flight | None:
        """Remove a job that was reported, withdrawn or ended. Returns None if it is not in flight with this token."""
        flight = self.find(job_id, token)
        if flight is not None:
            self._leave(job_id, flight)
            self._returned.pop(job_id, None)
        return flight

    def find(self, job_id: str, token: int) -> Flight | None:
        """Return the job's flight; None if it is not in flight with this token."""
        flight = self._flights.get(job_id)
        return flight if flight is not None and flight.token == token else None

    def begin(self, job_id: str, worker: str = "") -> None:
        """Record that a job is running, and its worker; does nothing if it is not in flight."""
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
        """Whether the job is in flight with this token, and known to run."""
        return self.find(job_id, token) is not None and job_id in self._running

    def waits(self, job_id: str, token: int) -> bool:
        """Whether the job is in flight with this token, and not known to run."""
        return self.find(job_id, token) is not None and job_id not in self._running

    def detach(self, job_id: str, token: int, *, now: float, worker: str) -> bool:
        """Record that a job runs without a message from now on. Returns whether it is in flight.

        If another worker runs the job from a later message, that one counts.

        Args:
            now: seconds of a monotonic clock.
        """
        if self.find(job_id, token) is None:
            return False
        if self._running.get(job_id) in (None, "", worker):
            self._detached[job_id] = now
        return True

    def hear(self, job_id: str, token: int, *, now: float, worker: str) -> bool:
        """Record that the worker of a run without a message reports that it runs; arguments as of `detach`."""
        if is_ours := self.detach(job_id, token, now=now, worker=worker):
            self._heard[job_id] = worker
        return is_ours

    def attach(self, job_id: str) -> None:
        """Record that the job has a message again, because another worker received it."""
        self._detached.pop(job_id, None)

    def last_heard(self, job_id: str) -> float | None:
        """Return when a job lost its message or its worker last reported; None if the job has a message."""
        return self._detached.get(job_id)

    def was_heard(self, job_id: str, worker: str) -> bool:
        """Whether this worker has reported here that it runs a job without a message."""
        return self._heard.get(job_id) == worker

    def tokens(self) -> dict[str, int]:
        """Return the token of each job in flight."""
        return {job_id: flight.token for job_id, flight in self._flights.items()}

    def _leave(self, job_id: str, flight: Flight) -> None:
        del self._flights[job_id]
        self._running.pop(job_id, None)
        self._detached.pop(job_id, None)
        self._heard.pop(job_id, None)
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
