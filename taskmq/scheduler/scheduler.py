"""One scheduler among any number of them."""

import asyncio
import logging
import os
import socket
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.history import HistoryStore, Remembering
from taskmq.contracts.jobs import Catalogued, JobStore
from taskmq.durable.service import Service, ServiceGroup, pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreUnavailable, StoreWentBack
from taskmq.model.backoff import Backoff
from taskmq.model.telemetry.metrics import SchedulerSnapshot
from taskmq.operations.bulks import BulkRunner
from taskmq.operations.retention import KeepRule
from taskmq.scheduler.alerts import AlertSettings, AlertWatch, NoticeSender
from taskmq.scheduler.catalogue import TaskRegistrar
from taskmq.scheduler.dependents import DependentReleases
from taskmq.scheduler.duties import AuditSeal, Duties
from taskmq.scheduler.firing.due_loop import FiringPace, StoreClock
from taskmq.scheduler.held_partition import HeldPartition
from taskmq.scheduler.history import RunHistory
from taskmq.scheduler.nodes import NodeRegistrar
from taskmq.scheduler.partitions import HeldLease, PartitionLeases
from taskmq.scheduler.pauses import PausedQueues
from taskmq.scheduler.proofs import InvitationProofs
from taskmq.scheduler.signals import LiveWorkers, Signals
from taskmq.scheduler.status import SchedulerCounts, SchedulerStatus
from taskmq.scheduler.wakeups import Wakeups
from taskmq.schedules.store_records import StoredRecords
from taskmq.version import VERSION

__all__ = ["Scheduler"]

_log = logging.getLogger("taskmq.scheduler")

_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
# Seconds without an answer of the store, which is asked once a second, after which a scheduler is not ready.
_SILENT: Final = 5.0
# Seconds between two firings of timers.
_FIRING: Final = 0.005
_DAYS: Final = 86_400.0


