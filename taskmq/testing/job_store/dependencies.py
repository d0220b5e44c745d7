"""Model of job dependencies over dictionaries."""

from collections.abc import Callable, Sequence

import msgspec

from taskmq.contracts.jobs import DependencyRefusal, NewJob, Submitted, rename_dependencies
from taskmq.model.jobs.dependencies import JobDependency, after_upstream, end_reason, generations
from taskmq.model.states import TERMINAL, JobState


class UpstreamEnd(msgspec.Struct, frozen=True):
    """End of a waiting job whose dependency ended in another way than required."""

    state: JobState
    reason: str


class Settled(msgspec.Struct, frozen=True):
    """Result of settling some ends.

    Attributes:
        free: jobs that no longer wait for anything.
        ends: jobs that end, and how.
    """

    free: list[str]
    ends: dict[str, UpstreamEnd]


class DependencyModel:
    """Unsettled dependencies, and the ends that settle them."""

    def __init__(self) -> None:
        self._unmet: dict[str, dict[str, JobDependency]] = {}
        self._upstream: set[str] = set()
        self._ends: list[tuple[str, JobState]] = []
        self._failed: dict[str, dict[str, JobDependency]] = {}

    def add(self, job_id: str, upstream: Sequence[tuple[JobDependency, JobState]]) -> bool:
        """Add the dependencies of a job with their states; return whether it has to wait."""
        unmet: dict[str, JobDependency] = {}
        for each, state in upstream:
            if state not in TERMINAL:
                self._upstream.add(each.id)
            elif after_upstream(each.condition, state) is None:
                continue
            else:
                self._ends.append((each.id, state))
            unmet[each.id] = each
        if unmet:
            self._unmet[job_id] = unmet
        return bool(unmet)

    def resume(self, job_id: str, upstream: Sequence[tuple[JobDependency, JobState]]) -> bool:
        """Do what `add` does for an ended job that resumes; others may still wait for it."""
        if any(job_id in unmet for unmet in self._unmet.values()):
            self._upstream.add(job_id)
        else:
            self._upstream.discard(job_id)
        return self.add(job_id, upstream)

    @property
    def is_behind(self) -> bool:
        """Whether some ends are not settled yet."""
        return bool(self._ends)

    def waits(self, job_id: str) -> bool:
        """Return whether the job waits for others."""
        return job_id in self._unmet

    def has_dependents(self, job_id: str) -> bool:
        """Return whether others wait for it, or have waited."""
        return job_id in self._upstream

    def unmet(self, job_id: str) -> list[JobDependency]:
        """Return the dependencies that it waits for, by id."""
        return [each for _, each in sorted(self._unmet.get(job_id, {}).items())]

    def end(self, job_id: str, state: JobState) -> None:
        """Record that the job has ended: it waits for nothing, and its dependents can be settled."""
        self._unmet.pop(job_id, None)
        if job_id in self._upstream:
            self._ends.append((job_id, state))

    def settle(self, limit: int) -> Settled:
        """Settle up to `limit` dependencies, earliest ends first."""
        free: list[str] = []
        ends: dict[str, UpstreamEnd] = {}
        left = limit
        while self._ends and left:
            upstream, state = self._ends[0]
            waiting = sorted(job_id for job_id, unmet in self._unmet.items() if upstream in unmet)
            for job_id in waiting[:left]:
                self._settle(job_id, upstream, state, free, ends)
            left -= len(waiting[:left])
            if left:
                del self._ends[0]
        return Settled(free, ends)

    def settle_ends_of(self, job_id: str) -> Settled:
        """Settle all recorded ends of one job."""
        free: list[str] = []
        ends: dict[str, UpstreamEnd] = {}
        for upstream, state in [each for each in self._ends if each[0] == job_id]:
            for waiting in sorted(each for each, unmet in self._unmet.items() if upstream in unmet):
                self._settle(waiting, upstream, state, free, ends)
            self._ends.remove((upstream, state))
        return Settled(free, ends)

    def forget_failed(self, job_id: str) -> None:
        """Forget what ended the job: it runs again, or another job repeats it."""
        self._failed.pop(job_id, None)

    def rename_failed(self, ended: str, runs: str, state: JobState) -> set[str]:
        """Replace a job that ended by the job that runs again; return the dependents that its end ended."""
        found = {
            job_id
            for job_id, upstream in self._failed.items()
            if ended in upstream and after_upstream(upstream[ended].condition, state) is not None
        }
        for job_id in found:
            dependency = self._failed[job_id].pop(ended)
            self._failed[job_id][runs] = JobDependency(runs, dependency.condition)
        return found

    def failed_upstream(self, job_id: str) -> list[JobDependency]:
        """Return the dependencies of a job that one of them ended."""
        return list(self._failed[job_id].values())

    def failed_dependents(self, job_id: str) -> set[str]:
        """Return the jobs that a dependency ended and that depend on this one."""
        return {each for each, upstream in self._failed.items() if job_id in upstream}

    def _settle(
        self, job_id: str, upstream: str, state: JobState, free: list[str], ends: dict[str, UpstreamEnd]
    ) -> None:
        dependency = self._unmet[job_id].pop(upstream)
        if (after := after_upstream(dependency.condition, state)) is not None:
            self._failed[job_id] = {**self._unmet.pop(job_id), upstream: dependency}
            ends[job_id] = UpstreamEnd(after, end_reason(dependency, state))
        elif not self._unmet[job_id]:
            del self._unmet[job_id]
            free.append(job_id)


def submit_in_order(jobs: Sequence[NewJob], submit: Callable[[NewJob], Submitted]) -> list[Submitted]:
    """Submit jobs after their dependencies; return the outcome of each, in order."""
    upstream = {job.id: [] if job.detail is None else [each.id for each in job.detail.depends_on] for job in jobs}
    groups, circular = generations(upstream)
    place = {job_id: number for number, group in enumerate(groups) for job_id in group}
    answers: dict[int, Submitted] = {}
    # The dependents wait for the job that was submitted before under another id.
    known: dict[str, str] = {}
    for at, job in sorted(enumerate(jobs), key=lambda each: (place.get(each[1].id, 0), each[0])):
        if job.id in circular:
            other = next(each for each in upstream[job.id] if each in circular)
            refusal = DependencyRefusal(other, "cycle")
            answers[at] = Submitted(job.id, False, False, JobState.UNKNOWN, 0, refusal=refusal)
            continue
        answers[at] = answer = submit(rename_dependencies(job, known))
        if answer.is_same:
            known[job.id] = answer.id
    return [answers[at] for at in range(len(jobs))]
