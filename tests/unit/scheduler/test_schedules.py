"""Schedules in the store: schedulers fire each occurrence once, whatever happens to them.

$TASKMQ_TEST_MISSED_SCHEDULES: number of schedules, each every minute, that have missed two hours.
"""

import asyncio
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec
import pytest

from taskmq import InvalidArguments, InvalidOption, TaskMQ
from taskmq.contracts.history import history_of
from taskmq.contracts.jobs import PARTITIONS, JobRecord, ScheduleChange, partition_key
from taskmq.errors import UnknownTask
from taskmq.model.envelope import decode_envelope
from taskmq.model.history.alerts import AlertRule
from taskmq.model.keys import scheduled_job_id
from taskmq.model.states import JobState
from taskmq.run.facts import SCHEDULE_LIMIT, SCHEDULED_FOR
from taskmq.scheduler.alerts import AlertSettings, AlertWatch
from taskmq.scheduler.signals import LiveWorkers
from taskmq.schedules.definition import ScheduleEntry
from taskmq.schedules.record import Emitted
from taskmq.schedules.triggers import cron, every, jitter_of, once
from tests.coroutines import run_by
from tests.unit.scheduler.stage import START, Player, Process, Stage, play, play_one, until
from tests.unit.store_kit import Database, StagedStore

MINUTE = 60_000


def _tasks(app: TaskMQ) -> None:
    @app.task(name="tick", queue="work")
    async def tick(number: int = 0) -> None: ...


def _instants(stage: Stage) -> list[int]:
    """Return the nominal instants of all occurrences with a job, in ms since the start."""
    return sorted(_instant(job) for job in stage.database.jobs.values())


def _instant(job: JobRecord) -> int:
    return int((decode_envelope(job.body).meta or {})[SCHEDULED_FOR]) - START


async def _add(process: Process, name: str, trigger: Any, **options: Any) -> None:
    await process.app.schedules.aadd(name, process.app.tasks["tick"], trigger, **options)


async def _start_scheduler(stage: Stage) -> Process:
    process = stage.start()
    await until(lambda: process.scheduler.not_ready() is None and stage.holds_all(process))
    return process


def test_a_schedule_in_code_fires_at_its_instants_and_never_before() -> None:
    def define(app: TaskMQ) -> None:
        _tasks(app)
        app.every("1s")(app.tasks["tick"])

    async def test(stage: Stage) -> None:
        await _start_scheduler(stage)
        await stage.pass_by(9.5)

        instants = _instants(stage)
        assert instants == list(range(instants[0], instants[0] + 1000 * len(instants), 1000))
        assert len(instants) >= 9
        for job in stage.database.jobs.values():
            assert 0 <= job.submitted - START - _instant(job) <= 50

    play_one(test, define)


