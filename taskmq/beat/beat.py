"""Beat: one replica that emits an app's schedules."""

import asyncio
import heapq
import logging
import os
import socket
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.beat.claimed_emissions import RETRY_PAUSE_MS, ClaimedEmissions
from taskmq.beat.complaints import Complaints
from taskmq.beat.emitter import Emission, Emitter
from taskmq.beat.record_cache import RecordCache, RecordStep
from taskmq.beat.schedule_index import ScheduleIndex
from taskmq.beat.server_clock import ServerClock
from taskmq.contracts.stores import State, Timekeeper, state_required
from taskmq.durable.service import unless_set
from taskmq.errors import SendError, StateUnavailable, UnsupportedFeature
from taskmq.model.telemetry.metrics import BeatSnapshot
from taskmq.model.units import LAST_INSTANT
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.definition import check_without_store
from taskmq.schedules.record import ScheduleRecord
from taskmq.schedules.status import OccurrenceCounts
from taskmq.schedules.turn import LEASE_MS, Replica, Turn, take_turn
from taskmq.version import VERSION

_log = logging.getLogger("taskmq.beat")

_ROUND: Final = 250
_ROUNDS: Final = 8
_FAILED_PAUSE_MS: Final = 10_000
# Subjects of complaints.
_STATE: Final = "state"
_CLAIMS: Final = "claims"
_LOOK_MS: Final = 1_000
_FAR: Final = LAST_INSTANT
# Seconds without an answer of the state, which is asked once a second, after which a beat is not ready.
_SILENT: Final = 15.0


class BeatStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A beat at one moment. Travels as JSON; fields may be added.

    Attributes:
        started: ms since the epoch.
        next: time of the next due occurrence, ms since the epoch; None: there is none.
        state_silence: seconds since the state last answered; None: it never has.
        emitted: number of occurrences that the broker confirmed since the start.
        failed: number of occurrences that can never be published.
    """

    version: str
    pid: int
    app: str
    started: int
    schedules: int
    reactions: int
    next: int | None
    state_silence: float | None
    emitted: int
    failed: int


def _schedule(name: str) -> str:
    """Return the subject of complaints about a schedule."""
    return f"schedule {name}"


def _has_reactions(app: TaskMQ) -> bool:
    """Return whether reactions of the app wait for events that only a beat sees."""
    return any(each.needs_beat for each in app.reactions.values())


class Beat:
    """Emits an app's schedules until it is stopped.

    For an app with a job store it only watches for events of reactions: schedulers fire its schedules.

    Raises:
        UnsupportedFeature: the app has no state for claims; or a job store, and no reactions; or it has no job store,
            and a reaction calls a task with `lane="store"`.
        InvalidOption: it has no job store, and a schedule of its code calls such a task.
    """

    def __init__(self, app: TaskMQ) -> None:
        if app.sessions.state_url is None:
            raise state_required("beat needs")
        self._fires = app.sessions.store_url is None
        if not self._fires and not _has_reactions(app):
            raise UnsupportedFeature(
                f"beat is not for app {app.name!r}: it has a job store, so `taskmq scheduler` fires its schedules, "
                "and both would fire each of them. Stop all beats, run `taskmq store import` once, start schedulers"
            )
        if self._fires:
            for entry in app.schedules.values():
                check_without_store(entry)
            app.reactions.check_lanes(at_beat=True)
        self._app = app
        self._replica = Replica(app.name, f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}")
        self._is_stopping = asyncio.Event()
        self._is_nudged = asyncio.Event()
        self._has_changed = asyncio.Event()
        self._due: list[tuple[int, str]] = []
        self._wakes: dict[str, int] = {}
        self._watched: set[str] = set()
        self._rounds: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_ROUNDS)
        self._counts = OccurrenceCounts()
        self._started = app.sessions.clock.now_ms()
        # Time of the state's last answer, by the monotonic clock.
        self._answered: float | None = None
        self._has_begun = False
        self._trouble: str | None = None
        self._complaints = Complaints()

    def stop(self) -> None:
        """Make `run` return once current emissions are confirmed."""
        self._is_stopping.set()
        self._is_nudged.set()

    @property
    def state_silence(self) -> float | None:
        """Seconds since the state last answered; None: it never has."""
        return None if self._answered is None else self._app.sessions.clock.monotonic() - self._answered

    def not_ready(self) -> str | None:
        """Return why nothing is emitted; None if emission works."""
        if self._is_stopping.is_set():
            return "stopping"
        silence = self.state_silence
        if not self._has_begun or silence is None:
            return "the state has not answered yet"
        if silence > _SILENT:
            return f"the state has not answered for {silence:.0f} s"
        return self._trouble or self._emissions.trouble

    def status(self) -> BeatStatus:
        """Return all that the beat knows about itself, for `/status`."""
        emitted, failed = self._counts.totals()
        return BeatStatus(
            version=VERSION,
            pid=os.getpid(),
            app=self._app.name,
            started=self._started,
            schedules=self._count_schedules(),
            reactions=len(self._app.reactions),
            next=min(self._wakes.values(), default=None),
            state_silence=self.state_silence,
            emitted=emitted,
            failed=failed,
        )

    def snapshot(self) -> BeatSnapshot:
        """Return the metrics for monitoring."""
        return BeatSnapshot(VERSION, self._counts.by_task(), self._count_schedules(), self.state_silence)

    def _count_schedules(self) -> int:
        return len(self._catalogue.entries) if self._has_begun else 0

    async def run(self) -> None:
        """Emit due occurrences until `stop`."""
        state = self._app.sessions.current().state
        assert state is not None
        self._clock = ServerClock(self._app.sessions.clock, state if isinstance(state, Timekeeper) else None)
        self._records = RecordCache(state.schedules, app=self._app.name)
        self._catalogue = ScheduleIndex(self._app, state.schedules, fires=self._fires)
        self._emissions = ClaimedEmissions(
            Emitter(self._app),
            self._records,
            self._clock,
            self._counts,
            self._complaints,
            is_stopping=self._is_stopping,
            pause=self._pause,
        )
        looking = asyncio.ensure_future(self._keep_looking())
        # A beat that does not see changes is useless: it ends with the error.
        looking.add_done_callback(lambda _: self.stop())
        stop_listening = state.schedules.listen(self._app.name, self._has_changed.set)
        reacting: asyncio.Future[None] | None = None
        try:
            await unless_set(self._is_stopping, self._first_look())
            reacting = self._start_reacting(state)
            while not self._is_stopping.is_set():
                await unless_set(self._is_nudged, self._clock.sleep_until(self._due[0][0] if self._due else _FAR))
                self._is_nudged.clear()
                await self._start_rounds()
        finally:
            self._is_stopping.set()
            stop_listening()
            looking.cancel()
            await asyncio.wait({looking})
            if reacting is not None:
                reacting.cancel()
                await asyncio.wait({reacting})
            await self._finish()
            await self._app.aclose()
        for each in (looking, reacting):
            if each is not None and not each.cancelled():
                each.result()

    def _start_reacting(self, state: State) -> "asyncio.Future[None] | None":
        """Watch for events of the app's reactions, if they need a beat."""
        if self._is_stopping.is_set() or not _has_reactions(self._app):
            return None
        from taskmq.beat.reactor import Reactor

        reactor = Reactor(self._app, state, clock=self._clock, owner=self._replica.owner)
        reacting = asyncio.ensure_future(reactor.run())
        reacting.add_done_callback(lambda _: self.stop())
        return reacting

    async def _first_look(self) -> None:
        while not self._is_stopping.is_set():
            try:
                await self._clock.measure()
                await self._catalogue.look()
                await self._records.load(list(self._catalogue.entries))
            except StateUnavailable as error:
                if self._complaints.is_news(_STATE, error):
                    _log.warning("state unavailable, starting later: %s", error)
                await self._pause()
                continue
            self._has_answered()
            self._has_begun = True
            # Immediately, so that a schedule which no beat has seen before starts here.
            self._wake(self._catalogue.entries, self._clock.now_ms())
            return

    async def _keep_looking(self) -> None:
        """Check for changes once a second, and whenever one is announced."""
        while True:
            clock = self._app.sessions.clock
            await unless_set(self._has_changed, clock.sleep_until(clock.now_ms() + _LOOK_MS))
            self._has_changed.clear()
            try:
                await self._look()
            except StateUnavailable as error:
                if self._complaints.is_news(_STATE, error):
                    _log.warning("checking for changed schedules failed, will retry: %s", error)

    async def _look(self) -> None:
        await self._clock.measure()
        changed = await self._catalogue.look()
        names = [name for name in {*changed, *self._watched} if name in self._catalogue.entries]
        await self._records.load(names)
        self._has_answered()
        for gone in set(changed) - set(names):
            self._records.forget(gone)
            self._wakes.pop(gone, None)
            self._watched.discard(gone)
            self._complaints.forget(_schedule(gone))
        self._wake(names, self._clock.now_ms())
        # The clock may differ from when the loop went to sleep.
        self._is_nudged.set()

    def _has_answered(self) -> None:
        self._answered = self._app.sessions.clock.monotonic()
        self._complaints.forget(_STATE)

    def _wake(self, names: Iterable[str], instant: int) -> None:
        first = self._due[0][0] if self._due else instant + 1
        for name in names:
            if self._wakes.get(name, instant + 1) > instant:
                self._wakes[name] = instant
                heapq.heappush(self._due, (instant, name))
        if instant < first:
            self._is_nudged.set()

    async def _start_rounds(self) -> None:
        """Start one round for every group of due schedules."""
        now = self._clock.now_ms()
        names: list[str] = []
        while self._due and self._due[0][0] <= now and len(names) < _ROUND:
            instant, name = heapq.heappop(self._due)
            if self._wakes.get(name) == instant:
                del self._wakes[name]
                names.append(name)
        entries = [entry for name in names if (entry := self._catalogue.entries.get(name)) is not None]
        if not entries:
            return
        await self._places.acquire()
        if self._is_stopping.is_set():
            self._places.release()
            return
        task = asyncio.create_task(self._round(entries), name="a round of schedules")
        self._rounds.add(task)
        task.add_done_callback(partial(self._round_ended, entries))

    def _round_ended(self, entries: Sequence[ScheduleEntry], task: "asyncio.Task[None]") -> None:
        self._rounds.discard(task)
        self._places.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("publishing some occurrences failed, will retry", exc_info=error)
            self._wake([entry.name for entry in entries], self._clock.now_ms() + _FAILED_PAUSE_MS)

    async def _finish(self) -> None:
        if self._rounds:
            _, late = await asyncio.wait(self._rounds, timeout=LEASE_MS / 1000)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _round(self, entries: Sequence[ScheduleEntry]) -> None:
        """Claim the due occurrences of some schedules, publish them, and record the confirms."""
        turns: dict[str, Turn] = {}

        def take(entry: ScheduleEntry, record: ScheduleRecord) -> None:
            turns[entry.name] = take_turn(record, entry, now=self._clock.now_ms(), replica=self._replica)
            self._complaints.forget(_schedule(entry.name))

        def on_failure(entry: ScheduleEntry, error: BaseException) -> None:
            if self._complaints.is_news(_schedule(entry.name), error):
                _log.error("schedule %s: emission failed, will retry", entry.name, exc_info=error)
            turns[entry.name] = Turn(wake=self._clock.now_ms() + _FAILED_PAUSE_MS)

        steps = [RecordStep(entry.name, partial(take, entry), partial(on_failure, entry)) for entry in entries]
        try:
            await self._records.change(steps)
        except StateUnavailable as error:
            # Claims that succeeded all the same are published by the beat that sees the end of their leases.
            self._trouble = f"claiming schedules failed: {error}"
            if self._complaints.is_news(_CLAIMS, error):
                _log.warning("claiming schedules failed, will retry: %s", error)
            self._wake([entry.name for entry in entries], self._clock.now_ms() + RETRY_PAUSE_MS)
            return
        self._trouble = None
        self._complaints.forget(_CLAIMS)
        emissions: list[Emission] = []
        for entry in entries:
            turn = turns[entry.name]
            (self._watched.add if turn.is_watched else self._watched.discard)(entry.name)
            if turn.wake is not None:
                self._wake([entry.name], turn.wake)
            emissions += [Emission(entry, claim) for claim in turn.claims]
        await self._cancel([job_id for turn in turns.values() for job_id in turn.cancel])
        await self._emissions.emit(emissions)

    async def _cancel(self, jobs: Sequence[str]) -> None:
        for job_id in jobs:
            try:
                await self._app.jobs.cancel_job(
                    job_id, reason="a newer occurrence of its schedule is due", remember="1h"
                )
            except (SendError, StateUnavailable) as error:
                _log.warning("job %s: cancelling failed, it runs to its end: %s", job_id, error)

    async def _pause(self) -> None:
        await unless_set(self._is_stopping, self._clock.sleep_until(self._clock.now_ms() + RETRY_PAUSE_MS))
