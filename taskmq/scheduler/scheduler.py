"""A scheduler of an app's store, one of any number."""

import asyncio
import logging
import os
import socket
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.history import HistoryStore, Remembering
from taskmq.contracts.jobs import Catalogued, JobStore
from taskmq.durable.service import Service, ServiceGroup, pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreUnavailable, StoreWentBack
from taskmq.model.backoff import Backoff
from taskmq.model.telemetry.events import WorkerEvent
from taskmq.model.telemetry.metrics import SchedulerSnapshot
from taskmq.model.telemetry.scheduler_report import SchedulerReport
from taskmq.operations.bulks import BulkRunner
from taskmq.operations.retention import KeepRule
from taskmq.scheduler.alerts import AlertSettings, AlertWatch, NoticeSender
from taskmq.scheduler.catalogue import TaskRegistrar
from taskmq.scheduler.dependents import DependentReleases, EndReactions, ReactionTable
from taskmq.scheduler.duties import AuditSeal, Duties
from taskmq.scheduler.firing.due_loop import FiringPace, StoreClock
from taskmq.scheduler.held_jobs import HeldJobReleases
from taskmq.scheduler.held_partition import HeldPartition
from taskmq.scheduler.history import DepthSampler, RunHistory, VersionRecorder
from taskmq.scheduler.nodes import NodeRegistrar
from taskmq.scheduler.partitions import HeldLease, PartitionLeases
from taskmq.scheduler.pauses import PausedQueues
from taskmq.scheduler.proofs import InvitationProofs
from taskmq.scheduler.runs import RunAdvances
from taskmq.scheduler.signals import LiveWorkers, Signals
from taskmq.scheduler.status import DemandGauge, SchedulerCounts, SchedulerPresence, SchedulerStatus
from taskmq.scheduler.wakeups import Wakeups
from taskmq.schedules.store_records import StoredRecords
from taskmq.version import VERSION

_log = logging.getLogger("taskmq.scheduler")

_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
# Seconds without an answer of the store, which is asked once a second, after which a scheduler is not ready.
_SILENT: Final = 5.0
# Seconds between two firings of timers.
_FIRING: Final = 0.005
_DAYS: Final = 86_400.0


