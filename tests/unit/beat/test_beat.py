"""Replicas of beat on a clock that the test moves."""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Context, TaskMQ
from taskmq.beat import Beat
from taskmq.beat.beat import most_recent, occurrence_job_id
from taskmq.context import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.envelope import decode_envelope
from taskmq.errors import UnsupportedFeature
from taskmq.middleware import Middleware, Sending
from taskmq.testing import FakeClock
from taskmq.worker import Worker, WorkerConfig
from tests.unit.worker.staged import Fault, Points, StagedApp, settle_loop, staged
from tests.unit.worker.virtual_time import run

START = 1_700_000_000_000


def _define(app: TaskMQ, period: str = "10s") -> None:
    @app.every(period, name="tick")
    @app.task(name="tick", queue="work")
    async def tick() -> None: ...


@dataclass
class Stage:
    """Replicas of one app on one broker and state."""

    app: StagedApp
    stack: AsyncExitStack
    apps: list[StagedApp] = field(default_factory=list[StagedApp])
    beats: list[Beat] = field(default_factory=list[Beat])

    @property
    def clock(self) -> FakeClock:
        return self.app.fake_clock

    async def start(
        self,
        *,
        clock: FakeClock | None = None,
        points: Points | None = None,
        define: Callable[[TaskMQ], None] = _define,
    ) -> Beat:
        app = self.app.twin(clock)
        app.points = points or Points()
        define(app)
        beat = Beat(app)
        self.apps.append(app)
        self.beats.append(beat)
        await self.stack.enter_async_context(_running(beat))
        await settle_loop()
        return beat

    async def advance(self, seconds: float, *clocks: FakeClock) -> None:
        for clock in clocks or (self.clock,):
            clock.advance(seconds)
        await settle_loop()

    async def emitted(self) -> list[int]:
        """The nominal instants of what is in the queue, in seconds since the start, in its order."""
        found = []
        for delivery in await self.app.messages("work"):
            meta = decode_envelope(delivery.body).meta or {}
            found.append((int(meta[SCHEDULED_FOR]) - START) // 1000)
        return found


@asynccontextmanager
async def _running(beat: Beat) -> Any:
    task = asyncio.create_task(beat.run())
    try:
        yield
    finally:
        beat.stop()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()


def _play(test: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        with staged() as app:
            # So that the queue is there to look at.
            await app.put(b"{}")
            await app.session().broker.purge("work")
            async with AsyncExitStack() as stack:
                await test(Stage(app, stack))
            await app.aclose()
        await settle_loop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_three_replicas_emit_each_occurrence_once() -> None:
    async def test(stage: Stage) -> None:
        for _ in range(3):
            await stage.start()

        for _ in range(60):
            await stage.advance(10)

        assert await stage.emitted() == list(range(10, 601, 10))
        ids = [delivery.message_id for delivery in await stage.app.messages("work")]
        assert len(set(ids)) == 60
        assert ids[0] == occurrence_job_id(stage.app, "tick", START + 10_000)

    _play(test)


@given(steps=st.lists(st.floats(0.001, 100), min_size=1, max_size=30), replicas=st.integers(1, 3))
def test_however_the_time_passes_what_is_due_last_is_emitted_and_nothing_twice(
    steps: list[float], replicas: int
) -> None:
    async def test(stage: Stage) -> None:
        for _ in range(replicas):
            await stage.start()

        for step in steps:
            await stage.advance(step)
            now = (stage.clock.now_ms() - START) // 1000
            emitted = await stage.emitted()
            if now >= 10:
                assert emitted[-1] == now // 10 * 10
            assert emitted == sorted(set(emitted))

    _play(test)


def test_nothing_is_emitted_before_its_instant() -> None:
    async def test(stage: Stage) -> None:
        await stage.start()
        await stage.advance(9.999)
        assert await stage.emitted() == []

        await stage.advance(0.001)

        assert await stage.emitted() == [10]

    _play(test)


def test_a_beat_that_slept_skips_what_it_missed_and_emits_the_most_recent_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(stage: Stage) -> None:
        await stage.start()
        await stage.advance(37)
        assert await stage.emitted() == [30]

        await stage.advance(3)
        assert await stage.emitted() == [30, 40]
        await stage.advance(60)
        assert await stage.emitted() == [30, 40, 100]

    _play(test)
    assert "schedule tick: what was due from" in caplog.text


def test_what_was_due_before_the_start_is_not_emitted() -> None:
    async def test(stage: Stage) -> None:
        await stage.advance(25)
        await stage.start()
        assert await stage.emitted() == []

        await stage.advance(5)

        assert await stage.emitted() == [30]

    _play(test)


def test_a_replica_that_wakes_long_after_the_others_does_not_emit_again() -> None:
    async def test(stage: Stage) -> None:
        def daily(app: TaskMQ) -> None:
            _define(app, "1d")

        late = FakeClock(START)
        await stage.start(define=daily)
        await stage.start(define=daily, clock=late)
        day = (86_400_000 - START % 86_400_000) / 1000

        await stage.advance(day)
        await stage.advance(5 * 3600)
        # Nobody has asked the state for hours: what it has to forget it forgets here.
        await stage.advance(day + 5 * 3600, late)
        await stage.advance(11, late)

        assert len(await stage.emitted()) == 1

    _play(test)


def test_a_replica_that_dies_between_claim_and_publish_is_completed_by_another_after_the_lease() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(points=Points([Fault.NONE], rest=Fault.HANGS))
        await stage.start()
        await stage.start()

        await stage.advance(10)
        assert await stage.emitted() == []
        await stage.advance(9.9)
        assert await stage.emitted() == []
        await stage.advance(0.1)

        assert (await stage.emitted())[:1] == [10]
        assert sorted(await stage.emitted()) == [10, 20]
        ids = [delivery.message_id for delivery in await stage.app.messages("work")]
        assert occurrence_job_id(stage.app, "tick", START + 10_000) in ids

    _play(test)


def test_a_job_knows_its_schedule_and_its_nominal_instant_however_late_it_runs() -> None:
    async def test(stage: Stage) -> None:
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

    _play(test)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.UNKNOWN])
