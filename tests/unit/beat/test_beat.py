"""Replicas of beat on a clock that the test advances."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Context, TaskMQ
from taskmq.beat import Beat
from taskmq.contracts.stores import KeptRecord, RecordChange
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.middleware.chain import Middleware, Sending
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.model.keys import scheduled_job_id
from taskmq.reactions import FileArrived, file
from taskmq.run.facts import SCHEDULE_DUE, SCHEDULE_NAME, SCHEDULED_FOR, due_instant
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.triggers import Every, every, jitter_of
from taskmq.testing import FakeClock
from taskmq.worker import Worker, WorkerConfig
from tests.coroutines import run_by
from tests.unit.beat.stage import START, Stage, play, running
from tests.unit.worker.staged import Fault, Points, open_staged, settle_loop
from tests.virtual_time import run


def _define(app: TaskMQ, period: str = "10s") -> None:
    @app.every(period, name="tick")
    @app.task(name="tick", queue="work")
    async def tick() -> None: ...


def _play(test: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    play(test, _define)


@run_by(_play)
async def test_three_replicas_emit_each_occurrence_once(stage: Stage, /) -> None:
    for _ in range(3):
        await stage.start()

    for _ in range(60):
        await stage.advance(10)

    assert await stage.emitted_instants() == list(range(10, 601, 10))
    ids = [delivery.message_id for delivery in await stage.app.messages("work")]
    assert len(set(ids)) == 60
    assert ids[0] == scheduled_job_id(stage.app.name, "tick", START + 10_000)


@given(steps=st.lists(st.floats(0.001, 100), min_size=1, max_size=30), replicas=st.integers(1, 3))
def test_each_due_occurrence_is_emitted_once_however_time_passes(steps: list[float], replicas: int) -> None:
    async def test(stage: Stage) -> None:
        for _ in range(replicas):
            await stage.start()

        for step in steps:
            await stage.advance(step)
            now = (stage.clock.now_ms() - START) // 1000
            emitted = await stage.emitted_instants()
            if now >= 10:
                assert emitted[-1] == now // 10 * 10
            assert emitted == sorted(set(emitted))

    _play(test)


@run_by(_play)
async def test_no_occurrence_is_emitted_before_its_instant(stage: Stage, /) -> None:
    await stage.start()
    await stage.advance(9.999)
    assert await stage.emitted_instants() == []

    await stage.advance(0.001)

    assert await stage.emitted_instants() == [10]


@run_by(_play)
async def test_a_beat_that_slept_emits_late_occurrences_and_counts_missed_ones(stage: Stage, /) -> None:
    await stage.start()
    await stage.advance(37)
    assert await stage.emitted_instants() == [10, 20, 30]

    # Until 110 it is at most 30 seconds old.
    await stage.advance(103)

    assert await stage.emitted_instants() == [10, 20, 30, 110, 120, 130, 140]
    status = await stage.apps[-1].schedules.astatus("tick")
    assert (status.fired, status.missed, status.late) == (7, 7, 6)


@run_by(_play)
async def test_a_beat_reports_what_it_emitted_and_how_late_and_whether_the_state_answers(stage: Stage, /) -> None:
    points = Points()
    beat = await stage.start(points=points)
    assert beat.not_ready() is None
    await stage.advance(10)
    await stage.advance(14)

    assert (beat.status().schedules, beat.status().emitted, beat.status().next) == (1, 2, START + 30_000)
    (count,) = beat.snapshot().counts
    assert (count.task, count.emitted, count.failed) == ("tick", {"due": 2}, 0)
    # The second was due four seconds before any replica could see it.
    assert (sum(count.late.counts), count.late.total) == (2, 4.0)

    points.rest = Fault.REFUSED
    await stage.advance(6)
    assert str(beat.not_ready()).startswith("claiming schedules failed: no state")
    points.rest = Fault.NONE
    await stage.advance(1)
    assert beat.not_ready() is None

    stage.clock.advance(20)
    assert beat.not_ready() == "the state has not answered for 20 s"
    beat.stop()
    assert beat.not_ready() == "stopping"


@run_by(_play)
async def test_an_occurrence_knows_when_it_was_due(stage: Stage, /) -> None:
    def define(app: TaskMQ) -> None:
        @app.every("1h", name="tick", jitter="30m")
        @app.task(name="tick", queue="work")
        async def tick() -> None: ...

    await stage.start(define=define)
    for _ in range(280):
        await stage.advance(20)

    first, *_ = [decode_envelope(one.body) for one in await stage.app.messages("work")]
    assert first.meta is not None
    due = int(first.meta[SCHEDULED_FOR]) + jitter_of("tick", 1_800_000)
    assert due > int(first.meta[SCHEDULED_FOR])
    assert due_instant(first) == due
    assert first.enqueued is not None
    assert first.enqueued >= due


@pytest.mark.parametrize(
    ("envelope", "due"),
    [
        (Envelope(task="t"), None),
        (Envelope(task="t", enqueued=7), 7),
        (Envelope(task="t", enqueued=7, eta=9, meta={SCHEDULED_FOR: "5"}), 9),
        (Envelope(task="t", enqueued=7, meta={SCHEDULED_FOR: "5"}), 5),
        (Envelope(task="t", enqueued=7, meta={SCHEDULED_FOR: "5", SCHEDULE_DUE: "6"}), 6),
        (Envelope(task="t", enqueued=7, meta={SCHEDULED_FOR: "soon"}), 7),
        (Envelope(task="t", enqueued=7, root="flow", meta={SCHEDULED_FOR: "5"}), 7),
    ],
)
def test_a_job_is_due_when_its_sender_or_its_schedule_set_it(envelope: Envelope, due: int | None) -> None:
    assert due_instant(envelope) == due


@run_by(_play)
async def test_occurrences_missed_while_no_beat_ran_are_emitted_once(stage: Stage, /) -> None:
    def define(app: TaskMQ) -> None:
        _define(app, "1h")

    await stage.advance((3_600_000 - START % 3_600_000) / 1000 + 1)
    first = await stage.start(define=define)
    first.stop()
    await stage.advance(2.5 * 3600)

    await stage.start(define=define)

    hour = 3600 - START // 1000 % 3600
    assert await stage.emitted_instants() == []
    # Queued behind the occurrences that are due now.
    assert await stage.emitted_instants("work.p.low") == [hour + 2 * 3600]
    status = await stage.apps[-1].schedules.astatus("tick")
    assert [occurrence.kind for occurrence in status.history] == ["catchup"]
    assert status.missed == 1


@run_by(_play)
async def test_occurrences_due_before_the_start_are_not_emitted(stage: Stage, /) -> None:
    await stage.advance(25)
    await stage.start()
    assert await stage.emitted_instants() == []

    await stage.advance(5)

    assert await stage.emitted_instants() == [30]


@run_by(_play)
async def test_a_replica_that_wakes_late_does_not_emit_again(stage: Stage, /) -> None:
    def daily(app: TaskMQ) -> None:
        _define(app, "1d")

    late = FakeClock(START)
    await stage.start(define=daily)
    await stage.start(define=daily, clock=late)
    day = (86_400_000 - START % 86_400_000) / 1000

    await stage.advance(day)
    await stage.advance(5 * 3600)
    # The state was idle for hours; it deletes expired data here.
    await stage.advance(day + 5 * 3600, late)
    await stage.advance(11, late)

    assert len(await stage.emitted_instants()) == 1


@run_by(_play)
async def test_another_replica_completes_a_claim_whose_owner_died_before_publishing(stage: Stage, /) -> None:
    # It reads, begins, claims, and stops.
    await stage.start(points=Points([Fault.NONE] * 3, rest=Fault.HANGS))
    await stage.start()
    await stage.start()

    await stage.advance(10)
    assert await stage.emitted_instants() == []
    await stage.advance(9.9)
    assert await stage.emitted_instants() == []
    await stage.advance(0.1)

    assert (await stage.emitted_instants())[:1] == [10]
    assert sorted(await stage.emitted_instants()) == [10, 20]
    ids = [delivery.message_id for delivery in await stage.app.messages("work")]
    assert scheduled_job_id(stage.app.name, "tick", START + 10_000) in ids


@run_by(_play)
async def test_a_late_job_still_knows_its_schedule_and_its_nominal_instant(stage: Stage, /) -> None:
    seen: list[Context] = []
    await stage.start()
    await stage.advance(10)
    await stage.advance(500)
    app = stage.app.twin()

    @app.task(name="tick", queue="work")
    async def tick(context: Context) -> None:
        seen.append(context)

    await Worker(app, WorkerConfig(burst=True)).run()

    assert seen[0].schedule == "tick"
    assert seen[0].scheduled_for == datetime.fromtimestamp(START / 1000 + 10, UTC)
    assert seen[0].meta[SCHEDULE_NAME] == "tick"


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.UNKNOWN])
@run_by(_play)
async def test_a_failed_send_is_retried_within_the_lease(stage: Stage, /, fault: Fault) -> None:
    # It reads, begins, claims, connects, declares, and then publishes.
    await stage.start(points=Points([Fault.NONE] * 5 + [fault] * 4))
    await stage.advance(10)
    for _ in range(4):
        await stage.advance(0.5)

    assert set(await stage.emitted_instants()) == {10}
    names = stage.apps[0].points.names
    assert names == ["read", "swap", "swap", "connect", "declare", *["publish"] * 5, "swap"]


@run_by(_play)
async def test_a_short_outage_of_the_state_loses_no_occurrence(stage: Stage, /) -> None:
    away = [Fault.NONE] * 2 + [Fault.REFUSED] * 3
    await stage.start(points=Points(away))
    await stage.start(points=Points(away))
    await stage.advance(10)
    for _ in range(4):
        await stage.advance(0.5)

    assert await stage.emitted_instants() == [10]


@run_by(_play)
async def test_a_sent_occurrence_is_marked_even_if_the_state_answers_late(stage: Stage, /) -> None:
    # It reads, begins, claims, connects, declares, publishes, and then says so.
    await stage.start(points=Points([Fault.NONE] * 6 + [Fault.REFUSED] * 2))
    await stage.start()
    await stage.advance(10)
    for _ in range(60):
        await stage.advance(0.5)

    assert sorted(await stage.emitted_instants()) == [10, 20, 30, 40]


@run_by(_play)
async def test_a_claim_without_an_answer_is_repeated_after_the_lease(stage: Stage, /) -> None:
    await stage.start(points=Points([Fault.NONE, Fault.NONE, Fault.UNKNOWN]))
    await stage.advance(10)
    await stage.advance(0.5)
    assert await stage.emitted_instants() == []

    await stage.advance(10)

    assert set(await stage.emitted_instants()) == {10, 20}


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (Points([Fault.NONE] * 2, rest=Fault.REFUSED), "claiming schedules failed"),
        (Points([Fault.NONE] * 3, rest=Fault.REFUSED), "publishing 1 occurrences failed, will retry"),
        (Points([Fault.NONE] * 3, rest=Fault.REFUSED), "leaving 1 occurrences to other replicas"),
        (
            Points([Fault.NONE] * 6, rest=Fault.REFUSED),
            "recording the results of 1 occurrences failed, so they may be published again",
        ),
    ],
    ids=["claim", "send", "lease", "complete"],
)
def test_failures_are_logged_once_until_they_change(
    points: Points, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(points=points)
        await stage.advance(10)
        for _ in range(25):
            await stage.advance(0.5)

    _play(test)
    complaints = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum(words in complaint for complaint in complaints) == 1, complaints


@run_by(_play)
async def test_another_replica_sends_an_occurrence_that_one_could_not_send(stage: Stage, /) -> None:
    await stage.start(points=Points([Fault.NONE] * 3, rest=Fault.REFUSED))
    await stage.start()
    await stage.advance(10)
    for _ in range(19):
        await stage.advance(0.5)
    assert await stage.emitted_instants() == []

    await stage.advance(0.5)

    assert 10 in await stage.emitted_instants()


class _Unreadable(Exception):
    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class _Broken(Middleware):
    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def send(self, sending: Sending) -> None:
        raise self._error


BUGS = pytest.mark.parametrize("bug", [LookupError, SystemExit, asyncio.CancelledError, _Unreadable])


@BUGS
def test_a_bug_in_the_code_of_the_app_is_logged_and_does_not_stop_the_beat(
    bug: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with open_staged(middleware=[_Broken(bug)]) as app:
            _define(app)
            async with running(Beat(app)):
                await settle_loop()
                for _ in range(2):
                    app.fake_clock.advance(10)
                    await settle_loop()

    run(main())
    complaints = [record for record in caplog.records if record.levelno == logging.ERROR]
    # The first one again, since no replica sent it within its lease.
    assert [record.getMessage() for record in complaints] == [
        f"schedule tick: giving up the occurrence of {START + after}" for after in (10_000, 10_000, 20_000)
    ]
    assert all(record.exc_info and isinstance(record.exc_info[1], bug) for record in complaints)


class _Tide:
    """A custom rule with a bug."""

    def __init__(self, bug: type[BaseException]) -> None:
        self.bug = bug

    def next_after(self, instant: int, /) -> int | None:
        raise self.bug

    def describe(self) -> str:
        return "at high tide"


@BUGS
def test_a_failing_rule_does_not_delay_other_schedules(
    bug: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(stage: Stage) -> None:
        def define(app: TaskMQ) -> None:
            _define(app)
            app.schedules.define(ScheduleEntry("tide", app.tasks["tick"], _Tide(bug)))

        await stage.start(define=define)
        for _ in range(3):
            await stage.advance(10)

        assert await stage.emitted_instants() == [10, 20, 30]

    _play(test)
    complaints = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert {record.getMessage() for record in complaints} == {"schedule tide: emission failed, will retry"}
    assert len(complaints) == 1


def test_a_failing_rule_is_logged_again_once_its_error_changes(caplog: pytest.LogCaptureFixture) -> None:
    tide = _Tide(LookupError)

    async def test(stage: Stage) -> None:
        def define(app: TaskMQ) -> None:
            _define(app)
            app.schedules.define(ScheduleEntry("tide", app.tasks["tick"], tide))

        await stage.start(define=define)
        for bug in (LookupError, ValueError, ValueError, LookupError):
            tide.bug = bug
            await stage.advance(20)

    _play(test)
    complaints = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info[0] for record in complaints if record.exc_info] == [LookupError, ValueError, LookupError]


def test_an_unreadable_record_does_not_delay_other_schedules(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Stage) -> None:
        def define(app: TaskMQ) -> None:
            _define(app)
            app.schedules.define(ScheduleEntry("torn", app.tasks["tick"], Every(7_000)))

        state = stage.twin().sessions.current().state
        assert state is not None
        torn = RecordChange("staged/torn", "", KeptRecord("0123456789abcdef", b"no record"))
        await state.schedules.swap([torn], ttl=3600)
        await stage.start(define=define)
        for _ in range(3):
            await stage.advance(10)

        assert await stage.emitted_instants() == [10, 20, 30]

    _play(test)
    assert "the record of schedule 'torn' cannot be read" in caplog.text


@run_by(_play)
async def test_all_schedules_of_one_instant_are_emitted(stage: Stage, /) -> None:
    def define(app: TaskMQ) -> None:
        async def tick() -> None: ...

        for period in (10, 20, 30):
            app.every(period)(app.task(name=f"every-{period}", queue="work")(tick))

    await stage.start(define=define)
    for _ in range(6):
        await stage.advance(10)

    phase = START // 1000
    expected = [s for period in (10, 20, 30) for s in range(1, 61) if (phase + s) % period == 0]
    assert sorted(await stage.emitted_instants()) == sorted(expected)


@run_by(_play)
async def test_a_beat_without_schedules_waits_until_it_is_stopped(stage: Stage, /) -> None:
    beat = await stage.start(define=lambda _: None)
    await stage.advance(100)

    assert await stage.emitted_instants() == []
    beat.stop()


@run_by(_play)
async def test_a_sleeping_beat_stops_at_once(stage: Stage, /) -> None:
    beat = await stage.start()
    before = asyncio.get_running_loop().time()

    beat.stop()
    await settle_loop()

    assert asyncio.get_running_loop().time() - before < 0.1
    assert stage.clock.sleepers == 0


@run_by(_play)
async def test_a_beat_that_waits_for_the_lease_of_another_one_stops_at_once(stage: Stage, /) -> None:
    await stage.start()
    watching = await stage.start()
    await stage.advance(10)

    watching.stop()
    await settle_loop()

    assert await stage.emitted_instants() == [10]
    # The other one sleeps until its schedule is due and until its next poll for changes.
    assert stage.clock.sleepers == 2


async def test_a_stopping_beat_waits_for_pending_confirms() -> None:
    with open_staged() as app:
        _define(app)
        beat = Beat(app)
        running = asyncio.create_task(beat.run())
        await settle_loop()
        app.flaky.hang_publishes()
        app.fake_clock.advance(10)
        await settle_loop()
        assert app.flaky.hanging == 1

        beat.stop()
        await settle_loop()
        assert not running.done()
        app.flaky.release_publishes()
        await running

        assert app.story() == ["confirmed work"]
        assert app.points.names[-1] == "swap"


async def test_a_stopping_beat_does_not_wait_forever_for_a_missing_answer() -> None:
    with open_staged() as app:
        _define(app)
        app.points.rest = Fault.HANGS
        beat = Beat(app)
        running = asyncio.create_task(beat.run())
        await settle_loop()
        app.fake_clock.advance(10)
        await settle_loop()

        beat.stop()
        async with asyncio.timeout(11):
            await running

        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_beat_leaves_no_task_running() -> None:
    with open_staged() as app:
        _define(app)
        beat = Beat(app)
        running = asyncio.create_task(beat.run())
        await settle_loop()
        app.fake_clock.advance(10)
        await asyncio.sleep(0)

        running.cancel()
        await asyncio.wait((running,))

        assert running.cancelled()
        await settle_loop()
        assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_beat_without_a_state_is_refused() -> None:
    with open_staged(with_state=False) as app, pytest.raises(UnsupportedFeature, match="beat needs a state"):
        Beat(app)


def test_beat_refuses_an_app_with_a_job_store_and_says_what_to_do() -> None:
    app = TaskMQ("memory://refused", store="sqlite:///jobs.db", name="shop")

    with pytest.raises(UnsupportedFeature, match=r"'shop'.*`taskmq scheduler` fires.*`taskmq store import`"):
        Beat(app)


def test_a_beat_beside_a_job_store_watches_conditions_and_fires_no_schedule() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="load", queue="work")
        async def load(arrived: FileArrived) -> None: ...

        @app.task(name="tick", queue="work")
        async def tick() -> None: ...

        app.every("1s")(tick)
        app.on(file("/nowhere/*.csv"))(load)
        stored = replace(app.sessions.settings, store="sqlite:///jobs.db")
        app.sessions.exchange(stored, app.sessions.clock, {})

    async def test(stage: Stage) -> None:
        beat = await stage.start()
        await stage.advance(5)

        assert beat.not_ready() is None
        assert (beat.status().schedules, beat.status().reactions, beat.status().emitted) == (0, 1, 0)
        assert await stage.emitted_instants() == []

    play(test, define)


def test_a_beat_without_a_store_refuses_calls_that_need_one() -> None:
    with open_staged() as app:

        @app.every("1s", name="tick")
        @app.task(name="tick", lane="store")
        async def tick() -> None: ...

        with pytest.raises(InvalidOption, match=r"schedule 'tick': task tick has lane='store'"):
            Beat(app)
    with open_staged() as app:

        @app.on(file("/srv/in/*.csv"))
        @app.task(name="load", lane="store")
        async def load(arrived: FileArrived) -> None: ...

        with pytest.raises(UnsupportedFeature, match="the app has no store: load"):
            Beat(app)


@pytest.mark.parametrize("options", [{"lane": "store"}, {"unique": True}])
def test_a_stored_schedule_is_not_emitted_once_its_task_needs_a_store(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    def define(app: TaskMQ, **options: Any) -> None:
        @app.task(name="load", queue="work", **options)
        async def load() -> None: ...

    async def test(stage: Stage) -> None:
        kept = stage.twin()
        await kept.schedules.aadd("kept", kept.tasks["load"], every("10s"))
        await stage.start(define=partial(define, **options))
        await stage.advance(60)

        assert await stage.emitted_instants() == []

    play(test, define)
    assert "schedule kept: this beat cannot emit it: schedule 'kept': task load has" in caplog.text
