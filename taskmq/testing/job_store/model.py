"""A model of job stores over dictionaries: the reference for random histories.

It covers what those histories do; quotas, pools, unique keys, identities and the rest have their own tests. Nothing
waits, and only `dice` is random: the same calls give the same jobs.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final

from msgspec.structs import replace

from taskmq.contracts.jobs import (
    PARTITIONS,
    AppliedReport,
    DispatchBatch,
    DispatchedJob,
    DueJob,
    JobRecord,
    Lane,
    OpenedClaims,
    Pick,
    RatedJob,
    ReturnedJob,
    TakenClaims,
    TakenStarts,
    Withdrawn,
    partition_key,
    partition_of,
)
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
from taskmq.model.states import TERMINAL, UNDERWAY, JobState
from taskmq.model.units import storable
from taskmq.testing.job_store.leases import LeaseModel
from taskmq.testing.job_store.stored_jobs import StoredJobModel
from taskmq.testing.job_store.values import (
    OpenBatch,
    attempt_of,
    by_due,
    dispatched_job,
    escape_error,
    is_noted,
    lane_of,
    reason_of,
    shard_of,
)

_WAITS: Final = frozenset({JobState.SCHEDULED, JobState.RETRYING})
_AT_BROKER: Final = frozenset({JobState.DISPATCHED})


class JobModel(StoredJobModel):
    """Jobs and their dispatches, as `JobStore` and `DispatchStore` guarantee them, without awaits.

    Attributes:
        leases: leases of the partitions.
        placed: partitions of queues that differ from the model's own.
        rates: until when each rate is used up, seconds since the epoch.
        report_keys: keys that sign tokens, newest first.
    """

    def __init__(self, *, partitions: int = PARTITIONS, now: int = 0, dice: random.Random | None = None) -> None:
        super().__init__(now=now)
        self.partitions = partitions
        self.leases = LeaseModel()
        self.placed: dict[str, int] = {}
        self.rates: dict[str, float] = {}
        self._dice = dice or random.Random(0)
        self.report_keys = [new_report_key(self._dice.randbytes(35))]
        self._crashes: dict[str, int] = {}
        self._batches: dict[int, OpenBatch] = {}
        self._last_batch = 0

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

    def set_token(self, batch: int, job_id: str, token: int) -> None:
        """Set the token of the job's dispatch to that of another store."""
        self._batches[batch].tokens[job_id] = token
        self.jobs[job_id] = replace(self.jobs[job_id], token=token)

    def _holds(self, partition: int, epoch: int) -> bool:
        return self.leases.has(partition_key(partition), epoch)

    def under_way(self, job_id: str, token: int) -> JobRecord | None:
        job = self.jobs.get(job_id)
        return job if job is not None and job.state in UNDERWAY and job.token == token else None