def test_a_send_that_fails_is_tried_again_within_the_lease(fault: Fault) -> None:
    async def test(stage: Stage) -> None:
        # claim, connect, declare, and then the publishes.
        await stage.start(points=Points([Fault.NONE] * 3 + [fault] * 4))
        await stage.advance(10)
        for _ in range(4):
            await stage.advance(0.5)

        assert set(await stage.emitted()) == {10}
        assert stage.apps[0].points.names == ["claim", "connect", "declare", *["publish"] * 5, "complete"]

    _play(test)


def test_a_state_that_is_away_for_a_moment_costs_no_occurrence() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(points=Points([Fault.REFUSED] * 3))
        await stage.start(points=Points([Fault.REFUSED] * 3))
        await stage.advance(10)
        for _ in range(4):
            await stage.advance(0.5)

        assert await stage.emitted() == [10]

    _play(test)


def test_an_occurrence_that_is_sent_is_marked_even_if_the_state_does_not_answer_at_once() -> None:
    async def test(stage: Stage) -> None:
        # claim, declare, publish, complete, complete, complete
        await stage.start(points=Points([Fault.NONE] * 4 + [Fault.REFUSED] * 2))
        await stage.start()
        await stage.advance(10)
        for _ in range(60):
            await stage.advance(0.5)

        assert sorted(await stage.emitted()) == [10, 20, 30, 40]

    _play(test)