@run_by(play_one, _tasks)
async def test_an_occurrence_has_the_id_that_a_beat_would_use_and_needs_no_state(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    await _add(process, "mine", once(datetime.fromtimestamp(START / 1000 + 5, UTC)), args=(7,))
    await stage.pass_by(6)

    (job,) = stage.database.jobs.values()
    envelope = decode_envelope(job.body)
    assert job.key == envelope.id == scheduled_job_id(process.app.name, "mine", START + 5_000)
    assert envelope.key is None
    assert SCHEDULE_LIMIT not in (envelope.meta or {})
    assert bytes(envelope.args) == b"[7]"
    assert (await process.app.jobs.aget(envelope.id)).id == job.id


@run_by(play_one, _tasks)
async def test_equal_names_of_two_tenants_fire_jobs_of_their_own_tenant(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    at = once(datetime.fromtimestamp(START / 1000 + 5, UTC))
    for number, tenant in enumerate(("acme", "other")):
        await _add(process, f"@{tenant}:mine", at, args=(number,))
    await _add(process, "mine", at, args=(2,))
    await process.app.schedules.aremove("@other:mine")
    await _add(process, "@other:mine", at, args=(3,))
    await stage.pass_by(6)

    fired = {job.tenant: decode_envelope(job.body) for job in stage.database.jobs.values()}
    assert {tenant: bytes(envelope.args) for tenant, envelope in fired.items()} == {
        "acme": b"[0]", "other": b"[3]", "": b"[2]",
    }  # fmt: skip
    assert len({envelope.id for envelope in fired.values()}) == 3
    assert fired["acme"].tenant == "acme"
    assert fired["acme"].id == f"@acme:{scheduled_job_id(process.app.name, '@acme:mine', START + 5_000)}"
    assert [job.id for job in stage.database.jobs.values()] != []

    run = await process.app.schedules.arun("@acme:mine")
    assert (await process.app.jobs.aget(run)).tenant == "acme"


@pytest.mark.parametrize("name", ["@acme:", "@a%:x", "@a%2:x", "", "two\nlines"])
@run_by(play_one, _tasks)
async def test_an_invalid_schedule_name_is_refused(stage: Stage, /, name: str) -> None:
    process = await _start_scheduler(stage)
    with pytest.raises(InvalidOption):
        await _add(process, name, every("1m"))


def test_a_schedule_in_code_has_no_tenant() -> None:
    app = TaskMQ("memory://")
    _tasks(app)
    with pytest.raises(InvalidOption, match="cannot belong to a tenant"):
        app.every("1m", name="@acme:nightly")(app.tasks["tick"])


def test_a_schedule_removed_from_code_stops_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    def define(app: TaskMQ) -> None:
        _tasks(app)
        if not stopped:
            app.every("1s", name="old")(app.tasks["tick"])
        app.every("1h", name="kept")(app.tasks["tick"])

    stopped: list[bool] = []

    async def test(stage: Stage) -> None:
        first = await _start_scheduler(stage)
        await _add(first, "by hand", every("1h"))
        await stage.pass_by(3)
        await first.stop()
        stopped.append(True)
        count = len(stage.database.jobs)

        await _start_scheduler(stage)
        await stage.pass_by(5)

        assert len(stage.database.jobs) == count
        names = [row.name for row in await stage.store.schedules.list("shop", limit=9)]
        assert names == ["by hand", "kept"]

    with caplog.at_level(logging.WARNING, "taskmq.schedules"):
        play_one(test, define)
    assert [record.getMessage() for record in caplog.records] == [
        "removing schedule old: the code of app shop no longer defines it"
    ]


async def _values_of_alert(process: Process) -> list[float]:
    """Return the values in an alert about missed occurrences."""
    alerts = history_of(process.store).alerts
    await alerts.put_rule(AlertRule(name="missed", metric="missed", threshold=0))
    watch = AlertWatch(process.app, process.store, alerts, LiveWorkers(), AlertSettings(), me="a")
    await watch.evaluate_all()
    return [alert.value for alert in await alerts.alerts()]


@run_by(play_one, _tasks)
async def test_an_occurrence_whose_id_is_taken_is_a_failure(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    process = await _start_scheduler(stage)
    app = process.app
    taken, same = (scheduled_job_id(app.name, "s", START + at) for at in (2_000, 3_000))
    await app.jobs.submit_by_name("tick", (8,), {}, {}, derived_id=taken)
    first, _ = await app.jobs.submit_by_name("tick", (7,), {}, {}, derived_id=same)

    with caplog.at_level(logging.ERROR, "taskmq.scheduler"):
        await _add(
            process, "s", every("1s", start=datetime.fromtimestamp(START / 1000 + 2, UTC), max_runs=3), args=(7,)
        )
        await stage.pass_by(6)

    status = await app.schedules.astatus("s")
    assert (status.fired, status.failed, status.missed) == (2, 1, 0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"schedule s: giving up the occurrence of {START + 2_000}: job {taken} exists")
    assert (await app.jobs.aget(taken)).key == taken
    assert bytes(decode_envelope((await app.jobs.aget(taken)).body).args) == b"[8]"
    assert (await app.jobs.aget(same)).id == (await app.jobs.aget(first.id)).id
    assert await _values_of_alert(process) == [1.0]
    assert process.scheduler.status().occurrences_failed == 1


_ALL = pytest.mark.nightly(
    "tests/unit/scheduler/test_schedules.py::"
    "test_after_two_hours_without_schedulers_each_mode_catches_up_within_its_limit"
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"catchup": "skip"}, 0),
        ({"catchup": "once"}, 1),
        ({"catchup": "all"}, 100),
        pytest.param({"catchup": "all", "catchup_limit": 500}, 120, marks=_ALL),
        ({"catchup": "all", "catchup_limit": 500, "catchup_window": "30m"}, 30),
    ],
)
def test_after_two_hours_without_schedulers_each_mode_catches_up_within_its_limit(
    options: dict[str, Any], expected: int
) -> None:
    schedules = int(os.environ.get("TASKMQ_TEST_MISSED_SCHEDULES", "5"))

    async def test(stage: Stage) -> None:
        first = await _start_scheduler(stage)
        for number in range(schedules):
            await _add(first, f"s{number}", every("1m"), **options)
        # Late enough to count as missed and not as late.
        await stage.pass_by((MINUTE - START % MINUTE) / 1000 + 42)
        await first.kill()
        before = Counter(_schedule(job) for job in stage.database.jobs.values())
        await stage.pass_by(7_200)

        again = await _start_scheduler(stage)
        # Before the next instant; ten a second are caught up.
        await stage.pass_by(15)

        made = Counter(_schedule(job) for job in stage.database.jobs.values()) - before
        assert made == (dict.fromkeys((f"s{number}" for number in range(schedules)), expected) if expected else {})
        status = await again.app.schedules.astatus("s0")
        assert status.missed == 120 - expected
        assert status.coalesced == (119 if options["catchup"] == "once" else 0)
        assert status.fired == before["s0"] + expected
        assert await _values_of_alert(again) == ([schedules * (120 - expected)] if expected < 120 else [])

    play_one(test, _tasks)


