"""What jobs will probably take, and what those in flight are charged. Pure: times are seconds.

A job is charged what runs of its task take on average, when it is dispatched; more, if it turns out to run longer;
and in the end what it took. Where no run of its task is known, that is a guess, until the first one has ended.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import Amounts

__all__ = ["ChargedJob", "Flights", "RunTimes"]

# Of a run the moving average takes so much.
_NEWEST: Final = 0.2
# Of which nothing at all is known. What is charged is only ever compared.
_UNKNOWN: Final = 1.0
# No run is free.
_LEAST: Final = 1e-4
_REMEMBERED: Final = 50_000


class RunTimes:
    """How long runs of tasks, of lanes and of all take on average."""

    def __init__(self) -> None:
        # A plain dict would search its beginning, where entries have been deleted, for the first one that is left.
        self._of: OrderedDict[str | Lane, float] = OrderedDict()
        self._of_all: float | None = None

    def expected(self, task: str, lane: Lane) -> float:
        """Seconds of a run, as far as is known."""
        return self._of.get(task) or self.expected_next(lane)

    def expected_next(self, lane: Lane) -> float:
        """Seconds of whatever comes next in a lane."""
        return self._of.get(lane) or self._of_all or _UNKNOWN

    def knows(self, task: str) -> bool:
        """Whether a run of the task was seen to end."""
        return task in self._of

    def took(self, task: str, lane: Lane, seconds: float) -> None:
        """A run has ended."""
        seconds = max(seconds, _LEAST)
        self._of_all = _average(self._of_all, seconds)
        for what in (task, lane):
            self._of[what] = _average(self._of.get(what), seconds)
        while len(self._of) > _REMEMBERED:
            # Who came first is learned anew.
            self._of.popitem(last=False)


def _average(before: float | None, seconds: float) -> float:
    return seconds if before is None else before + _NEWEST * (seconds - before)


@dataclass(slots=True)
class ChargedJob:
    """A job in flight, and what its pool was charged for it.

    Attributes:
        needs: amounts that it takes.
        worth: how many slots that is.
        seconds: what was charged, of run time.
        began: when it began to run, or was first known to; None: that is not known.
        ran: for how long it had run before it was known here, which is not charged.
        is_late: it has run for longer than was charged.
        since: the virtual times when it went into flight.
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
        """The job, if it is in flight."""
        return self._jobs.get(job_id)

    def add(self, job: ChargedJob, *, is_guessed: bool) -> None:
        """A job goes into flight; what it was charged may be a guess, of whose task no run is known."""
        self._jobs[job.id] = job
        if is_guessed:
            self._guessed.setdefault(job.task, {})[job.id] = job
        if job.began is not None:
            heappush(self._overdue, (job.began + job.seconds, job.id))

    def remove(self, job_id: str) -> ChargedJob:
        """A job has left."""
        job = self._jobs.pop(job_id)
        if (guessed := self._guessed.get(job.task)) is not None:
            guessed.pop(job_id, None)
            if not guessed:
                del self._guessed[job.task]
        return job

    def guessed(self, task: str) -> list[ChargedJob]:
        """The jobs of a task that were charged a guess; charge them anew, they are not given again."""
        return list(self._guessed.pop(task, {}).values())

    def began(self, job_id: str, *, now: float) -> None:
        """A job is known to run."""
        job = self._jobs.get(job_id)
        if job is not None and job.began is None:
            job.began = now
            heappush(self._overdue, (now + job.seconds, job_id))

    def overdue(self, *, now: float) -> Iterator[ChargedJob]:
        """Jobs that run for longer than was charged; charge them more before the next one."""
        while self._overdue and self._overdue[0][0] <= now:
            _, job_id = heappop(self._overdue)
            job = self._jobs.get(job_id)
            if job is not None and job.began is not None:
                # It may have been charged more meanwhile.
                if job.began + job.seconds <= now:
                    yield job
                heappush(self._overdue, (job.began + job.seconds, job_id))