def test_a_claim_whose_answer_was_lost_is_made_again_after_the_lease() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(points=Points([Fault.UNKNOWN]))
        await stage.advance(10)
        await stage.advance(0.5)
        assert await stage.emitted() == []

        await stage.advance(10)

        assert set(await stage.emitted()) == {10, 20}

    _play(test)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (Points(rest=Fault.REFUSED), "is not claimed"),
        (Points([Fault.NONE], rest=Fault.REFUSED), "is not sent"),
        (Points([Fault.NONE] * 4, rest=Fault.REFUSED), "is sent, but not marked"),
    ],
    ids=["claim", "send", "complete"],
)
def test_what_fails_for_the_whole_lease_is_given_up_loudly(
    points: Points, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(points=points)
        await stage.advance(10)
        for _ in range(25):
            await stage.advance(0.5)

    _play(test)
    complaints = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any(f"the occurrence of {START + 10_000} {words}" in complaint for complaint in complaints)


def test_another_replica_sends_what_one_could_not() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(points=Points([Fault.NONE], rest=Fault.REFUSED))
        await stage.start()
        await stage.advance(10)
        for _ in range(19):
            await stage.advance(0.5)
        assert await stage.emitted() == []

        await stage.advance(0.5)

        assert 10 in await stage.emitted()

    _play(test)


class _Broken(Middleware):
    def send(self, sending: Sending) -> None:
        raise LookupError("a bug in a middleware")


def test_a_bug_of_the_apps_own_code_is_logged_and_does_not_stop_the_beat(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with staged(middleware=[_Broken()]) as app:
            _define(app)
            async with _running(Beat(app)):
                await settle_loop()
                for _ in range(2):
                    app.fake_clock.advance(10)
                    await settle_loop()

    run(main())
    complaints = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in complaints] == ["schedule tick: an occurrence is not sent"] * 2
    assert all(record.exc_info and isinstance(record.exc_info[1], LookupError) for record in complaints)


def test_schedules_of_one_instant_are_all_emitted() -> None:
    async def test(stage: Stage) -> None:
        def define(app: TaskMQ) -> None:
            async def tick() -> None: ...

            for period in (10, 20, 30):
                app.every(period)(app.task(name=f"every-{period}", queue="work")(tick))

        await stage.start(define=define)
        for _ in range(6):
            await stage.advance(10)

        phase = START // 1000
        expected = [s for period in (10, 20, 30) for s in range(1, 61) if (phase + s) % period == 0]
        assert sorted(await stage.emitted()) == sorted(expected)

    _play(test)


# Stop --------------------------------------------------------------------------------------------------


def test_a_beat_without_schedules_waits_for_its_end() -> None:
    async def test(stage: Stage) -> None:
        beat = await stage.start(define=lambda _: None)
        await stage.advance(100)

        beat.stop()

    _play(test)


def test_a_beat_that_is_stopped_while_it_sleeps_ends_at_once() -> None:
    async def test(stage: Stage) -> None:
        beat = await stage.start()
        before = asyncio.get_running_loop().time()

        beat.stop()
        await settle_loop()

        assert asyncio.get_running_loop().time() - before < 0.1
        assert stage.clock.sleepers == 0

    _play(test)


def test_a_beat_that_is_stopped_while_it_watches_anothers_lease_ends_at_once() -> None:
    async def test(stage: Stage) -> None:
        await stage.start()
        watching = await stage.start()
        await stage.advance(10)

        watching.stop()
        await settle_loop()

        assert await stage.emitted() == [10]
        assert stage.clock.sleepers == 1

    _play(test)


def test_a_beat_that_is_stopped_waits_for_the_confirm_of_what_it_emits() -> None:
    async def main() -> None:
        with staged() as app:
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
            assert app.points.names[-1] == "complete"

    run(main())


def test_a_stopped_beat_does_not_wait_for_ever_for_what_never_answers() -> None:
    async def main() -> None:
        with staged() as app:
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

    run(main())


def test_a_cancelled_beat_leaves_no_task_behind() -> None:
    async def main() -> None:
        with staged() as app:
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

    run(main())


def test_a_beat_without_a_state_is_refused() -> None:
    with staged(with_state=False) as app, pytest.raises(UnsupportedFeature, match="beat needs a state"):
        Beat(app)


# The most recent instant -------------------------------------------------------------------------------


class _Listed:
    """A trigger with these instants, and one far away."""

    def __init__(self, instants: list[int]) -> None:
        self.instants = sorted(instants)
        self.looks = 0

    def next_after(self, instant: int) -> int:
        self.looks += 1
        place = bisect_right(self.instants, instant)
        return self.instants[place] if place < len(self.instants) else 10**15


@given(instants=st.sets(st.integers(0, 10**7), min_size=1, max_size=50), data=st.data())
def test_the_most_recent_instant_of_any_trigger_is_found(instants: set[int], data: st.DataObject) -> None:
    first = data.draw(st.sampled_from(sorted(instants)))
    now = data.draw(st.integers(first, 2 * 10**7))

    assert most_recent(_Listed(list(instants)), first, now) == max(each for each in instants if each <= now)


def test_a_beat_that_slept_for_years_does_not_go_through_them_second_by_second() -> None:
    trigger = _Listed(list(range(0, 10**6, 100)))

    assert most_recent(trigger, 0, 10**6 + 50) == 999_900
    assert trigger.looks < 30