class Scheduler:
    """A service that dispatches the jobs of an app's store.

    Args:
        drains: whether `stop` waits until all jobs in flight are reported; a second `stop` does not wait.
        counts_runs: whether to count the runs that workers report, and to keep failures of plain jobs.
        alerts: settings for alerts; None: alert rules are not evaluated.
        archive: folder into which ended jobs are written, day by day, before the store forgets them.
        keep: rules for how long ended jobs are kept; default: the store's 30 days.

    Raises:
        UnsupportedFeature: the app has no store, or the store does not support `keep`; raised by `run`.
        InvalidOption: `keep` would forget jobs before they are archived; raised by `run`.
        StoreMismatch: the store's tables have another version; raised by `run`.
        StoreWentBack: the store lost confirmed writes; raised by `run`, once its work has ended.
    """

    def __init__(
        self,
        app: TaskMQ,
        *,
        drains: bool = False,
        counts_runs: bool = False,
        alerts: AlertSettings | None = None,
        archive: Path | None = None,
        keep: Sequence[KeepRule] = (),
    ) -> None:
        self._keep = keep
        self._archive = archive
        self._counts_runs = counts_runs
        self._alerts = alerts
        self._app = app
        self._drains = drains
        self._me = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._is_stopping = asyncio.Event()
        self._has_begun = False
        self._refusal: StoreWentBack | None = None
        self._started = app.sessions.clock.now_ms()
        self._counts = SchedulerCounts()
        self._demand = DemandGauge(app)
        self._workers = LiveWorkers()
        self._clock = StoreClock(lambda: app.sessions.store().now_ms())
        self._pace = FiringPace(_FIRING)
        self._held: dict[int, HeldPartition] = {}
        self._work = TaskSet("works for a partition", failure="the work for a partition failed, restarting it")
        self._store: JobStore | None = None
        self._leases: PartitionLeases | None = None
        self._wakeups: Wakeups | None = None
        self._nodes: NodeRegistrar | None = None
        self._versions: VersionRecorder | None = None

    def __repr__(self) -> str:
        return f"<Scheduler {self._me} partitions={sorted(self._held)}>"

    def stop(self) -> None:
        """Have `run` return once current work has ended; with `drains`, once all jobs in flight are reported."""
        if self._is_stopping.is_set() or not self._drains:
            for held in self._held.values():
                held.stop()
        self._is_stopping.set()

    async def run(self) -> None:
        """Dispatch until `stop`. Waits while the store or the broker is unavailable."""
        try:
            session = self._app.sessions.current()
            store = self._store = self._app.sessions.store()
            if not await self._until_reached(store.check):
                return
            records = StoredRecords(store, self._app.name, self._app.producer)
            # Schedules start workflows.
            if not await self._until_reached(lambda: self._app.workflows.store_in(store.runs)):
                return
            if not await self._until_reached(lambda: records.upsert(self._app.schedules)):
                return
            proofs = InvitationProofs(store.dispatching)
            if not await self._until_reached(proofs.read):
                return
            tasks = TaskRegistrar(self._app, store.tasks, me=self._me) if isinstance(store, Catalogued) else None
            nodes = self._nodes = NodeRegistrar(store, me=self._me, knows_all=lambda: self._workers.knows_all)
            wakeups = self._wakeups = Wakeups(store.dispatching, session.broker)
            kept = session.pauses
            assert kept is not None
            pauses = PausedQueues(
                session.broker,
                kept,
                app=self._app.name if kept is store else None,
                on_change=wakeups.wake_all,
            )
            await pauses.load()
            runs = RunAdvances(self._app, store, wakeups, clock=self._clock)
            signals = Signals(
                session.broker,
                self._workers,
                wakeups,
                pauses,
                on_free=self._on_free,
                on_runs=runs.advance_soon,
                on_tasks=_ignore if tasks is None else tasks.receive,
                on_worker=self._on_worker,
            )
            releases = DependentReleases(store, wakeups)
            reactions = ReactionTable(self._app, store, me=self._me)
            hold = partial(
                HeldPartition,
                self._app,
                store,
                workers=self._workers,
                clock=self._clock,
                pace=self._pace,
                proofs=proofs,
                paused=pauses,
                wakeups=wakeups,
                releases=releases,
                runs=runs,
                reactions=reactions,
                counts=self._counts,
            )
            leases = self._leases = PartitionLeases(
                store.dispatching,
                address=store.address,
                me=self._me,
                on_acquire=lambda lease: self._begin(hold(lease), wakeups),
                on_give=self._on_give,
                on_lose=self._on_lose,
                on_free=wakeups.announce_freed,
                on_refuse=self._on_refuse,
            )
            self._has_begun = True
            async with ServiceGroup() as group:
                await group.start(signals, "listens to signals")
                duties = Duties(store, me=self._me, archive=self._archive, keep=self._keep)
                for each, purpose in (
                    (duties, "maintains the store"),
                    (releases, "releases dependent jobs"),
                    (runs, "advances runs of workflows"),
                    (HeldJobReleases(self._app, store, self._workers), "releases held jobs"),
                    (reactions, "reads stored reactions"),
                    (EndReactions(self._app, store, reactions, me=self._me), "delivers ends to reactions"),
                    (AuditSeal(store, me=self._me), "seals the audit log"),
                    (BulkRunner(self._app, me=self._me), "executes bulk operations"),
                    (proofs, "reads report keys"),
                    (nodes, "registers nodes"),
                ):
                    await group.start(each, purpose)
                if tasks is not None:
                    await group.start(tasks, "registers tasks")
                if isinstance(store, Remembering):
                    for service, name in self._observers(store, store.history):
                        await group.start(service, name)
                presence = SchedulerPresence(
                    store.dispatching.leases, me=self._me, read=self._report, dispatched=self._count_dispatched
                )
                await group.start(presence, "reports this scheduler")
                await group.start(self._demand, "counts waiting jobs")
                await group.start(pauses, "follows the paused queues")
                await group.start(leases, "holds partitions")
                try:
                    await self._is_stopping.wait()
                finally:
                    await self._end(leases)
            if self._refusal is not None:
                raise self._refusal
        finally:
            await self._app.aclose()

    def _observers(self, store: JobStore, history: HistoryStore) -> Iterator[tuple[Service, str]]:
        """Yield the services that observe workers and their runs, and notify people."""
        self._versions = VersionRecorder(history.versions, self._app.sessions.clock)
        yield self._versions, "records versions of workers"
        if self._counts_runs:
            broker = self._app.sessions.current().broker
            sampler = DepthSampler(self._app, history.depths)
            counting = RunHistory(broker, store, history.rollups, sampler, me=self._me)
            yield counting, "counts runs"
        if self._alerts is not None:
            watch = AlertWatch(self._app, store, history.alerts, self._workers, self._alerts, me=self._me)
            yield watch, "evaluates alert rules"
            yield NoticeSender(history.alerts, self._alerts), "notifies people of alerts"

    def not_ready(self) -> str | None:
        """Return why nothing is dispatched; None if dispatching works or other schedulers hold all partitions."""
        if self._is_stopping.is_set():
            return "stopping"
        silence = self._silence()
        if not self._has_begun or silence is None:
            return "the store has not answered yet"
        if silence > _SILENT:
            return f"the store has not answered for {silence:.0f} s"
        troubled = sorted(partition for partition, held in self._held.items() if held.state.is_troubled)
        if troubled:
            return f"the broker accepts no jobs of partitions {', '.join(map(str, troubled))}"
        return None

    def status(self) -> SchedulerStatus:
        """Return all that the scheduler knows about itself, for `/status`."""
        windows: dict[str, int] = {}
        paused: dict[str, str] = {}
        for held in self._held.values():
            now = asyncio.get_running_loop().time()
            windows |= {queue: held.dispatcher.window(queue) for queue in held.state.ledger.queues()}
            paused |= held.state.pauses.reasons(now=now)
        occurrences, occurrences_failed = self._counts.schedules.totals()
        return SchedulerStatus(
            version=VERSION,
            pid=os.getpid(),
            app=self._app.name,
            started=self._started,
            partitions=sorted(self._held),
            of=self._store.dispatching.partitions if self._store is not None else 0,
            store_silence=self._silence(),
            in_flight=self._in_flight(),
            windows=windows,
            paused=paused,
            dispatched=self._counts.dispatched,
            fired=self._counts.fired,
            reports=dict(self._counts.reports),
            lost=self._counts.lost,
            preempted=self._counts.preempted,
            occurrences=occurrences,
            occurrences_failed=occurrences_failed,
            refused=self._counts.refused,
        )

    def snapshot(self) -> SchedulerSnapshot:
        """Return the metrics for monitoring."""
        return self._counts.snapshot(
            partitions=len(self._held),
            in_flight=self._in_flight(),
            store_silence=self._silence(),
            waiting=self._demand.read(),
        )

    async def _report(self) -> SchedulerReport:
        await self._clock.measure()
        return SchedulerReport(
            host=socket.gethostname(),
            pid=os.getpid(),
            version=VERSION,
            started=self._started,
            clock_offset=self._app.sessions.clock.now_ms() / 1000 - self._clock.now(),
            rates={},
            app_version=self._app.sessions.app_version,
        )

    def _count_dispatched(self) -> dict[int, int]:
        return {partition: held.state.dispatched for partition, held in self._held.items()}

    def _in_flight(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for held in self._held.values():
            found.update(held.state.ledger.queues())
        return dict(found)

    def _silence(self) -> float | None:
        return None if self._leases is None else self._leases.silence

    async def _until_reached(self, ask: Callable[[], Awaitable[None]]) -> bool:
        """Repeat a call to the store until it answers. Returns False if the scheduler is stopped before."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while not self._is_stopping.is_set():
            try:
                await ask()
            except StoreUnavailable as error:
                if not backoff.failures:
                    _log.warning("waiting for the store: %s", error)
                await pause(self._is_stopping, backoff.next())
            else:
                return True
        return False

    async def _end(self, leases: PartitionLeases) -> None:
        """Stop acquiring partitions, end the work for the held ones, and release them."""
        leases.stop()
        for held in self._held.values():
            if self._drains:
                held.drain()
            else:
                held.stop()
        # Each ends by itself; a second `stop` hurries those that drain.
        await self._work.aclose(grace=_DAYS)
        await leases.aclose()

    def _begin(self, held: HeldPartition, wakeups: Wakeups) -> None:
        self._held[held.lease.partition] = held
        dispatcher = held.dispatcher
        wakeups.hold(
            held.lease,
            held.state,
            held.timers,
            find_hold=dispatcher.hold_for,
            launch=dispatcher.launch,
            end_hold=dispatcher.end_hold,
        )
        self._work.start(self._work_for(held))

    def _on_give(self, lease: HeldLease) -> None:
        if (held := self._held.get(lease.partition)) is not None and held.lease is lease:
            held.stop()

    def _on_lose(self, lease: HeldLease) -> None:
        if (held := self._held.get(lease.partition)) is not None and held.lease is lease:
            self._forget(held)
            held.lose()

    async def _work_for(self, held: HeldPartition) -> None:
        assert self._leases is not None
        try:
            try:
                await held.run()
            finally:
                if self._held.get(held.lease.partition) is held:
                    self._forget(held)
        except Exception:
            # Wait before any scheduler acquires it again.
            await pause(self._is_stopping, _PAUSE)
            raise
        finally:
            await self._leases.release(held.lease)

    def _forget(self, held: HeldPartition) -> None:
        del self._held[held.lease.partition]
        if self._wakeups is not None:
            self._wakeups.release(held.lease.partition, held.state)

    def _on_worker(self, event: WorkerEvent) -> None:
        if self._nodes is not None:
            self._nodes.receive(event)
        if self._versions is not None and event.event != "offline":
            self._versions.receive(event.status)

    def _on_refuse(self, error: StoreWentBack) -> None:
        """Stop at once, and leave jobs in flight to other schedulers and people."""
        _log.critical("stopping: %s", error)
        self._refusal = error
        self._drains = False
        self.stop()

    def _on_free(self) -> None:
        if self._leases is not None:
            self._leases.poll()


def _ignore(_: bytes) -> None:
    """Ignore reports of tasks, for stores that keep no list of tasks."""
