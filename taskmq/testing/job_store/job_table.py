"""The jobs of a model by id, with access by state and by time."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

from taskmq.contracts.jobs import JobRecord
from taskmq.model.states import JobState

_WAITS: Final = frozenset({JobState.SCHEDULED, JobState.RETRYING})


class JobTable(dict[str, JobRecord]):
    """Jobs are added by assignment and never removed."""

    def __init__(self) -> None:
        super().__init__()
        self._by_state: dict[JobState, dict[str, JobRecord]] = {state: {} for state in JobState}
        # Contains outdated times, too; these are skipped.
        self._times: list[tuple[int, str]] = []

    def __setitem__(self, job_id: str, job: JobRecord) -> None:
        if (before := self.get(job_id)) is not None:
            del self._by_state[before.state][job_id]
        super().__setitem__(job_id, job)
        self._by_state[job.state][job_id] = job
        if job.state in _WAITS:
            time = (job.due, job_id)
            place = bisect_left(self._times, time)
            if self._times[place : place + 1] != [time]:
                insort(self._times, time)

    def in_state(self, *states: JobState) -> Iterator[JobRecord]:
        """Iterate over the jobs in any of these states, in no order."""
        return (job for state in states for job in self._by_state[state].values())

    def by_time(self) -> Iterator[JobRecord]:
        """Iterate over the jobs that wait for their time, earliest first."""
        while self._times and self._at(self._times[0]) is None:
            del self._times[0]
        return (job for time in self._times if (job := self._at(time)) is not None)

    def _at(self, time: tuple[int, str]) -> JobRecord | None:
        """Return the job that has this time now."""
        due, job_id = time
        job = self.get(job_id)
        return job if job is not None and job.state in _WAITS and job.due == due else None