@run_by(play_one, _tasks)
async def test_time_zones_days_off_and_jitter_are_those_of_the_schedule(stage: Stage, /) -> None:
    # A minute and 40 s before Wednesday begins in Berlin.
    await stage.pass_by(2_700)
    process = await _start_scheduler(stage)
    await _add(process, "berlin", cron("* * * * *", tz="Europe/Berlin", exclude=["wed"]), jitter="20s")
    await _add(process, "utc", cron("* * * * *", exclude=["wed"]))
    await stage.pass_by(240)

    jobs = stage.database.jobs.values()
    instants = {name: [_instant(job) for job in jobs if _schedule(job) == name] for name in ("berlin", "utc")}
    assert sorted(instants["utc"]) == [2_740_000, 2_800_000, 2_860_000, 2_920_000]
    assert instants["berlin"] == [2_740_000]
    (fired,) = await process.app.schedules.ahistory("berlin")
    jitter = jitter_of("berlin", 20_000)
    assert 0 < jitter <= (fired.emitted - fired.scheduled_for).total_seconds() * 1000 < jitter + 1_000
    assert (await process.app.schedules.astatus("berlin")).late == 0


def _schedule(job: JobRecord) -> str:
    return (decode_envelope(job.body).meta or {})["taskmq.schedule"]


