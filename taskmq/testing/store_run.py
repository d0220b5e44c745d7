"""A scheduler for tests, without its own clock and leases, which makes a step when something may have changed.

    fire what is due -> let dependents go -> advance runs -> deliver ends to reactions
    -> dispatch what is ready, within quotas and limits -> publish invitations
    -> reports -> apply -> results into the state

The store decides, as in production. `taskmq.scheduler` additionally decides when to look, how much to dispatch, and
how to handle failures, which tests of programs do not cover.
"""

import math
from collections.abc import Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import Consumer, Delivery, Subscription
from taskmq.contracts.history import Remembering
from taskmq.contracts.jobs import DispatchedJob, JobStore, Pick, partition_key
from taskmq.model.clock import Clock
from taskmq.model.history.logs import LOGS_TASK, decode_logs
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.jobs.reports import Report, decode_reports
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import UNDERWAY, JobState
from taskmq.model.topology import ReportQueue, reports_queue
from taskmq.model.units import LAST_INSTANT
from taskmq.scheduler.dependents import EndReactions, JobEnd, ReactionTable
from taskmq.scheduler.firing import ScheduleTurns
from taskmq.scheduler.firing.due_loop import StoreClock
from taskmq.scheduler.gates import ClaimWaits, GatePassage, Gates, TaskClaims, answer_of
from taskmq.scheduler.invitations import InvitationMessages
from taskmq.scheduler.partition import AppRules
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.proofs import InvitationProofs
from taskmq.scheduler.reports import AcceptedEnd, AcceptedResults, ReportedJournals
from taskmq.scheduler.runs import RunAdvances
from taskmq.scheduler.status import SchedulerCounts
from taskmq.scheduler.wakeups import Wakeups
from taskmq.schedules.store_records import StoredRecords
from taskmq.stored_jobs.new_jobs import name_of

_MANY: Final = 10_000
_FOR_EVER: Final = 1e9
_GOES_ON: Final = JobFilter(
    states=frozenset({JobState.SCHEDULED, JobState.RETRYING, JobState.QUEUED, JobState.DISPATCHED, JobState.RUNNING})
)


