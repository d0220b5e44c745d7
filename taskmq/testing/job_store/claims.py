"""Claims of dispatched jobs over dictionaries: their holders, and the lines of order keys."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from taskmq.contracts.jobs import DispatchedJob, JobClaim, NewJob, TakenClaims, WorkDone
from taskmq.model.history.suspensions import MISMATCH, SUSPENDED
from taskmq.model.keys import is_line_key
from taskmq.model.states import TERMINAL, UNDERWAY, JobState
from taskmq.testing.job_store.job_table import JobTable

_MOST: Final = 500


class _Grant(NamedTuple):
    """The dispatch that last held a place."""

    job: str
    token: int
    ttl: int | None


class ClaimModel:
    """The claims of a store's jobs.

    Args:
        jobs: the jobs, whose states free places and move lines.
    """

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs
        self._places: defaultdict[str, dict[int, _Grant]] = defaultdict(dict)
        self._lines: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)

    def join_line(self, job: NewJob) -> None:
        """Give a new job the last place of its line, if it has one."""
        if job.line is not None:
            self._lines[job.line].append((job.id, job.queue))

    def leave_lines(self, job_id: str) -> None:
        """Remove a job that resumes from its line."""
        for line in self._lines.values():
            line[:] = [each for each in line if each[0] != job_id]

    def take(self, jobs: Sequence[DispatchedJob], dispatched: Sequence[DispatchedJob], *, now: int) -> TakenClaims:
        """Decide which of the dispatched jobs get their claims.

        Args:
            jobs: all jobs of the call; each joins its line.
        """
        for job in jobs:
            for claim in job.claims:
                self._places[claim.name].setdefault(0, _Grant("", 0, None))
                if is_line_key(claim.name):
                    self.join_again(job.id, claim.name)
        # Decided before the call gives any place away.
        done = {claim.name: self._find_result(claim, now) for job in jobs for claim in job.claims}
        fences: dict[str, int] = {}
        waiting: dict[str, str] = {}
        finished: dict[str, WorkDone] = {}
        for job in dispatched:
            closed = next((claim for claim in job.claims if done[claim.name] or self._is_closed(claim, job)), None)
            if closed is None:
                fences[job.id] = max((self._hold(claim, job) for claim in job.claims), default=0)
            elif (work := done[closed.name]) is not None:
                finished[job.id] = work
            else:
                waiting[job.id] = closed.name
        return TakenClaims(fences, waiting, finished)

    def open(
        self, places: Mapping[str, int], gates: Mapping[str, str], *, now: int
    ) -> tuple[list[str], frozenset[str], frozenset[str]]:
        """Return the jobs that leave their gates, the claims that more may wait for, and the keys with done work."""
        opened: list[str] = []
        waiting: set[str] = set()
        done: set[str] = set()
        for name in sorted(name for name in places if name in self._places and name in gates.values()):
            behind = [self._jobs[job] for job, gate in gates.items() if gate == name]
            behind.sort(key=lambda job: (-job.priority, job.due, job.id))
            count = places[name] - len(self._find_holders(name))
            if self._find_result(JobClaim(name, ttl=1), now) is not None:
                count = _MOST
                done.add(name)
            found = [job.id for job in behind[: max(0, count)]]
            if count <= 0 and not is_line_key(name):
                # A suspended job that runs again holds its key already.
                found = [job.id for job in behind if job.id in self._find_holders(name).values()]
            if is_line_key(name) and count > 0:
                head = self._head(name)
                self._forget_ended(name, before=head)
                found = [head] if head is not None and gates.get(head) == name else []
            opened += found
            if is_line_key(name) or count <= 0 or len(found) >= count:
                waiting.add(name)
        return opened, frozenset(waiting), frozenset(done)

    def join_again(self, job_id: str, name: str) -> None:
        """Give a live job without a place in the line the last one."""
        job = self._jobs[job_id]
        if job.state not in TERMINAL and job_id not in [each for each, _ in self._lines[name]]:
            self._lines[name].append((job_id, job.queue))

    def _head(self, name: str) -> str | None:
        """Return the first live job of a line that is still in its queue."""
        line = self._lines[name]
        live = [
            index
            for index, (job, queue) in enumerate(line)
            if self._jobs[job].state not in TERMINAL and self._jobs[job].queue == queue
        ]
        return line[live[0]][0] if live else None

    def _forget_ended(self, name: str, *, before: str | None) -> None:
        line = self._lines[name]
        if before is not None:
            first = [job for job, _ in line].index(before)
            line[:first] = [each for each in line[:first] if self._jobs[each[0]].state not in TERMINAL]

    def _is_closed(self, claim: JobClaim, job: DispatchedJob) -> bool:
        if is_line_key(claim.name) and self._head(claim.name) != job.id:
            return True
        held = self._find_holders(claim.name)
        return job.id not in held.values() and len(held) >= claim.places

    def _hold(self, claim: JobClaim, job: DispatchedJob) -> int:
        held = self._find_holders(claim.name)
        mine = [place for place, holder in held.items() if holder == job.id]
        place = mine[0] if mine else next(place for place in range(claim.places) if place not in held)
        self._places[claim.name][place] = _Grant(job.id, job.token, claim.ttl)
        return 0 if claim.ttl is None else 1

    def _find_holders(self, name: str) -> dict[int, str]:
        """Return the held places of a claim, and their jobs."""
        return {place: holder.job for place, holder in self._places[name].items() if self._holds(holder)}

    def _holds(self, holder: _Grant) -> bool:
        """Whether the job is under way with the token; of a key also whether it is suspended."""
        job = self._jobs.get(holder.job)
        if job is None or job.state in TERMINAL:
            return False
        is_suspended = job.error is not None and job.error.type_name in {MISMATCH, SUSPENDED}
        return (job.state in UNDERWAY and job.token == holder.token) or (holder.ttl is not None and is_suspended)

    def _find_result(self, claim: JobClaim, now: int) -> WorkDone | None:
        """Return the result of a key whose last holder succeeded, while it is remembered."""
        holder = self._places[claim.name].get(0)
        if claim.ttl is None or holder is None or holder.ttl is None or 0 in self._find_holders(claim.name):
            return None
        job = self._jobs.get(holder.job)
        if job is None or job.state is not JobState.SUCCEEDED or (job.finished or 0) + holder.ttl <= now:
            return None
        return WorkDone(job.id, job.content_type, job.result)
