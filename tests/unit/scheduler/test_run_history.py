"""A scheduler's records of runs: log lines, figures by the minute, failures of plain jobs."""

import itertools
from typing import Any

from taskmq import TaskMQ
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.history import FailureFilter, RollupFilter
from taskmq.model.envelope import JSON, Envelope
from taskmq.model.history.alerts import AlertRule, AlertState
from taskmq.model.history.logs import KEPT_DAYS, LOGS_TASK, LogFilter, RunLine, RunLog, encode_logs
from taskmq.model.history.rollups import Rollup, RollupKey, RunFailure, minute_of
from taskmq.model.states import JobState
from taskmq.model.telemetry.events import FailureEvent, JobEvent, encode_batch, failure_topic, job_topic
from taskmq.scheduler.alerts import AlertSettings
from taskmq.scheduler.history import DepthSampler, RunHistory, forget_old
from tests.coroutines import run_by
from tests.unit.scheduler.stage import START, Player, Stage, play_one, until

_DAY = 86_400_000


async def _log(player: Player, envelope: Envelope, *messages: str, first: int = 0) -> None:
    assert envelope.store is not None
    lines = [RunLine(START, 20, "shop", message) for message in messages]
    log = RunLog(id=envelope.store.id, token=envelope.store.token, first=first, lines=lines)
    for body in encode_logs([log]):
        message = Outgoing(queue=envelope.store.reports, body=body, content_type=JSON, job_id="", task=LOGS_TASK)
        await player.broker.publish(message, timeout=5)


async def _messages(stage: Stage) -> list[str]:
    page = await stage.store.history.logs.page(LogFilter(), oldest_first=True)
    return [line.message for line in page.lines]


@run_by(play_one)
async def test_log_lines_are_kept_before_the_end_of_their_run_is_known(stage: Stage, /) -> None:
    stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await player.has(1)
    (envelope,) = player.envelopes

    await _log(player, envelope, "one", "two")
    await player.finish()
    await until(lambda: stage.job(job_id).state.is_final)

    assert await _messages(stage) == ["one", "two"]
    await _log(player, envelope, "late", first=2)
    await stage.pass_by(1)
    assert await _messages(stage) == ["one", "two"]


@run_by(play_one)
async def test_log_lines_wait_at_the_broker_while_the_store_is_unavailable(stage: Stage, /) -> None:
    process = stage.start()
    await stage.submit()
    player = await stage.player()
    await player.has(1)
    process.store.is_reachable = False
    await _log(player, player.envelopes[0], "one")
    await stage.pass_by(3)

    process.store.is_reachable = True
    await until(lambda: bool(stage.database.ask("SELECT 1 FROM job_log")))

    assert await _messages(stage) == ["one"]