class _VirtualClock(StoreClock):
    """Clock of a store, which a test moves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self.now_ms() / 1000

    def now_ms(self) -> int:
        return self._clock.now_ms()


class FailedRun:
    """A failed job of the store."""

    def __init__(self, job_id: str, task: str, attempts: int, error: ErrorRecord) -> None:
        self.job_id = job_id
        self.task = task
        self.attempts = attempts
        self.error = error


class StoreRun:
    """Advances the jobs of one store, by its clock.

    Args:
        fires: whether schedules are fired.

    Attributes:
        moved: how many steps had an effect.
        failed: the failed jobs.
    """

    def __init__(self, app: TaskMQ, session: Session, store: JobStore, clock: Clock, *, fires: bool = False) -> None:
        self.moved = 0
        self.failed: list[FailedRun] = []
        self._app = app
        self._session = session
        self._store = store
        self._clock = clock
        self._dispatching = store.dispatching
        self._reports = reports_queue(app.name, 0)
        self._results = AcceptedResults(app, store)
        self._journals = ReportedJournals(session.broker, store.journals)
        self._arrived: list[Delivery] = []
        self._consumer: Consumer | None = None
        self._epochs: dict[int, int] = {}
        self._passages: dict[int, GatePassage] = {}
        self._reactions = ReactionTable(app, store, me="test")
        self._ends = EndReactions(app, store, self._reactions, me="test")
        self._claims = ClaimWaits(TaskClaims({}).of)
        wakeups = Wakeups(store.dispatching, None)
        self._runs = RunAdvances(app, store, wakeups, clock=_VirtualClock(clock))
        self._fires = fires
        self._turns: dict[int, ScheduleTurns] = {}
        self._proofs = InvitationProofs(self._dispatching)
        self._messages = InvitationMessages(self._proofs, self._reports, leaves_limits=lambda _: False)

    async def start(self) -> None:
        """Hold all partitions and receive reports; messages of an earlier run remain at the broker."""
        await self._session.broker.declare_reports([ReportQueue(self._reports)])
        self._consumer = await self._session.broker.consume(
            [Subscription(self._reports, _MANY)], self._arrived.append
        )
        await self._proofs.read()
        rules = AppRules(self._app, has_state=self._session.stores.limits is not None)
        self._claims = ClaimWaits(rules.claims().of)
        for partition in range(self._dispatching.partitions):
            epoch = await self._dispatching.leases.acquire(partition_key(partition), owner="test", seconds=_FOR_EVER)
            assert isinstance(epoch, int)
            self._epochs[partition] = epoch
            gates = Gates(rules.demands())
            # Virtual time does not pass on the way to a worker.
            gates.lead = 0.0
            lease = HeldLease(partition, epoch, until=_FOR_EVER)
            self._passages[partition] = GatePassage(gates, self._claims, self._dispatching, lease)
        await self._app.workflows.store_in(self._store.runs)
        if self._fires:
            await StoredRecords(self._store, self._app.name, self._app.producer).upsert(self._app.schedules)
            self._turns = {partition: self._turns_of(partition, epoch) for partition, epoch in self._epochs.items()}

    def _turns_of(self, partition: int, epoch: int) -> ScheduleTurns:
        lease = HeldLease(partition, epoch, until=_FOR_EVER)
        clock = _VirtualClock(self._clock)
        return ScheduleTurns(self._app, self._store, lease, clock, on_ready=lambda _: None, counts=SchedulerCounts())

    async def stop(self) -> None:
        """Release everything; jobs in workers stay dispatched, and their messages stay at the broker."""
        for turns in self._turns.values():
            await turns.aclose()
        for partition, epoch in self._epochs.items():
            await self._dispatching.leases.release(partition_key(partition), token=epoch)
        if self._consumer is not None:
            await self._consumer.stop()
        for delivery in reversed(self._arrived):
            delivery.requeue()
        self._arrived.clear()

    async def step(self) -> None:
        """Do everything that can be done now."""
        await self._apply()
        for partition, epoch in self._epochs.items():
            await self._fire(partition, epoch)
        await self._release_dependents()
        self.moved += await self._runs.advance_all()
        await self._reactions.refresh()
        self.moved += await self._ends.look()
        for partition, epoch in self._epochs.items():
            await self._dispatch(partition, epoch)

    @property
    def is_starting(self) -> bool:
        """Whether workflows of schedules are being started."""
        return any(turns.is_starting for turns in self._turns.values())

    async def waiting(self) -> int:
        """Return how many jobs will continue once their time has come."""
        return await self._store.count_jobs(_GOES_ON)

    async def next_due(self) -> int | None:
        """Return when the first delayed job, schedule or rate-limited job is due."""
        dues: list[int] = []
        for partition in self._epochs:
            dues += [job.due for job in await self._dispatching.due(partition, until=LAST_INSTANT, limit=1)]
        for partition in self._turns:
            dues += [row.due for row in await self._store.schedules.due(partition, until=LAST_INSTANT, limit=1)]
        dues += [] if self._runs.next_timer is None else [self._runs.next_timer]
        gates = (passage.gates for passage in self._passages.values())
        dues += [math.ceil(at * 1000) for each in gates if (at := each.next()) != math.inf]
        return min(dues, default=None)

    async def _apply(self) -> None:
        arrived, self._arrived[:] = list(self._arrived), []
        for delivery in arrived:
            if delivery.task == LOGS_TASK:
                assert isinstance(self._store, Remembering)
                await self._store.history.logs.add(decode_logs(delivery.body))
                delivery.ack()
                self.moved += 1
                continue
            await self._apply_reports(
                [
                    report
                    for report in decode_reports(delivery.body)
                    if report.kind != "alive" and not self._journals.add(report)
                ]
            )
            delivery.ack()
            self.moved += 1
        # No other scheduler frees claims.
        if asked := self._claims.due(now=math.inf):
            opened = await self._dispatching.open_claims(asked)
            self._claims.record_opened(asked, opened)
            self.moved += bool(opened.lanes)

    async def _apply_reports(self, reports: Sequence[Report]) -> None:
        await self._journals.keep_progress()
        await self._journals.save()
        applied = await self._dispatching.apply(reports, came_by=self._reports)
        ends: list[AcceptedEnd] = []
        for report, one in zip(reports, applied, strict=True):
            if one.outcome == "accepted" and one.state not in UNDERWAY:
                self._leave(report)
            if one.outcome == "accepted" and one.state is not None and one.state.is_final:
                ends.append(AcceptedEnd(report, one.state, None))
                await self._note(report, one.state)
        await self._reactions.deliver(JobEnd(end.report.id, None, end.state) for end in ends)
        await self._journals.forget(ends)
        await self._results.put(ends)

    def _leave(self, report: Report) -> None:
        """Release the permits of a job that no worker has any more."""
        for passage in self._passages.values():
            if report.limited:
                passage.gates.turn_back(report.id, report.delay / 1000, now=self._now())
            passage.gates.remove(report.id)
        self._claims.remove(report.id)

    def _now(self) -> float:
        return self._clock.now_ms() / 1000

    async def _note(self, report: Report, state: JobState) -> None:
        if state is JobState.FAILED and (record := await self._store.get(report.id)) is not None:
            error = record.error or ErrorRecord(type_name="", message="", traceback="")
            self.failed.append(FailedRun(name_of(record), record.task, record.attempt, error))

    async def _fire(self, partition: int, epoch: int) -> None:
        due = await self._dispatching.due(partition, until=await self._store.now_ms() + 1, limit=_MANY)
        if due:
            await self._dispatching.fire(partition, epoch, due)
            self.moved += 1
        if partition in self._turns:
            schedules = await self._store.schedules.due(partition, until=await self._store.now_ms() + 1, limit=_MANY)
            if schedules:
                await self._turns[partition].fire(schedules)
                self.moved += 1

    async def _release_dependents(self) -> None:
        is_more = True
        while is_more:
            released = await self._dispatching.release_dependents(limit=_MANY)
            self.moved += bool(released.queues)
            is_more = released.is_more

    async def _dispatch(self, partition: int, epoch: int) -> None:
        passage, now = self._passages[partition], self._now()
        self.moved += bool(await passage.open_due(lambda _: True, now=now))
        lanes = await self._dispatching.lanes(partition)
        if not lanes:
            return
        picks, has_put, _ = await passage.divide([Pick(lane, _MANY) for lane in lanes], now=now)
        self.moved += has_put
        batch = await self._dispatching.dispatch_within(partition, epoch, picks, await self._store.quotas())
        if batch is None:
            return
        self.moved += 1
        passage.gates.add(batch.jobs, now=now)
        jobs = await passage.take_starts(await self._take_claims(passage, batch.jobs), now=now)
        assert jobs is not None
        for job_id in {job.id for job in batch.jobs} - {job.id for job in jobs}:
            passage.gates.remove(job_id)
            self._claims.remove(job_id)
        for name in dict.fromkeys(job.queue for job in jobs):
            await self._session.declare([self._app.producer.queue(name)])
        saved = await self._store.journals.values([job.id for job in jobs if job.due is None])
        messages = [self._messages.invite(job, saved.get(job.id)) for job in jobs]
        for outcome in await self._session.publish_now(messages):
            if outcome is not None:
                raise outcome
        await self._dispatching.confirm([batch.id])

    async def _take_claims(self, passage: GatePassage, jobs: Sequence[DispatchedJob]) -> Sequence[DispatchedJob]:
        """Return the jobs that hold their claims; those whose work was done end."""
        self._claims.add(jobs)
        taken = await passage.take_claims(jobs, now=self._now())
        assert taken is not None
        for job in taken.waiting:
            passage.gates.remove(job.id)
        if taken.done:
            await self._apply_reports([answer_of(job, done) for job, done in taken.done])
        return taken.held
