"""Schedules that are created, changed, paused, run manually and backfilled while beats run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.errors import InvalidOption, LimitReached, ScheduleNotFound
from taskmq.schedules import Schedules
from taskmq.schedules.policy import ScheduleOptions, SchedulePolicy
from taskmq.schedules.triggers import every
from tests.coroutines import run_by
from tests.unit.beat.stage import START, Stage, play
from tests.unit.worker.staged import settle_loop


def _define(app: TaskMQ) -> None:
    @app.task(name="say", queue="work")
    async def say(text: str = "", *, times: int = 1) -> None: ...

    @app.every("10s", name="tick")
    @app.task(name="tick", queue="ticks")
    async def tick() -> None: ...


def _schedules(stage: Stage) -> Schedules:
    """Return the schedules as seen by another process without a beat."""
    return stage.twin().schedules


async def _look(stage: Stage) -> None:
    """Let the second pass within which every replica reads changes."""
    await stage.advance(1)
    await settle_loop()


@run_by(play, _define)
async def test_all_beats_together_emit_an_added_schedule_once_and_none_removes_it(stage: Stage, /) -> None:
    for _ in range(3):
        await stage.start()
    schedules = _schedules(stage)
    say = stage.apps[-1].tasks["say"]

    await schedules.aadd("hourly", say, every("5s"), args=("hello",), kwargs={"times": 2})
    await _look(stage)
    await stage.advance(4)
    await stage.advance(5)
    assert await stage.emitted_instants() == [5, 10]
    assert (await stage.app.messages("work"))[0].body.count(b'"hello"') == 1
    await schedules.aremove("hourly")
    await _look(stage)
    await stage.advance(9)
    await stage.advance(10)

    assert await stage.emitted_instants() == [5, 10]


@run_by(play, _define)
async def test_a_changed_schedule_follows_its_new_rule_and_catches_up_nothing(stage: Stage, /) -> None:
    await stage.start()
    schedules = _schedules(stage)
    say = stage.apps[-1].tasks["say"]
    await schedules.aadd("hourly", say, every("5s"), catchup="all")
    await _look(stage)
    await stage.advance(4)

    await schedules.achange("hourly", say, every("7s", phase="1s"), catchup="all")
    for _ in range(30):
        await stage.advance(1)

    phase = START // 1000 % 7
    assert await stage.emitted_instants() == [5] + [s for s in range(7, 36) if (s + phase) % 7 == 1]


@run_by(play, _define)
async def test_a_change_keeps_the_fields_it_does_not_name(stage: Stage, /) -> None:
    schedules = _schedules(stage)
    say = stage.apps[-1].tasks["say"]
    policy: ScheduleOptions = {"catchup": "all", "overlap": "buffer_one", "max_concurrency": 2}
    await schedules.aadd("hourly", say, every("5s"), args=("hello",), kwargs={"times": 2}, **policy)
    before = await schedules.aentry("hourly")

    await schedules.achange("hourly", trigger=every("7s"))
    assert await schedules.aentry("hourly") == replace(before, trigger=every("7s"))
    await schedules.achange("hourly", kwargs={"times": 3})
    await schedules.achange("hourly", catchup="skip", overlap="allow")

    after = await schedules.aentry("hourly")
    assert (after.args, after.kwargs, after.trigger) == (("hello",), {"times": 3}, every("7s"))
    assert after.policy == SchedulePolicy(catchup="skip")
    with pytest.raises(InvalidOption, match="task tick: too many arguments"):
        await schedules.achange("hourly", stage.apps[-1].tasks["tick"])
    with pytest.raises(ScheduleNotFound):
        await schedules.achange("daily", trigger=every("7s"))
    with pytest.raises(InvalidOption, match="defined in the code: change it there"):
        await schedules.achange("tick", trigger=every("7s"))
    assert await schedules.aentry("hourly") == after


@run_by(play, _define)
async def test_added_schedules_are_available_to_a_beat_that_starts_later(stage: Stage, /) -> None:
    schedules = _schedules(stage)
    say = stage.apps[-1].tasks["say"]
    await schedules.aadd("hourly", say, every("5s"))
    await stage.start()
    await stage.advance(5)

    assert await stage.emitted_instants() == [5]
    assert list(await schedules.aall()) == ["hourly", "tick"]
    assert (await schedules.aall())["hourly"].is_dynamic


def test_a_schedule_of_an_unknown_task_is_left_to_beats_that_know_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(stage: Stage) -> None:
        def define_less(app: TaskMQ) -> None:
            app.task(name="other")(_other)

        schedules = _schedules(stage)
        say = stage.apps[-1].tasks["say"]
        await schedules.aadd("hourly", say, every("5s"))
        await stage.start(define=define_less)
        await stage.advance(5)
        assert await stage.emitted_instants() == []

        await stage.start()
        await stage.advance(5)

        assert await stage.emitted_instants() == [10]

    play(test, _define)
    assert "schedule hourly: this beat cannot emit it: schedule 'hourly': this app has no task 'say'" in caplog.text


async def _other() -> None: ...


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("tick", {}, "is defined in the code already"),
        ("", {}, "a name must be printable text"),
        ("fine", {"args": (1,)}, "the task must run these arguments"),
        ("fine", {"kwargs": {"nonsense": 1}}, "the task must run these arguments"),
        ("fine", {"catchup": "some"}, "one of 'skip', 'once', 'all'"),
        ("fine", {"max_concurrency": 2}, "has no effect with overlap='allow'"),
        ("fine", {"overlap": "skip", "max_concurrency": 0}, "a number, at least 1"),
        ("fine", {"nonsense": 1}, "unknown option 'nonsense'"),
    ],
)
@run_by(play, _define)
async def test_an_invalid_schedule_is_refused_when_it_is_added(
    stage: Stage, /, name: str, changes: dict[str, Any], words: str
) -> None:
    schedules = _schedules(stage)
    with pytest.raises(InvalidOption, match=words):
        await schedules.aadd(name, stage.apps[-1].tasks["say"], every("5s"), **changes)
    assert list(await schedules.aall()) == ["tick"]


@run_by(play, _define)
async def test_a_missing_schedule_is_reported_and_an_existing_one_is_not_overwritten(stage: Stage, /) -> None:
    schedules = _schedules(stage)
    say = stage.apps[-1].tasks["say"]
    await schedules.aadd("hourly", say, every("5s"))
    # Repeating the call changes nothing: an answer may have been lost.
    await schedules.aadd("hourly", say, every("5s"))
    with pytest.raises(InvalidOption, match="exists already"):
        await schedules.aadd("hourly", say, every("6s"))
    for call in (
        schedules.aremove("other"),
        schedules.achange("other", say, every("5s")),
        schedules.apause("other"),
        schedules.aresume("other"),
        schedules.arun("other"),
        schedules.astatus("other"),
    ):
        with pytest.raises(InvalidOption, match="no schedule 'other'"):
            await call
    with pytest.raises(InvalidOption, match="is defined in the code"):
        await schedules.aremove("tick")


@pytest.mark.parametrize(("on_resume", "made_up"), [("skip", []), ("catchup", [30, 40, 50])])
def test_a_paused_schedule_emits_nothing_and_a_resume_decides_on_the_pause(
    on_resume: Any, made_up: list[int]
) -> None:
    def define(app: TaskMQ) -> None:
        @app.every("10s", name="tick", on_resume=on_resume, late_after="1m")
        @app.task(name="tick", queue="work")
        async def tick() -> None: ...

    async def test(stage: Stage) -> None:
        for _ in range(2):
            await stage.start()
        schedules = _schedules(stage)
        await stage.advance(10)
        await stage.advance(10)
        await schedules.apause("tick", note="the printer is broken")
        status = await schedules.astatus("tick")
        assert (status.paused, status.note) == (_instant(20), "the printer is broken")
        assert status.next is None
        for _ in range(35):
            await stage.advance(1)
        assert await stage.emitted_instants() == [10, 20]

        await schedules.aresume("tick")
        for _ in range(5):
            await stage.advance(1)

        assert await stage.emitted_instants() == [10, 20, *made_up, 60]
        status = await schedules.astatus("tick")
        assert (status.paused, status.missed) == (None, 3 - len(made_up))

    play(test, define)


@run_by(play, _define)
async def test_a_manual_run_is_sent_at_once_even_of_a_paused_schedule(stage: Stage, /) -> None:
    schedules = _schedules(stage)
    await schedules.aadd("hourly", stage.apps[-1].tasks["say"], every("1h"), args=("hello",))
    await schedules.apause("hourly")

    job_id = await schedules.arun("hourly")

    (message,) = await stage.app.messages("work")
    assert message.message_id == job_id
    assert [one.kind for one in (await schedules.astatus("hourly")).history] == ["run"]


@run_by(play, _define)
async def test_a_backfill_emits_a_range_again_a_few_a_second_and_a_dry_run_nothing(stage: Stage, /) -> None:
    await stage.start()
    schedules = _schedules(stage)
    await schedules.aadd("hourly", stage.apps[-1].tasks["say"], every("10s"), catchup_rate=4)
    await _look(stage)
    for _ in range(10):
        await stage.advance(10)
    before = await stage.emitted_instants()
    assert before == list(range(10, 101, 10))
    span = _instant(-50), _instant(60)

    rehearsed = await schedules.abackfill("hourly", *span, dry_run=True)
    await _look(stage)
    assert await stage.emitted_instants("work.p.low") == []
    done = await schedules.abackfill("hourly", *span)
    assert done.instants == rehearsed.instants == [_instant(at) for at in range(-50, 61, 10)]
    sizes = list[int]()
    for _ in range(4):
        await _look(stage)
        sizes.append(len(await stage.emitted_instants("work.p.low")))

    assert await stage.emitted_instants("work.p.low") == list(range(-50, 61, 10))
    assert sizes == [4, 8, 12, 12]
    ids = [message.message_id for queue in ("work", "work.p.low") for message in await stage.app.messages(queue)]
    assert len(set(ids)) == len(ids)


@run_by(play, _define)
async def test_a_schedule_has_at_most_ten_backfills_in_progress(stage: Stage, /) -> None:
    schedules = _schedules(stage)
    await schedules.aadd("hourly", stage.apps[-1].tasks["say"], every("10s"))
    span = _instant(-50), _instant(0)
    for _ in range(10):
        await schedules.abackfill("hourly", *span)

    with pytest.raises(LimitReached, match="'hourly' has 10 backfills in progress"):
        await schedules.abackfill("hourly", *span)
    assert (await schedules.abackfill("hourly", *span, dry_run=True)).run == ""


@pytest.mark.parametrize(("start", "end"), [(0, 10_000), (10, 0)])
@run_by(play, _define)
async def test_a_backfill_of_the_future_or_backwards_is_refused(stage: Stage, /, start: int, end: int) -> None:
    with pytest.raises(InvalidOption, match="a backfill needs a start before its end"):
        await _schedules(stage).abackfill("tick", _instant(start), _instant(end))
    with pytest.raises(InvalidOption, match="has no time zone"):
        await _schedules(stage).abackfill("tick", datetime(2020, 1, 1), _instant(0))  # noqa: DTZ001


def test_jitter_moves_the_sending_and_not_the_instant() -> None:
    def define(app: TaskMQ) -> None:
        async def tick() -> None: ...

        for number in range(20):
            task = app.task(name=f"tick-{number}", queue="work")(tick)
            app.every("100s", name=f"tick-{number}", jitter="10s")(task)

    async def test(stage: Stage) -> None:
        await stage.start()
        sizes = list[int]()
        for _ in range(11):
            await stage.advance(1) if sizes else await stage.advance(100)
            sizes.append(len(await stage.emitted_instants()))

        assert sizes[0] < sizes[5] < sizes[10] == 20
        assert set(await stage.emitted_instants()) == {100}
        assert (await stage.apps[0].schedules.astatus("tick-3")).late == 0

    play(test, define)


def _instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(START / 1000, UTC) + timedelta(seconds=seconds)
