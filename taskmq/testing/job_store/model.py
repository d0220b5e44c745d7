"""A model of job stores over dictionaries: the reference for random histories.

It covers what those histories do; quotas, pools, unique keys, identities and the rest have their own tests. Nothing
waits, and only `dice` is random: the same calls give the same jobs.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from taskmq.contracts.jobs import (
    PARTITIONS,
    AppliedReport,
    AttemptRecord,
    DependencyRefusal,
    DispatchBatch,
    DispatchedJob,
    DueJob,
    HistoryEntry,
    JobPage,
    JobRecord,
    JobUpdate,
    Lane,
    NewJob,
    OpenedClaims,
    Pick,
    RatedJob,
    Released,
    ReturnedJob,
    Submitted,
    TakenClaims,
    TakenStarts,
    Withdrawn,
    last_attempt,
    partition_key,
    partition_of,
)
from taskmq.model.jobs.changes import ready_state
from taskmq.model.jobs.dependencies import JobDependency, after_upstream, reattachment_note
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.jobs.proofs import ReportKeys, new_report_key
from taskmq.model.jobs.reports import (
    Report,
    after_report,
    event_of,
    goes_on,
    interruption_of,
    is_unseen_end,
    kept_error,
    next_due,
    ran_again,
    restart_note,
)
from taskmq.model.jobs.tokens import ends_forgotten_dispatch, is_forgotten, is_invented, next_token
from taskmq.model.keys import is_line_key
from taskmq.model.limits import RateBook
from taskmq.model.states import RESUMABLE, TERMINAL, UNDERWAY, JobState, can_follow
from taskmq.model.units import storable
from taskmq.testing.job_store.claims import ClaimModel
from taskmq.testing.job_store.dependencies import DependencyModel, Settled, submit_in_order
from taskmq.testing.job_store.job_table import JobTable
from taskmq.testing.job_store.leases import LeaseModel
from taskmq.testing.job_store.match import matches
from taskmq.testing.job_store.values import (
    OpenBatch,
    attempt_of,
    by_due,
    by_id,
    dispatched_job,
    escape_error,
    is_noted,
    lane_of,
    reason_of,
    reattach_job,
    resume_job,
    shard_of,
)

_WAITS: Final = frozenset({JobState.SCHEDULED, JobState.RETRYING})
_RUNS: Final = frozenset({JobState.SCHEDULED, JobState.QUEUED})
_AT_BROKER: Final = frozenset({JobState.DISPATCHED})
_CHANGED: Final = ("due", "expires", "priority", "queue", "body", "cancel_requested")


class JobModel:
    """Jobs and their dispatches, as `JobStore` and `DispatchStore` guarantee them, without awaits.

    Attributes:
        now: ms since the epoch; the caller advances it.
        jobs: live and ended jobs by id.
        leases: leases of the partitions.
        dependencies: dependencies between jobs, and ends that are not settled yet.
        claims: claims of dispatched jobs.
        placed: partitions of queues that differ from the model's own.
        gates: gates that hold ready jobs, by job id.
        rates: until when each rate is used up, seconds since the epoch.
        report_keys: keys that sign tokens, newest first.
    """

    def __init__(self, *, partitions: int = PARTITIONS, now: int = 0, dice: random.Random | None = None) -> None:
        self.partitions = partitions
        self.now = now
        self.jobs = JobTable()
        self.leases = LeaseModel()
        self.dependencies = DependencyModel()
        self.claims = ClaimModel(self.jobs)
        self.placed: dict[str, int] = {}
        self.gates: dict[str, str] = {}
        self.rates: dict[str, float] = {}
        self._dice = dice or random.Random(0)
        self.report_keys = [new_report_key(self._dice.randbytes(35))]
        self._keys: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._events: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
        self._outages: Counter[str] = Counter()
        self._crashes: dict[str, int] = {}
        self._attempts: defaultdict[str, list[AttemptRecord]] = defaultdict(list)
        self._batches: dict[int, OpenBatch] = {}
        self._last_batch = 0

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

    def partition_of(self, queue: str) -> int:
        return self.placed.get(queue, partition_of(queue, self.partitions))

    def lanes(self, partition: int) -> list[Lane]:
        return sorted({lane_of(job) for job in self._in_lanes() if self.partition_of(job.queue) == partition})

    def ready(self, lane: Lane) -> list[JobRecord]:
        """Return the dispatchable jobs of the lane, in order."""
        return sorted((job for job in self._in_lanes() if lane_of(job) == lane), key=by_due)

    def _in_lanes(self) -> Iterator[JobRecord]:
        """Yield the ready jobs that no gate holds."""
        return (job for job in self.jobs.in_state(JobState.QUEUED) if job.id not in self.gates)

    def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        if not self._holds(partition, epoch):
            return None
        jobs: list[DispatchedJob] = []
        expired = 0
        for job in [job for pick in picks for job in self.ready(pick.lane)[: pick.count]]:
            if job.expires is not None and job.expires <= self.now:
                expired += 1
                self._end_by_itself(job, JobState.EXPIRED, "its time was over before it started")
            else:
                token = next_token(job.token, self._dice.getrandbits(32))
                changed = self._set(job, JobState.DISPATCHED, token=token, dispatched=self.now, started=None)
                self._crashes.pop(job.id, None)
                jobs.append(self._hand_out(changed))
        return self._batch(partition, epoch, jobs, expired)

    def _hand_out(self, job: JobRecord) -> DispatchedJob:
        return dispatched_job(job, outages=self._outages[job.id], crashes=self._crashes.get(job.id))

    def _batch(self, partition: int, epoch: int, jobs: list[DispatchedJob], expired: int = 0) -> DispatchBatch | None:
        if not jobs:
            return None
        self._last_batch += 1
        self._batches[self._last_batch] = OpenBatch(
            self._last_batch, partition, epoch, {job.id: job.token for job in jobs}
        )
        return DispatchBatch(self._last_batch, False, jobs, expired)

    def put_behind(self, partition: int, epoch: int, gates: Mapping[str, str]) -> None:
        if self._holds(partition, epoch):
            there = [job for lane in self.lanes(partition) for job in self.ready(lane) if job.id in gates]
            self.gates |= {job.id: gates[job.id] for job in there}
            for job in sorted(there, key=lambda job: (job.due, job.id)):
                if is_line_key(gates[job.id]):
                    self.claims.join_again(job.id, gates[job.id])

    def closed_gates(self, partition: int) -> list[str]:
        return sorted({self.gates[job.id] for job in self._behind(partition)})

    def _behind(self, partition: int) -> list[JobRecord]:
        return [self.jobs[job] for job in self.gates if self.partition_of(self.jobs[job].queue) == partition]

    def open_gates(self, partition: int, epoch: int, gates: Mapping[str, int]) -> list[tuple[str, Lane]]:
        if not self._holds(partition, epoch):
            return []
        behind = self._behind(partition)
        behind.sort(key=lambda job: (self.gates[job.id], -job.priority, job.due, job.id))
        left = dict(gates)
        opened: list[tuple[str, Lane]] = []
        for job in behind:
            gate = self.gates[job.id]
            if left.get(gate, 0) > 0:
                left[gate] -= 1
                del self.gates[job.id]
                opened.append((gate, lane_of(job)))
        return opened

    def take_starts(self, partition: int, epoch: int, jobs: Sequence[RatedJob], *, lead: float) -> TakenStarts | None:
        if not self._holds(partition, epoch):
            return None
        book = RateBook(self.rates, now=self.now / 1000, lead=lead)
        instants: dict[str, float | None] = {}
        waiting: dict[str, str] = {}
        for one in jobs:
            job = self.under_way(one.id, one.token)
            if job is None or job.state is not JobState.DISPATCHED or job.cancel_requested is not None:
                continue
            if not one.is_sure and (closed := book.find_closed(one.rates)):
                self._set(job, JobState.QUEUED, dispatched=None)
                self.gates[job.id] = waiting[job.id] = closed
            else:
                instant = book.take(one.rates)
                instants[job.id] = None if instant is None else instant * 1000
        self.rates = book.used
        rates = {demand.key: demand for one in jobs for demand in one.rates}
        return TakenStarts(instants, waiting, {key: book.wait(demand) for key, demand in rates.items()})

    def take_claims(self, partition: int, epoch: int, jobs: Sequence[DispatchedJob]) -> TakenClaims | None:
        if not self._holds(partition, epoch):
            return None
        found = [(one, self.under_way(one.id, one.token)) for one in jobs]
        dispatched = [
            one
            for one, job in found
            if job is not None and job.state is JobState.DISPATCHED and job.cancel_requested is None
        ]
        taken = self.claims.take(jobs, dispatched, now=self.now)
        for job_id, gate in taken.waiting.items():
            self._set(self.jobs[job_id], JobState.QUEUED, dispatched=None)
            self.gates[job_id] = gate
        return taken

    def open_claims(self, places: Mapping[str, int]) -> OpenedClaims:
        opened, waiting, done = self.claims.open(places, self.gates, now=self.now)
        for job_id in opened:
            del self.gates[job_id]
        return OpenedClaims(frozenset(lane_of(self.jobs[job_id]) for job_id in opened), waiting, done)

    def confirm(self, batches: Sequence[int]) -> None:
        for number in batches:
            if (batch := self._batches.get(number)) is not None:
                batch.confirmed = True

    def forget(self, batches: Sequence[int]) -> None:
        for number in batches:
            self._batches.pop(number, None)

    def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        waiting, withdrawn = self._withdraw(partition, epoch, jobs)
        for job in waiting:
            if job.cancel_requested is not None:
                changed = self._set(job, JobState.CANCELLED, error=reason_of(job.cancel_requested))
            elif delay > 0:
                due = self.now + round(delay * 1000)
                changed = self._set(job, JobState.SCHEDULED, due=due, scheduled=job.scheduled_for, dispatched=None)
            else:
                changed = self._set(job, JobState.QUEUED, dispatched=None)
            self.note(changed, "undispatched", note=reason)
        return withdrawn

    def fail(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str, also_running: bool = False
    ) -> Withdrawn:
        states = UNDERWAY if also_running else _AT_BROKER
        waiting, withdrawn = self._withdraw(partition, epoch, jobs, states)
        for job in waiting:
            self._end_by_itself(job, JobState.FAILED, reason)
        return withdrawn

    def _withdraw(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], states: Collection[JobState] = _AT_BROKER
    ) -> tuple[list[JobRecord], Withdrawn]:
        """Select the jobs in these states, and build the answer."""
        if not self._holds(partition, epoch):
            return [], Withdrawn(is_fenced=True)
        found = [job for one in jobs if (job := self.under_way(one.id, one.token)) is not None]
        chosen = [job for job in found if job.state in states]
        running = frozenset(job.id for job in found if job.state not in states)
        return chosen, Withdrawn(frozenset(job.id for job in chosen), running)

    def dispatch_again(self, partition: int, epoch: int, jobs: Sequence[ReturnedJob]) -> DispatchBatch | None:
        if not self._holds(partition, epoch):
            return None
        found: list[DispatchedJob] = []
        for one in jobs:
            job = self.under_way(one.id, one.token)
            if job is None or job.cancel_requested is not None:
                continue
            self._crashes[job.id] = self._crashes.get(job.id, 0) + one.crashes
            changed = self._set(job, JobState.DISPATCHED, started=None)
            if job.state is JobState.RUNNING or one.crashes:
                self.note(changed, "interrupted", by=job.worker, note=storable(one.reason), started=job.started)
            found.append(self._hand_out(changed))
        return self._batch(partition, epoch, found)

    def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        if not self._holds(partition, epoch):
            return []
        found: list[DispatchBatch] = []
        batches = [batch for batch in self._batches.values() if batch.partition == partition and batch.epoch < epoch]
        # What was dispatched again is in its last batch only.
        last = {job: batch.id for batch in batches for job in batch.tokens.items()}
        for batch in batches:
            batch.epoch = epoch
            held = [self.under_way(*job) for job in batch.tokens.items() if last[job] == batch.id]
            jobs = [self._hand_out(job) for job in held if job is not None]
            if jobs:
                found.append(DispatchBatch(batch.id, batch.confirmed, jobs))
            else:
                del self._batches[batch.id]
        return found

    def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return [self._apply(report, came_by) for report in reports]

    def _apply(self, report: Report, came_by: str) -> AppliedReport:
        if (known := self.jobs.get(report.id)) is None:
            return AppliedReport("unknown")
        if (job := self.under_way(report.id, report.token)) is None:
            return self._apply_to_other(known, report, came_by)
        after = after_report(report.kind, cancel_requested=job.cancel_requested is not None)
        changed = self._set(job, after, **self._reported_fields(job, report, after))
        if after is JobState.RETRYING:
            self._attempts[job.id].append(attempt_of(job, report, ended=self._end(report), error=changed.error))
            self._outages.pop(job.id, None)
        if ran_again(report, job.started):
            self.note(changed, "interrupted", by=job.worker, note=storable(restart_note(report)), started=job.started)
        if report.kind == "detached":
            self.note(changed, "detached", by=report.worker)
        if (interruption := interruption_of(report)) is not None:
            note = storable(interruption.reason)
            self.note(changed, interruption.kind, by=report.worker, note=note, started=report.started)
            self._outages[job.id] += interruption.is_outage
        if (event := event_of(report)) is not None:
            self.note(changed, event.kind, by=report.worker, note=storable(event.text))
        if is_unseen_end(report, after):
            self.note(changed, "ended", note=storable("" if report.error is None else report.error.message))
        has_dependents = after in TERMINAL and self.dependencies.has_dependents(job.id)
        return AppliedReport("accepted", after, job.queue, has_dependents)

    def _apply_to_other(self, job: JobRecord, report: Report, came_by: str) -> AppliedReport:
        """Apply a report with another token than the job's, or for a waiting or ended job."""
        keys = ReportKeys(self.report_keys)
        if job.state not in TERMINAL and ends_forgotten_dispatch(report, job.token, keys, came_by):
            # As if the dispatch had been recorded here, too.
            self.jobs[job.id] = replace(job, state=JobState.DISPATCHED, token=report.token)
            applied = self._apply(report, came_by)
            ended = self.jobs[job.id]
            self.note(ended, "unknown_attempt", by=report.worker, note=report.kind)
            return applied
        kind = "unknown_attempt" if is_forgotten(report.token, job.token) else "superseded"
        if is_noted(self.events(job.id)):
            self.note(job, kind, by=report.worker, note=report.kind)
        is_made_up = is_invented(report, job.token, keys, came_by)
        return AppliedReport("invented" if is_made_up else "superseded", job.state, job.queue)

    def _reported_fields(self, job: JobRecord, report: Report, after: JobState) -> dict[str, Any]:
        fields: dict[str, Any] = {"worker": report.worker or job.worker}
        if report.started is not None:
            fields["started"] = report.started
            fields["first_started"] = report.started if job.first_started is None else job.first_started
        if goes_on(report.kind):
            return fields
        error = kept_error(report)
        fields["error"] = None if error is None else escape_error(error)
        if after in TERMINAL:
            fields["finished"] = self._end(report)
            fields |= {"processor_ms": report.processor, "peak_memory": report.peak_memory}
            if after is JobState.SUCCEEDED:
                fields |= {"content_type": storable(report.content_type), "result": report.result, "error": None}
            elif job.cancel_requested is not None and report.kind != "failed" and error is None:
                fields["error"] = reason_of(job.cancel_requested)
        elif after in _WAITS:
            fields |= {"due": next_due(report, now=self.now), "scheduled": job.scheduled_for}
            if after is JobState.RETRYING:
                fields |= {"attempt": job.attempt + 1, "dispatched": None}
        return fields

    def _end(self, report: Report) -> int:
        return self.now if report.started is None else report.started + report.ran

    def due(self, partition: int, *, until: int, limit: int) -> list[DueJob]:
        waiting = takewhile(lambda job: job.due < until, self.jobs.by_time())
        own = (job for job in waiting if shard_of(job.id) % self.partitions == partition)
        return [DueJob(job.due, job.id, shard_of(job.id)) for job in islice(own, limit)]

    def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        lanes: set[Lane] = set()
        if not self._holds(partition, epoch):
            return lanes
        for one in jobs:
            job = self.jobs.get(one.id)
            if job is not None and job.state in _WAITS and job.due == one.due:
                lanes.add(lane_of(self._set(job, JobState.QUEUED)))
        return lanes

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

    def set_token(self, batch: int, job_id: str, token: int) -> None:
        """Set the token of the job's dispatch to that of another store."""
        self._batches[batch].tokens[job_id] = token
        self.jobs[job_id] = replace(self.jobs[job_id], token=token)

    def _holds(self, partition: int, epoch: int) -> bool:
        return self.leases.has(partition_key(partition), epoch)

    def under_way(self, job_id: str, token: int) -> JobRecord | None:
        job = self.jobs.get(job_id)
        return job if job is not None and job.state in UNDERWAY and job.token == token else None

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