class Scheduler:
    """Dispatches the jobs of an app's store until it is stopped: a `Service`.

    Args:
        drains: `stop` waits until everything in flight was reported; a second `stop` does not.
        counts_runs: what workers report of their runs is counted, and failures of plain jobs are kept.
        alerts: how alerts reach people; None: rules are not looked at.
        archive: the folder into which jobs that have ended go, day by day, before the store forgets them.
        keep: for how long ended jobs are kept; else as long as the store does, 30 days.

    Raises:
        UnsupportedFeature: the app has no store, or one that cannot do what `keep` says; raised by `run`.
        InvalidOption: `keep` forgets jobs before `archive` has them; raised by `run`.
        StoreMismatch: the store's tables are of another version; raised by `run`.
        StoreWentBack: the store has forgotten what it had confirmed; raised by `run`, once its work has ended.
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
        self._workers = LiveWorkers()
        self._clock = StoreClock(lambda: app.sessions.store().now_ms())
        self._pace = FiringPace(_FIRING)
        self._held: dict[int, HeldPartition] = {}
        self._work = TaskSet("works for a partition", failure="a partition's work has failed, and is taken up anew")
        self._store: JobStore | None = None
        self._leases: PartitionLeases | None = None
        self._wakeups: Wakeups | None = None
        self._releases: DependentReleases | None = None
        self._proofs: InvitationProofs | None = None
        self._pauses: PausedQueues | None = None

    def __repr__(self) -> str:
        return f"<Scheduler {self._me} partitions={sorted(self._held)}>"

    def stop(self) -> None:
        """Have `run` return once what is under way has ended, or with `drains` everything in flight was reported."""
        if self._is_stopping.is_set() or not self._drains:
            for held in self._held.values():
                held.stop()
        self._is_stopping.set()

    async def run(self) -> None:
        """Dispatch until `stop`. A store or broker that is not there is waited for."""
        try:
            session = self._app.sessions.current()
            store = self._store = self._app.sessions.store()
            if not await self._until_reached(store.check):
                return
            records = StoredRecords(store, self._app.name, self._app.producer)
            if not await self._until_reached(lambda: records.upsert(self._app.schedules)):
                return
            proofs = self._proofs = InvitationProofs(store.dispatching)
            if not await self._until_reached(proofs.read):
                return
            tasks = TaskRegistrar(self._app, store.tasks, me=self._me) if isinstance(store, Catalogued) else None
            nodes = NodeRegistrar(store, me=self._me, knows_all=lambda: self._workers.knows_all)
            wakeups = self._wakeups = Wakeups(store.dispatching, session.broker)
            pauses = self._pauses = PausedQueues(
                session.broker,
                session.pauses,
                app=self._app.name if session.pauses is session.store else None,
                on_change=wakeups.wake_all,
            )
            await pauses.load()
            signals = Signals(
                session.broker,
                self._workers,
                wakeups,
                pauses,
                freed=self._freed,
                told=_nobody if tasks is None else tasks.hear,
                nodes=nodes.hear,
            )
            leases = self._leases = PartitionLeases(
                store.dispatching,
                address=store.address,
                me=self._me,
                taken=self._taken,
                given=self._given,
                lost=self._lost,
                freed=wakeups.announce_freed,
                refused=self._refused,
            )
            releases = self._releases = DependentReleases(store, wakeups)
            duties = Duties(store, me=self._me, archive=self._archive, keep=self._keep)
            self._has_begun = True
            async with ServiceGroup() as group:
                await group.start(signals, "listens for jobs and workers")
                await group.start(duties, "does the store's upkeep")
                await group.start(releases, "lets jobs go that waited for others")
                await group.start(AuditSeal(store, me=self._me), "seals the audit")
                await group.start(BulkRunner(self._app, me=self._me), "carries out what is done to many jobs")
                await group.start(proofs, "looks whether there is a new key of reports")
                await group.start(nodes, "writes down which nodes there are")
                if tasks is not None:
                    await group.start(tasks, "writes down which tasks there are")
                if isinstance(store, Remembering):
                    for service, name in self._observers(store, store.history):
                        await group.start(service, name)
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
        """What looks at how things go, and notifies people."""
        if self._counts_runs:
            broker = self._app.sessions.current().broker
            counting = RunHistory(broker, store, history.rollups, me=self._me)
            yield counting, "counts what workers report"
        if self._alerts is not None:
            watch = AlertWatch(self._app, store, history.alerts, self._workers, self._alerts, me=self._me)
            yield watch, "looks at rules of alerts"
            yield NoticeSender(history.alerts, self._alerts), "notifies people of alerts"

    def not_ready(self) -> str | None:
        """Why nothing is dispatched; None while it is, or others hold all partitions."""
        if self._is_stopping.is_set():
            return "stopping"
        silence = self._silence()
        if not self._has_begun or silence is None:
            return "the store has not answered yet"
        if silence > _SILENT:
            return f"the store has not answered for {silence:.0f} s"
        troubled = sorted(partition for partition, held in self._held.items() if held.state.is_troubled)
        if troubled:
            return f"the broker takes no jobs of partitions {', '.join(map(str, troubled))}"
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
        """The numbers, for monitoring."""
        return self._counts.snapshot(
            partitions=len(self._held), in_flight=self._in_flight(), store_silence=self._silence()
        )

    def _in_flight(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for held in self._held.values():
            found.update(held.state.ledger.queues())
        return dict(found)

    def _silence(self) -> float | None:
        return None if self._leases is None else self._leases.silence

    async def _until_reached(self, ask: Callable[[], Awaitable[None]]) -> bool:
        """Ask the store until it answers; False where the scheduler is to end before that."""
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
        """Take no more partitions, end the work of those that are held, and give them back."""
        leases.stop()
        for held in self._held.values():
            if self._drains:
                held.drain()
            else:
                held.stop()
        # Each ends by itself, after what it waits for; a second `stop` hurries those that drain.
        await self._work.aclose(grace=_DAYS)
        await leases.aclose()

    def _taken(self, lease: HeldLease) -> None:
        assert self._store is not None
        assert self._proofs is not None
        assert self._wakeups is not None
        assert self._releases is not None
        assert self._pauses is not None
        held = HeldPartition(
            self._app,
            self._store,
            lease,
            self._workers,
            clock=self._clock,
            pace=self._pace,
            proofs=self._proofs,
            paused=self._pauses,
            wakeups=self._wakeups,
            releases=self._releases,
            counts=self._counts,
        )
        self._held[lease.partition] = held
        self._wakeups.hold(lease.partition, held.state, held.timers)
        self._work.start(self._work_for(held))

    def _given(self, lease: HeldLease) -> None:
        if (held := self._held.get(lease.partition)) is not None and held.lease is lease:
            held.stop()

    def _lost(self, lease: HeldLease) -> None:
        if (held := self._held.get(lease.partition)) is not None and held.lease is lease:
            self._forget(held)
            held.lose()

    async def _work_for(self, held: HeldPartition) -> None:
        assert self._leases is not None
        try:
            await held.run()
        except Exception:
            # Not taken up again in the same moment, wherever that is.
            await pause(self._is_stopping, _PAUSE)
            raise
        finally:
            if self._held.get(held.lease.partition) is held:
                self._forget(held)
            await self._leases.release(held.lease)

    def _forget(self, held: HeldPartition) -> None:
        del self._held[held.lease.partition]
        if self._wakeups is not None:
            self._wakeups.release(held.lease.partition, held.state)

    def _refused(self, error: StoreWentBack) -> None:
        """End at once, and leave what is in flight as it is: other schedulers, and people, decide about it."""
        _log.critical("stopping: %s", error)
        self._refusal = error
        self._drains = False
        self.stop()

    def _freed(self) -> None:
        if self._leases is not None:
            self._leases.look()


def _nobody(_: bytes) -> None:
    """The store keeps no list of tasks."""