@run_by(play_one, _tasks)
async def test_a_paused_schedule_fires_nothing_until_it_is_resumed(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    schedules = process.app.schedules
    await _add(process, "s", every("1s"), on_resume="skip")
    await stage.pass_by(3)
    await schedules.apause("s", note="why not")
    count = len(stage.database.jobs)
    await stage.pass_by(5)
    paused = await schedules.astatus("s")
    assert (paused.note, paused.next) == ("why not", None)
    assert len(stage.database.jobs) == count
    assert await schedules.anext("s") == []

    await schedules.aresume("s")
    await stage.pass_by(3.5)

    assert 3 <= len(stage.database.jobs) - count <= 4
    assert (await schedules.astatus("s")).missed >= 4
    assert len(await schedules.anext("s", count=3)) == 3


@run_by(play_one, _tasks)
async def test_a_schedule_is_changed_and_removed_while_it_runs(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    schedules = process.app.schedules
    await _add(process, "s", every("1s"))
    await stage.pass_by(3)
    await schedules.achange("s", process.app.tasks["tick"], every("2m"), args=(3,))
    await stage.pass_by(1.5)
    count = len(stage.database.jobs)
    await stage.pass_by(5)
    assert len(stage.database.jobs) == count
    assert await schedules.aexplain("s") == "tick: every 2 minutes"

    await schedules.aremove("s")
    await stage.pass_by(260)

    assert len(stage.database.jobs) == count
    assert await schedules.aall() == {}


@run_by(play_one, _tasks)
async def test_a_manual_run_is_a_separate_job_and_in_the_history(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    await _add(process, "s", every("1s"))
    await stage.pass_by(3)

    job_id = await process.app.schedules.arun("s")

    assert stage.job(job_id).state in (JobState.QUEUED, JobState.DISPATCHED)
    history = await process.app.schedules.ahistory("s")
    assert [one.kind for one in history].count("run") == 1
    assert history[0].emitted >= history[-1].emitted
    assert len(history) >= 3


@run_by(play_one, _tasks)
async def test_occurrences_of_one_instant_and_moment_have_one_order_in_the_history(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    await _add(process, "s", every("1s"))
    await stage.pass_by(3)
    schedules = process.app.schedules
    due = (await schedules.ahistory("s"))[0]
    instant, at = (round(time.timestamp() * 1000) for time in (due.scheduled_for, due.emitted))

    await schedules._change("s", lambda record: record.remember(Emitted(instant, at, "run")))

    history = [one for one in await schedules.ahistory("s") if one.scheduled_for == due.scheduled_for]
    # The last emitted one is the first, as with beats.
    assert [(one.kind, one.emitted) for one in history] == [
        ("run", due.emitted),
        ("due", due.emitted),
    ]


@run_by(play_one, _tasks)
async def test_a_backfill_emits_the_past_again_at_low_priority(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    await _add(process, "s", every("1m"))
    begin = datetime.fromtimestamp(START / 1000, UTC) - timedelta(hours=1)

    found = await process.app.schedules.abackfill("s", begin, begin + timedelta(minutes=25))
    await stage.pass_by(5)

    jobs = [job for job in stage.database.jobs.values() if _instant(job) < -MINUTE]
    assert len(jobs) == len(found.instants) >= 25
    assert {job.priority for job in jobs} == {0}
    assert (await process.app.schedules.astatus("s")).history[-1].kind == "backfill"


@pytest.mark.nightly("tests/unit/scheduler/test_schedules.py::test_a_backfill_emits_the_past_again_at_low_priority")
@run_by(play_one, _tasks)
async def test_endless_backfills_make_a_hundred_jobs_a_second_and_others_continue(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    begin = datetime.fromtimestamp(START / 1000, UTC) - timedelta(days=3650)
    for number in range(3):
        name = f"@greedy:s{number}"
        await _add(process, name, every("1s"), catchup_rate=1_000_000)
        await process.app.schedules.abackfill(name, begin, begin + timedelta(days=3000))
    await _add(process, "@small:tick", every("1s"))

    await stage.pass_by(10)

    mine = sorted(_instant(job) for job in stage.database.jobs.values() if job.tenant == "small")
    assert len(mine) >= 9
    assert {later - earlier for earlier, later in itertools.pairwise(mine)} == {1000}
    behind = sum(_instant(job) < -MINUTE for job in stage.database.jobs.values())
    assert 3 * 900 <= behind <= 3 * 1_200


_ONE_RUN = pytest.mark.nightly(
    "tests/unit/scheduler/test_schedules.py::test_a_schedule_limits_its_simultaneous_occurrences"
)


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "buffer_all", "cancel_other"])
@pytest.mark.parametrize("most", [pytest.param(1, marks=_ONE_RUN), 2])
@run_by(play_one, _tasks)
async def test_a_schedule_limits_its_simultaneous_occurrences(stage: Stage, /, overlap: Any, most: int) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    await _add(process, "s", every("1s"), overlap=overlap, max_concurrency=most)
    worst = 0
    for turn in range(40):
        await stage.pass_by(0.5)
        if turn == 20:
            # The next holder knows running jobs.
            await process.kill()
            process = await _start_scheduler(stage)
        living = [job for job in stage.database.jobs.values() if not job.state.is_final]
        worst = max(worst, len(living))
        if turn % 7 == 6:
            await player.finish()

    assert worst == most
    status = await process.app.schedules.astatus("s")
    assert status.fired == len(stage.database.jobs) >= 4
    if overlap in ("skip", "buffer_one"):
        assert status.skipped > 0
    cancelled = [job for job in stage.database.jobs.values() if job.cancel_requested or job.state == "cancelled"]
    assert bool(cancelled) is (overlap == "cancel_other")


async def _short(player: Player, turn: int, now: int) -> None:
    """End each run within half a second."""
    del turn
    await player.finish(started=now)


async def _long(player: Player, turn: int, now: int) -> None:
    """Let each run last several instants."""
    if turn % 7 == 6:
        await player.finish(started=now)


async def _crashing(player: Player, turn: int, now: int) -> None:
    """Let workers die and their jobs return; otherwise fail a job, permanently or not."""
    if turn % 3 == 2:
        # Between two turns: otherwise chance decides whether each attempt comes back to a turn that retries it.
        await player.finish("retry", delay=700, started=now)
    elif turn % 3 == 1:
        await player.finish("failed", started=now)
    else:
        taken, player.deliveries = player.deliveries, []
        for delivery in taken:
            delivery.requeue()


_LATER = pytest.mark.nightly("tests/unit/scheduler/test_schedules.py::test_the_history_never_exceeds_the_limit")


@pytest.mark.parametrize(
    "runs",
    [pytest.param(_short, marks=_LATER), pytest.param(_long, marks=_LATER), _crashing],
    ids=lambda runs: runs.__name__.strip("_"),
)
@pytest.mark.parametrize("most", [pytest.param(1, marks=_LATER), 3])
@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "buffer_all", "cancel_other"])
@run_by(play_one, _tasks)
async def test_the_history_never_exceeds_the_limit(
    stage: Stage, /, overlap: Any, most: int, runs: "Callable[[Player, int, int], Coroutine[Any, Any, None]]"
) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    await _add(process, "s", every("1s"), overlap=overlap, max_concurrency=most)
    for turn in range(60):
        await stage.pass_by(0.5)
        await runs(player, turn, stage.clock.now_ms())
        if turn in (15, 37):
            await process.kill()
            process = await _start_scheduler(stage)
    await process.app.schedules.apause("s")
    while stage.database.live:
        await stage.pass_by(0.5)
        await player.finish(started=stage.clock.now_ms())

    jobs = list(stage.database.jobs.values())
    # From the creation of a job to its end; an end precedes a start of the same instant.
    changes = sorted((at, by) for job in jobs for at, by in ((job.submitted, 1), (job.finished or 0, -1)))
    together = list(itertools.accumulate(by for _, by in changes))
    assert max(together) <= most
    assert len(jobs) >= 4
    assert len({_instant(job) for job in jobs}) == len(jobs)
    if runs is _long:
        assert max(together) == most


@run_by(play_one, _tasks)
async def test_a_buffered_occurrence_starts_once_there_is_room(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    await _add(process, "s", every("1m"), overlap="buffer_one")
    await stage.pass_by(60)
    await until(lambda: bool(player.deliveries))
    await stage.pass_by(60)
    assert (await process.app.schedules.astatus("s")).waiting == 1
    assert len(stage.database.jobs) == 1

    await player.finish()
    await stage.pass_by(2.5)

    assert len(stage.database.jobs) == 2
    assert [one.kind for one in await process.app.schedules.ahistory("s")] == ["buffered", "due"]


@run_by(play_one, _tasks)
async def test_a_paused_schedule_keeps_its_buffer_until_it_is_resumed(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    await _add(process, "s", every("1m"), overlap="buffer_one")
    await stage.pass_by(120)
    await process.app.schedules.apause("s")
    await stage.pass_by(2)
    (before,) = await stage.store.schedules.find("shop", ["s"])
    await player.finish()
    await stage.pass_by(30)

    assert await stage.store.schedules.find("shop", ["s"]) == [before]
    assert len(stage.database.jobs) == 1
    await process.app.schedules.aresume("s")
    await stage.pass_by(2)
    assert len(stage.database.jobs) == 2


@run_by(play, _tasks)
async def test_two_schedulers_of_which_one_dies_fire_every_instant_once(stage: Stage, /) -> None:
    first = await _start_scheduler(stage)
    second = stage.start()
    await until(lambda: len(second.scheduler.status().partitions) == 4)
    for number in range(40):
        await _add(first, f"s{number}", every("1s"), catchup="all")
    await stage.pass_by(5)
    await second.kill()
    await stage.pass_by(20)

    by_schedule: dict[str, list[int]] = {}
    for job in stage.database.jobs.values():
        by_schedule.setdefault(_schedule(job), []).append(_instant(job))
    assert len(by_schedule) == 40
    for instants in by_schedule.values():
        assert sorted(instants) == list(range(min(instants), max(instants) + 1, 1000))
        assert len(instants) >= 22


def test_an_unreadable_schedule_is_skipped_and_others_continue(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Stage) -> None:
        process = await _start_scheduler(stage)
        await _add(process, "good", every("1s"))
        await _add(process, "bad", every("1s"))
        (row,) = await stage.store.schedules.find("shop", ["bad"])
        assert row is not None
        broken = row.definition.replace(b'"Every"', b'"Never"')
        change = ScheduleChange(app="shop", name="bad", before=row, definition=broken, next=START)
        assert await stage.store.schedules.write([change]) == [True]
        await stage.pass_by(20)

        assert {_schedule(job) for job in stage.database.jobs.values()} <= {"good", "bad"}
        assert sum(_schedule(job) == "good" for job in stage.database.jobs.values()) >= 17

    play_one(test, _tasks)
    told = [record.getMessage() for record in caplog.records if "firing failed" in record.getMessage()]
    assert len(told) == 1
    assert "this taskmq has no trigger 'Never'" in told[0]


class _Fragile(msgspec.Struct, frozen=True):
    """A trigger of the app that raises while it is broken."""

    broken: ClassVar[bool] = False

    def next_after(self, instant: int, /) -> int | None:
        if self.broken:
            raise ValueError("the calendar is empty")
        return every("1s").next_after(instant)

    def describe(self) -> str:
        return "at random"


def test_a_schedule_whose_trigger_raises_is_tried_ever_less_often_and_shows_why(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def define(app: TaskMQ) -> None:
        _tasks(app)
        app.schedules.define(ScheduleEntry("fragile", app.tasks["tick"], _Fragile()))

    async def test(stage: Stage) -> None:
        process = await _start_scheduler(stage)
        await until(lambda: bool(stage.database.jobs))
        monkeypatch.setattr(_Fragile, "broken", True)
        await stage.pass_by(100)
        ((_, status),) = (await process.app.schedules.alist()).schedules
        assert (status.next, status.refused) == (None, "ValueError: the calendar is empty")

        monkeypatch.setattr(_Fragile, "broken", False)
        await stage.pass_by(60)
        ((_, status),) = (await process.app.schedules.alist()).schedules
        assert (status.refused, bool(status.next)) == ("", True)

    caplog.set_level(logging.DEBUG, "taskmq.scheduler")
    play_one(test, define)
    told = [record.levelname for record in caplog.records if "firing failed" in record.getMessage()]
    # After 0, 10, 30 and 70 seconds.
    assert told == ["ERROR", *["DEBUG"] * 3]


class HeldBack(StagedStore):
    """A store whose firings wait until the test releases them."""

    def __init__(self, database: Database, clock: Any) -> None:
        super().__init__(database, clock=clock)
        self.may_fire = asyncio.Event()
        self.answers: list[set[int] | None] = []
        fire = self.schedules.fire

        async def hold_firings(partition: int, epoch: int, firings: Any) -> set[int] | None:
            await self.may_fire.wait()
            self.answers.append(await fire(partition, epoch, firings))
            return self.answers[-1]

        self.schedules.fire = hold_firings  # type: ignore[method-assign]


@run_by(play, _tasks)
async def test_writes_of_a_replaced_scheduler_are_refused(stage: Stage, /) -> None:
    store = HeldBack(stage.database, stage.clock)
    frozen = stage.start(store=store)
    await until(lambda: len(frozen.scheduler.status().partitions) == 8)
    await _add(frozen, "s", every("1s"))
    await stage.pass_by(3)
    # Its leases move on, and its decision is still in transit.
    leases = stage.store.dispatching.leases
    for partition in range(PARTITIONS):
        lease = await leases.find(partition_key(partition))
        assert lease is not None
        await leases.release(partition_key(partition), token=lease.token)
    again = stage.start()
    await until(lambda: len(again.scheduler.status().partitions) > 0)
    store.may_fire.set()
    await stage.pass_by(4)

    assert None in store.answers
    assert store.answers[0] is None
    assert frozen.scheduler.status().refused >= 1
    instants = _instants(stage)
    assert len(instants) == len(set(instants))


def test_an_unstorable_schedule_is_refused_at_definition() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="single", queue="work", unique=True)
        async def single() -> None: ...

    async def test(stage: Stage) -> None:
        process = await _start_scheduler(stage)
        with pytest.raises(InvalidOption, match="unique="):
            await process.app.schedules.aadd("s", process.app.tasks["single"], every("1s"))

    play_one(test, define)


@run_by(play_one, _tasks)
async def test_a_schedule_by_name_needs_no_code_of_its_task(stage: Stage, /) -> None:
    knowing = await _start_scheduler(stage)
    await until(lambda: bool(stage.database.ask("SELECT 1 FROM task_registration WHERE task = 'tick'")))
    await knowing.app.definitions.aput("monthly", knowing.app.tasks["tick"], args=[4])
    await knowing.stop()
    stage.processes.clear()
    stage.define = lambda _: None

    app = (await _start_scheduler(stage)).app
    assert "tick" not in app.tasks
    await app.schedules.aadd("task", "tick", every("1s"), args=(3,))
    await app.schedules.aadd("definition", "monthly", every("1s"))
    with pytest.raises(InvalidArguments):
        await app.schedules.aadd("wrong", "tick", every("1s"), args=("three",))
    await stage.pass_by(3)
    by_hand = [await app.schedules.arun(name) for name in ("task", "definition")]

    called = {"task": b"[3]", "definition": b"[4]"}
    assert len(stage.database.jobs) >= 6
    for job in stage.database.jobs.values():
        assert (job.task, job.queue) == ("tick", "work")
        assert bytes(decode_envelope(job.body).args) == called[_schedule(job)]
    assert [(await app.jobs.aget(job_id)).task for job_id in by_hand] == ["tick", "tick"]
    assert {name: entry.starts for name, entry in (await app.schedules.aall()).items()} == {
        "task": "tick", "definition": "monthly version 1 (tick)",
    }  # fmt: skip
    assert (await app.schedules.astatus("task")).fired >= 2
    await app.schedules.apause("task")
    await app.schedules.achange("definition", trigger=every("2h"))
    changed = await app.schedules.aentry("definition")
    assert (changed.starts, changed.args) == ("monthly version 1 (tick)", (4,))
    await app.schedules.achange("definition", "tick", every("1h"), args=(5,))
    assert await app.schedules.aexplain("definition") == "tick: every hour"


def test_pages_list_schedules_of_code_and_runtime_in_one_order() -> None:
    async def test(stage: Stage) -> None:
        # The scheduler stores the schedules of the code there.
        app = (await _start_scheduler(stage)).app
        tick = app.tasks["tick"]
        for name in ("b", "@acme:b", "z", "n"):
            await app.schedules.aadd(name, tick, every("1h"), args=(1,))

        async def pages(limit: int, prefix: str = "", tenant: str | None = None) -> list[list[str]]:
            found: list[list[str]] = []
            after: str | None = ""
            while after is not None:
                page = await app.schedules.alist(prefix, tenant=tenant, after=after, limit=limit)
                assert [one.status.name for one in page.schedules] == [one.entry.name for one in page.schedules]
                found.append([one.entry.name for one in page.schedules])
                after = page.after
            return found

        names = ["@acme:b", "a", "b", "m", "n", "z"]
        for limit in range(1, 8):
            found = await pages(limit)
            assert [name for page in found for name in page] == names
            assert all(len(page) == limit for page in found[:-1])
        assert await pages(2, tenant="") == [["a", "b"], ["m", "n"], ["z"]]
        assert await pages(2, tenant="acme") == [["@acme:b"]]
        assert await pages(2, "b") == [["b"]]
        assert sorted(await app.schedules.aall()) == names
        with pytest.raises(InvalidOption, match="limit=0"):
            await app.schedules.alist(limit=0)

    def define(app: TaskMQ) -> None:
        _tasks(app)
        app.every("1h", name="m")(app.tasks["tick"])
        app.every("1h", name="a")(app.tasks["tick"])

    play_one(test, define)


@run_by(play_one, _tasks)
async def test_a_schedule_starts_a_definition_in_its_stored_version(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    app = process.app
    await app.definitions.aput("monthly", app.tasks["tick"], args=[1], queue="work", labels={"team": "web"})
    await app.schedules.aadd("s", "monthly", every("1s"))
    await app.definitions.aput("monthly", app.tasks["tick"], args=[2], queue="work")
    await stage.pass_by(3)
    await app.schedules.arun("s")

    assert len(stage.database.jobs) >= 3
    for job in stage.database.jobs.values():
        assert bytes(decode_envelope(job.body).args) == b"[1]"
        assert job.detail is not None
        assert (job.detail.definition, job.detail.definition_version) == ("monthly", 1)
        assert job.detail.labels == {"team": "web"}
    assert await app.schedules.aexplain("s") == "monthly version 1 (tick): every second"
    with pytest.raises(UnknownTask):
        await app.schedules.aadd("t", "yearly", every("1s"))
