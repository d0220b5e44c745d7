"""Expected run times, and the charges for jobs in flight. Pure: times are seconds.

When a job is dispatched, it is charged the average run time of its task; more, if it runs longer; and finally its
actual time. If no run of its task is known, the charge is a guess until the first one has ended.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

import msgspec

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import Amounts

# Weight of the newest run in the moving average.
_NEWEST: Final = 0.2
# Charge if nothing is known. Charges are only compared with each other.
_UNKNOWN: Final = 1.0
# No run is free.
_LEAST: Final = 1e-4
_REMEMBERED: Final = 50_000


class RunTimes:
    """Average run times of tasks, of lanes and of all jobs."""

    def __init__(self) -> None:
        # In a plain dict, deleting the first entry would scan over all deleted ones.
        self._of: OrderedDict[str | Lane, float] = OrderedDict()
        self._of_all: float | None = None

    def expect(self, task: str, lane: Lane) -> float:
        """Return the expected seconds of a run."""
        return self._of.get(task) or self.expected_next(lane)

    def expected_next(self, lane: Lane) -> float:
        """Return the expected seconds of the next job of a lane."""
        return self._of.get(lane) or self._of_all or _UNKNOWN

    def knows(self, task: str) -> bool:
        """Whether a run of the task has ended."""
        return task in self._of

    def record_run(self, task: str, lane: Lane, seconds: float) -> None:
        """Record the duration of a run."""
        seconds = max(seconds, _LEAST)
        self._of_all = _average(self._of_all, seconds)
        for what in (task, lane):
            self._of[what] = _average(self._of.get(what), seconds)
        while len(self._of) > _REMEMBERED:
            # The oldest entries are learned anew.
            self._of.popitem(last=False)


def _average(before: float | None, seconds: float) -> float:
    return seconds if before is None else before + _NEWEST * (seconds - before)


class ChargedJob(msgspec.Struct, gc=False):
    """A job in flight, and the charge to its pool.

    Attributes:
        needs: amounts that it needs.
        worth: number of slots that these are worth.
        seconds: charged run time.
        began: when it started, or was first known to run; None if unknown.
        ran: run time before it was known here, which is not charged.
        is_late: whether it has run longer than was charged.
        since: the virtual times when it was dispatched.
    """

    id: str
    task: str
    lane: Lane
    needs: Amounts
    worth: float
    seconds: float
    began: float | None = None
    ran: float = 0.0
    is_late: bool = False
    since: tuple[float, ...] = ()


class Flights:
    """The jobs in flight, by id."""

    def __init__(self) -> None:
        self._jobs: dict[str, ChargedJob] = {}
        self._guessed: dict[str, dict[str, ChargedJob]] = {}
        self._overdue: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[ChargedJob]:
        return iter(self._jobs.values())

    def find(self, job_id: str) -> ChargedJob | None:
        """Return the job; None if it is not in flight."""
        return self._jobs.get(job_id)

    def add(self, job: ChargedJob, *, is_guessed: bool) -> None:
        """Add a dispatched job; its charge is a guess if no run of its task is known."""
        self._jobs[job.id] = job
        if is_guessed:
            self._guessed.setdefault(job.task, {})[job.id] = job
        if job.began is not None:
            heappush(self._overdue, (job.began + job.seconds, job.id))

    def remove(self, job_id: str) -> ChargedJob:
        """Remove a job that has left."""
        job = self._jobs.pop(job_id)
        if (take_guessed := self._guessed.get(job.task)) is not None:
            take_guessed.pop(job_id, None)
            if not take_guessed:
                del self._guessed[job.task]
        return job

    def take_guessed(self, task: str) -> list[ChargedJob]:
        """Remove and return the jobs of a task that were charged a guess, to be charged anew."""
        return list(self._guessed.pop(task, {}).values())

    def start(self, job_id: str, *, now: float) -> None:
        """Record that a job is running."""
        job = self._jobs.get(job_id)
        if job is not None and job.began is None:
            job.began = now
            heappush(self._overdue, (now + job.seconds, job_id))

    def iterate_overdue(self, *, now: float) -> Iterator[ChargedJob]:
        """Yield jobs that run longer than was charged; the caller has to charge each before the next one."""
        while self._overdue and self._overdue[0][0] <= now:
            _, job_id = heappop(self._overdue)
            job = self._jobs.get(job_id)
            if job is not None and job.began is not None:
                # Its charge may have been raised meanwhile.
                if job.began + job.seconds <= now:
                    yield job
                heappush(self._overdue, (job.began + job.seconds, job_id))
