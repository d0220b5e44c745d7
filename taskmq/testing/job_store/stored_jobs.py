"""A model of the jobs in a store: submitted, listed, changed, and ended by other jobs."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from taskmq.contracts.jobs import (
    AttemptRecord,
    DependencyRefusal,
    HistoryEntry,
    JobPage,
    JobRecord,
    JobUpdate,
    NewJob,
    Released,
    Submitted,
    last_attempt,
)
from taskmq.model.jobs.changes import ready_state
from taskmq.model.jobs.dependencies import JobDependency, after_upstream, reattachment_note
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.states import RESUMABLE, TERMINAL, JobState, can_follow
from taskmq.testing.job_store.claims import ClaimModel
from taskmq.testing.job_store.dependencies import DependencyModel, Settled, submit_in_order
from taskmq.testing.job_store.job_table import JobTable
from taskmq.testing.job_store.match import matches
from taskmq.testing.job_store.values import (
    by_id,
    escape_error,
    reason_of,
    reattach_job,
    resume_job,
)

_RUNS: Final = frozenset({JobState.SCHEDULED, JobState.QUEUED})
_CHANGED: Final = ("due", "expires", "priority", "queue", "body", "cancel_requested")


class StoredJobModel:
    """Jobs as `JobStore` guarantees them, without awaits.

    Attributes:
        now: ms since the epoch; the caller advances it.
        jobs: live and ended jobs by id.
        dependencies: dependencies between jobs, and ends that are not settled yet.
        claims: claims of dispatched jobs.
        gates: gates that hold ready jobs, by job id.
    """

    def __init__(self, *, now: int) -> None:
        self.now = now
        self.jobs = JobTable()
        self.dependencies = DependencyModel()
        self.claims = ClaimModel(self.jobs)
        self.gates: dict[str, str] = {}
        self._keys: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._events: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
        self._outages: Counter[str] = Counter()
        self._attempts: defaultdict[str, list[AttemptRecord]] = defaultdict(list)

    def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        return submit_in_order(jobs, self._submit)

    def _submit(self, job: NewJob) -> Submitted:
        if job.key is not None and (known := self._keys.get((job.tenant, job.key))) is not None:
            job_id, fingerprint = known
            first = self.jobs[job_id]
            return Submitted(job_id, False, fingerprint == job.fingerprint, first.state, first.version)
        if (found := self.jobs.get(job.id)) is not None:
            return Submitted(job.id, False, True, found.state, found.version)
        upstream = () if job.detail is None else job.detail.depends_on
        for each in upstream:
            if (other := self.jobs.get(each.id)) is None or other.tenant != job.tenant:
                refusal = DependencyRefusal(each.id, "unknown")
                return Submitted(job.id, False, False, JobState.UNKNOWN, 0, refusal=refusal)
        due = max(job.due, self.now)
        waits = self.dependencies.add(job.id, [(each, self.jobs[each.id].state) for each in upstream])
        self.jobs[job.id] = JobRecord(
            id=job.id,
            tenant=job.tenant,
            key=job.key,
            task=job.task,
            queue=job.queue,
            priority=job.priority,
            state=JobState.HELD if job.held else JobState.WAITING if waits else ready_state(due, self.now),
            version=1,
            due=due,
            submitted=self.now,
            expires=job.expires,
            body=job.body,
            detail=job.detail,
        )
        self.claims.join_line(job)
        if job.key is not None:
            self._keys[job.tenant, job.key] = (job.id, job.fingerprint)
        return Submitted(job.id, True, True, self.jobs[job.id].state, 1)

    def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        found = sorted(
            (job for job in self.jobs.values() if matches(which, job, now=self.now)), key=by_id, reverse=True
        )
        behind = [replace(job, body=b"", result=b"") for job in found if after is None or job.id < after]
        return JobPage(behind[:limit], behind[limit - 1].id if len(behind) > limit else None)

    def update(self, update: JobUpdate) -> JobRecord | None:
        job = self.jobs.get(update.id)
        if job is None or (job.state, job.version) != (update.before, update.version):
            return None
        if job.state in TERMINAL:
            return self._resume(job, update)
        if update.after is not update.before and not can_follow(update.before, update.after):
            return None
        after = update.after
        if after in _RUNS and self.dependencies.waits(job.id):
            after = JobState.WAITING
        fields = {name: getattr(update, name) for name in _CHANGED}
        fields = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
        if "due" in fields:
            fields["scheduled"] = None if update.kind == "change" else job.scheduled_for
        if update.error is not msgspec.UNSET:
            fields["error"] = escape_error(update.error)
        changed = self._set(job, after, **fields)
        if changed.queue != job.queue:
            self.claims.leave_lines(job.id)
        self.note(changed, update.kind, by=update.by, note=update.note)
        return changed

    def _resume(self, job: JobRecord, update: JobUpdate) -> JobRecord | None:
        """Resume an ended job."""
        is_meant = update.kind == "retry" and update.after is JobState.QUEUED and job.state in RESUMABLE
        found = [(each, self.jobs.get(each.id)) for each in update.depends_on]
        upstream = [(each, other.state) for each, other in found if other is not None and other.tenant == job.tenant]
        if not is_meant or len(upstream) < len(found):
            return None
        self._apply_settled(self.dependencies.settle_ends_of(job.id))
        if job.dispatched is not None:
            self._attempts[job.id].append(last_attempt(job))
        self._outages.pop(job.id, None)
        self.claims.leave_lines(job.id)
        live = self.jobs[job.id] = resume_job(job, update, waits=self.dependencies.resume(job.id, upstream))
        self.note(live, update.kind, by=update.by, note=update.note)
        return replace(live, reattached=self._reattach(job, job.id, update))

    def _reattach(self, ended: JobRecord, runs: str, update: JobUpdate) -> int:
        """Let the dependents that the job ended wait for the job `runs`; return how many wait now."""
        self._apply_settled(self.dependencies.settle_ends_of(ended.id))
        self.dependencies.forget_failed(ended.id)
        note = reattachment_note(update.note, ended.id, runs)
        found = self.dependencies.rename_failed(ended.id, runs, ended.state)
        count = 0
        while found:
            # One that waits again here is not waited for if its end was enough.
            chosen = {
                job_id: [(each, self.jobs[each.id].state) for each in self.dependencies.failed_upstream(job_id)]
                for job_id in sorted(found)
                if self._can_wait(job_id)
            }
            for job_id in chosen:
                self._apply_settled(self.dependencies.settle_ends_of(job_id))
            for job_id, upstream in chosen.items():
                self.dependencies.forget_failed(job_id)
                self.dependencies.resume(job_id, upstream)
                live = self.jobs[job_id] = reattach_job(self.jobs[job_id], now=self.now)
                self.note(live, "retry", by=update.by, note=note)
            count += len(chosen)
            found = set[str]().union(*map(self.dependencies.failed_dependents, chosen))
        return count

    def _can_wait(self, job_id: str) -> bool:
        """Return whether each dependency of an ended job is met, or still can be."""
        return all(
            (state := self.jobs[each.id].state) not in TERMINAL or after_upstream(each.condition, state) is None
            for each in self.dependencies.failed_upstream(job_id)
        )

    def retry(self, job: NewJob, update: JobUpdate) -> Submitted | None:
        ended = self.jobs.get(update.id)
        if ended is None or (ended.state, ended.version) != (update.before, update.version):
            return None
        if ended.state not in TERMINAL:
            return None
        (answer,) = self.submit([job])
        if answer.is_new:
            marked = self.jobs[ended.id] = replace(ended, version=ended.version + 1, retried_as=job.id)
            self.note(marked, update.kind, by=update.by, note=update.note)
            answer = replace(answer, reattached=self._reattach(ended, job.id, update))
        return answer

    def events(self, job_id: str) -> list[HistoryEntry]:
        return list(self._events.get(job_id, ()))

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        return list(self._attempts.get(job_id, ()))

    def unmet(self, job_id: str, *, limit: int = 50) -> list[JobDependency]:
        return self.dependencies.unmet(job_id)[:limit]

    def release_dependents(self, *, limit: int = 500) -> Released:
        queues = self._apply_settled(self.dependencies.settle(limit))
        return Released(frozenset(queues), self.dependencies.is_behind)

    def _apply_settled(self, settled: Settled) -> set[str]:
        """End and free these dependents; return the queues with new ready jobs."""
        queues: set[str] = set()
        for job_id, end in settled.ends.items():
            self._end_by_itself(self.jobs[job_id], end.state, end.reason)
        for job_id in settled.free:
            job = self.jobs[job_id]
            if job.state is JobState.HELD:
                self._set(job, JobState.HELD)
                continue
            due = max(job.due, self.now)
            if self._set(job, ready_state(due, self.now), due=due).state is JobState.QUEUED:
                queues.add(job.queue)
        return queues

    def _set(self, job: JobRecord, after: JobState, **fields: Any) -> JobRecord:
        assert job.state not in TERMINAL
        assert after is job.state or can_follow(job.state, after), f"{job.state} -> {after}"
        if after in TERMINAL:
            fields.setdefault("finished", self.now)
        changed = replace(job, state=after, version=job.version + 1, **fields)
        self.jobs[job.id] = changed
        self.gates.pop(job.id, None)
        if after in TERMINAL:
            self.dependencies.end(job.id, after)
        return changed

    def _end_by_itself(self, job: JobRecord, after: JobState, why: str) -> None:
        """End a job whose end no worker reports."""
        error = reason_of(why)
        self.note(self._set(job, after, error=error), "ended", note=error.message)

    def note(self, job: JobRecord, kind: Any, *, by: str = "", note: str = "", started: int | None = None) -> None:
        """Record an event of the job in its present state."""
        entry = HistoryEntry(
            version=job.version, at=self.now, kind=kind, state=job.state, by=by, note=note, started=started
        )
        self._events[job.id].append(entry)