@run_by(play_one)
async def test_a_message_without_log_lines_is_dropped_and_counted(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await player.has(1)
    invitation = player.envelopes[0].store
    assert invitation is not None
    message = Outgoing(queue=invitation.reports, body=b"{}", content_type=JSON, job_id="", task=LOGS_TASK)
    await player.broker.publish(message, timeout=5)
    await player.finish()
    await until(lambda: stage.job(job_id).state.is_final)

    assert process.scheduler.status().reports["malformed"] == 1
    assert await stage.parked_messages() == []


def _tell(stage: Stage, *names: str, worker: str = "w", **fields: Any) -> None:
    for number, name in enumerate(names, 1):
        given: dict[str, Any] = {"number": number, "at": stage.clock.now_ms(), "job_id": f"j-{name}", **fields}
        event = JobEvent(event=name, task="t", queue="work", **given)
        stage.broker.announce(job_topic(name, "work"), encode_batch(worker, [event], dropped=0))


def _history(stage: Stage, me: str) -> RunHistory:
    store = stage.store
    sampler = DepthSampler(stage.processes[0].app if stage.processes else TaskMQ(), store.history.depths)
    return RunHistory(stage.broker, store, store.history.rollups, sampler, me=me)


def _define_work(app: TaskMQ) -> None:
    @app.task(name="work", queue="work")
    def work() -> None: ...


async def _count_events(stage: Stage) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in await stage.store.history.rollups.rollups(RollupFilter(since=0, until=START * 2)):
        for name, count in one.outcomes.items():
            found[name] = found.get(name, 0) + count
    return found


@run_by(play_one)
async def test_worker_events_are_counted_and_failures_of_plain_jobs_are_kept(stage: Stage, /) -> None:
    async with stage.running(_history(stage, "a")):
        await stage.pass_by(1)
        _tell(stage, "started", "succeeded", "dead", tenant="acme", seconds=0.5)
        _tell(stage, "dead", is_stored=True)
        await stage.pass_by(5)

        assert await _count_events(stage) == {"started": 1, "succeeded": 1, "dead": 2}
        (failure,) = (await stage.store.history.rollups.failures(FailureFilter())).failures
        assert (failure.job, failure.tenant, failure.worker) == ("j-dead", "acme", "w")


def _fail(stage: Stage, number: int, text: str, *, is_plain_lost: bool = False) -> None:
    """Publish a worker's two events of a dead letter, the one with the error message first."""
    event = FailureEvent(
        event="dead", number=number, at=stage.clock.now_ms(), job_id=f"j-{number}", task="t", queue="work",
        error="OSError", message=text, traceback=f"Traceback ...: {text}",
    )  # fmt: skip
    stage.broker.announce(failure_topic("work"), encode_batch("w", [event], dropped=0))
    if not is_plain_lost:
        facts = {name: getattr(event, name) for name in JobEvent.__struct_fields__}
        stage.broker.announce(job_topic("dead", "work"), encode_batch("w", [JobEvent(**facts)], dropped=0))


async def _failures(stage: Stage) -> list[RunFailure]:
    return (await stage.store.history.rollups.failures(FailureFilter(), limit=1_000)).failures


@run_by(play_one)
async def test_a_failure_is_kept_once_with_its_error_message(stage: Stage, /) -> None:
    async with stage.running(_history(stage, "a")):
        await stage.pass_by(1)
        _fail(stage, 1, "no route")
        _fail(stage, 2, "no answer", is_plain_lost=True)
        _tell(stage, "dead", number=3)
        await stage.pass_by(6)

        assert [(one.job, one.error, one.message, one.traceback) for one in await _failures(stage)] == [
            ("j-dead", "", "", ""),
            ("j-2", "OSError", "no answer", "Traceback ...: no answer"),
            ("j-1", "OSError", "no route", "Traceback ...: no route"),
        ]
        assert await _count_events(stage) == {"dead": 2}


@run_by(play_one)
async def test_error_texts_are_limited_per_minute_and_further_failures_are_kept_without(stage: Stage, /) -> None:
    async with stage.running(_history(stage, "a")):
        await stage.pass_by(1)
        for number in range(400):
            _fail(stage, number, "☂" * 1_500)
        await stage.pass_by(6)

        found = await _failures(stage)
        said = [one for one in found if one.message]
        assert len(found) == 400
        assert sum(len(one.message) + len(one.traceback) for one in said) <= 200_000
        assert (len(said[0].message), len(said)) == (1_000, 79)

        await stage.pass_by(60)
        _fail(stage, 500, "again")
        await stage.pass_by(6)
        assert (await _failures(stage))[0].message == "again"


@run_by(play_one)
async def test_the_depth_of_each_queue_is_sampled_once_a_minute_and_deleted_after_a_month(stage: Stage, /) -> None:
    stage.define = _define_work
    process = stage.start(counts_runs=True)
    await stage.submit(3)
    player = await stage.player()
    await player.has(3)
    await stage.pass_by(130)
    depths = stage.store.history.depths

    found = await depths.depths(since=0, until=START * 2, step=60_000, queue="work")
    assert [one.at % 60_000 for one in found] == [0] * len(found)
    assert len({one.at for one in found}) == len(found) == 3
    assert (found[-1].stored + found[-1].ready, found[-1].in_hand) == (0, 3)
    await process.stop()

    await forget_old(stage.store, kept_days=0)
    assert await depths.depths(since=0, until=stage.clock.now_ms() - 60_000, step=60_000) == []


@run_by(play_one)
async def test_a_minute_is_not_sampled_while_the_store_is_unavailable(stage: Stage, /) -> None:
    stage.define = _define_work
    process = stage.start(counts_runs=True)
    await stage.pass_by(20)
    process.store.is_reachable = False
    await stage.pass_by(150)
    process.store.is_reachable = True
    await stage.pass_by(90)

    found = await stage.store.history.depths.depths(since=0, until=START * 2, step=60_000, queue="work")
    steps = [after.at - before.at for before, after in itertools.pairwise(found)]
    assert max(steps) >= 120_000
    assert steps[-1] == 60_000


@run_by(play_one)
async def test_one_of_several_schedulers_counts_and_the_next_one_after_its_death(stage: Stage, /) -> None:
    first, second = _history(stage, "a"), _history(stage, "b")
    async with stage.running(second):
        async with stage.running(first, is_killed=True):
            await stage.pass_by(6)
            _tell(stage, "succeeded")
            await stage.pass_by(6)
            assert await _count_events(stage) == {"succeeded": 1}
        await stage.pass_by(45)
        _tell(stage, "succeeded")
        await stage.pass_by(6)

        assert await _count_events(stage) == {"succeeded": 2}


@run_by(play_one)
async def test_a_job_expired_before_dispatch_is_counted_once_and_fires_an_alert(stage: Stage, /) -> None:
    await stage.store.history.alerts.put_rule(
        AlertRule(name="late", metric="expired", threshold=2, each="queue", tenant="acme")
    )
    process = stage.start(counts_runs=True, alerts=AlertSettings())
    await stage.pass_by(2)
    over = stage.clock.now_ms() - 1

    await stage.submit(2, expires=over, tenant="acme")
    await until(lambda: stage.states() == {JobState.EXPIRED: 2})
    await stage.submit(1, expires=over)
    await stage.pass_by(20)
    assert await _count_events(stage) == {"expired": 3}
    assert await stage.store.history.alerts.alerts() == []

    process.store.is_reachable = False
    await stage.pass_by(10)
    process.store.is_reachable = True
    # Its lease has ended; it counts again after acquiring a new one.
    await stage.pass_by(45)
    (held,) = await stage.submit(1, expires=over, tenant="acme")
    await until(lambda: stage.job(held).state is JobState.EXPIRED)
    await stage.pass_by(20)

    assert await _count_events(stage) == {"expired": 4}
    (alert,) = await stage.store.history.alerts.alerts()
    assert (alert.subject, alert.value, alert.state) == ("queue:work", 3.0, AlertState.FIRING)


@run_by(play_one)
async def test_jobs_expired_before_a_scheduler_counts_are_not_counted_again_by_it(stage: Stage, /) -> None:
    first = stage.start(counts_runs=True)
    await stage.pass_by(2)
    await stage.submit(2, expires=stage.clock.now_ms() - 1)
    await until(lambda: stage.states() == {JobState.EXPIRED: 2})
    await stage.pass_by(6)
    await first.stop()
    stage.start(counts_runs=True)
    await stage.pass_by(30)

    assert await _count_events(stage) == {"expired": 2}


@run_by(play_one)
async def test_counts_are_written_when_the_scheduler_stops(stage: Stage, /) -> None:
    async with stage.running(_history(stage, "a")):
        await stage.pass_by(1)
        _tell(stage, "succeeded")
        await stage.pass_by(0.1)

    assert await _count_events(stage) == {"succeeded": 1}
    assert await stage.store.dispatching.leases.find("history") is None


@run_by(play_one)
async def test_counting_can_be_configured_per_scheduler(stage: Stage, /) -> None:
    stage.start(counts_runs=True)
    await stage.pass_by(1)
    _tell(stage, "succeeded")
    await stage.pass_by(6)

    assert await _count_events(stage) == {"succeeded": 1}


@run_by(play_one)
async def test_expired_rollups_are_deleted(stage: Stage, /) -> None:
    stage.start()
    await stage.submit()
    player = await stage.player()
    await player.has(1)
    invitation = player.envelopes[0].store
    assert invitation is not None
    now = stage.clock.now_ms()
    lines = [
        RunLine(now - days * _DAY, level, "shop", f"{level} {days}") for level in KEPT_DAYS for days in (0, 2, 20, 40)
    ]
    store = stage.store
    await store.history.logs.add([RunLog(id=invitation.id, token=invitation.token, lines=lines)])
    for days in (0, 20, 40):
        key = RollupKey(minute_of(now - days * _DAY), "t", "work", "")
        await store.history.rollups.add([Rollup(key, {"succeeded": 1})])

    await forget_old(store)

    assert sorted(await _messages(stage)) == [
        "10 0", "20 0", "20 2", "30 0", "30 2", "30 20", "40 0", "40 2", "40 20", "50 0", "50 2", "50 20",
    ]  # fmt: skip
    assert await _count_events(stage) == {"succeeded": 2}
