"""Evaluation of rules by schedulers: each notice once, whichever scheduler dies."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.contracts.broker import Outgoing, QueueStats
from taskmq.contracts.history import AlertNotice
from taskmq.errors import BrokerUnavailable, StoreUnavailable
from taskmq.model.envelope import JSON
from taskmq.model.history.alerts import AlertMetric, AlertRule, AlertState, Silence
from taskmq.model.history.rollups import MINUTE, QUARTER, Rollup, RollupKey, minute_of
from taskmq.model.topology import WorkQueue, dead_letter_queue
from taskmq.scheduler.alerts import AlertSettings, AlertWatch
from taskmq.scheduler.alerts.figures import AlertFigures
from taskmq.scheduler.signals import LiveWorkers
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one
from tests.unit.store_kit import StagedStore, at_once

RULE = AlertRule(
    name="fails", metric="failures", threshold=3, each="task", channels=("mailto:a@b.c", "mailto:d@e.f"), repeat=0
)


async def _fail(stage: Stage, count: int, *, task: str = "t", tenant: str = "") -> None:
    key = RollupKey(minute_of(stage.clock.now_ms()), task, "work", tenant)
    await stage.store.history.rollups.add([Rollup(key, {"dead": count})])


def _notices(stage: Stage) -> list[AlertNotice]:
    return at_once(stage.store.history.alerts.notices(limit=1000))


def _pending_notices(stage: Stage) -> list[tuple[str, str]]:
    """Return the pending notices of the first channel in order: kinds and subjects."""
    notices = sorted(_notices(stage), key=lambda notice: (notice.at, notice.rule.name))
    return [
        (change.kind, change.alert.subject)
        for notice in notices
        if notice.channel == "mailto:a@b.c"
        for change in notice.changes
    ]


@run_by(play_one)
async def test_an_alert_and_its_end_are_reported_within_half_a_minute(stage: Stage, /) -> None:
    await stage.store.history.alerts.put_rule(RULE)
    stage.start(alerts=AlertSettings())
    await stage.pass_by(5)
    await _fail(stage, 4)
    await stage.pass_by(30)
    assert _pending_notices(stage) == [("firing", "task:t")]

    await stage.pass_by(420)

    assert _pending_notices(stage) == [("firing", "task:t"), ("resolved", "task:t")]
    assert len(_notices(stage)) == 4


@run_by(play_one)
async def test_simultaneous_changes_are_reported_together(stage: Stage, /) -> None:
    await stage.store.history.alerts.put_rule(RULE)
    await _fail(stage, 4)
    await _fail(stage, 5, task="u")
    stage.start(alerts=AlertSettings())
    await stage.pass_by(12)

    assert len(_notices(stage)) == 2
    assert _pending_notices(stage) == [("firing", "task:t"), ("firing", "task:u")]


@pytest.mark.nightly("tests/unit/scheduler/test_alerts.py::test_two_simultaneous_evaluations_notify_once")
@run_by(play_one)
async def test_several_schedulers_report_each_change_once(stage: Stage, /) -> None:
    await stage.store.history.alerts.put_rule(RULE)
    processes = [stage.start(alerts=AlertSettings()) for _ in range(3)]
    for turn in range(3):
        await _fail(stage, 4)
        await stage.pass_by(15)
        await processes[turn].kill()
        if turn < 2:
            await stage.pass_by(400)

    assert _pending_notices(stage) == [("firing", "task:t"), ("resolved", "task:t")] * 2 + [("firing", "task:t")]


@contextmanager
def _dying(store: StagedStore, at: int, *, is_done: bool) -> Iterator[Callable[[], bool]]:
    """Raise at the nth call of the store's alerts; tell whether there were that many."""
    alerts: Any = store.history.alerts
    calls = 0

    def call_wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        async def around(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at and not is_done:
                raise _Killed
            result = await call(*args, **kwargs)
            if calls == at:
                raise _Killed
            return result

        return around

    for name in ("rules", "alerts", "silences", "commit"):
        setattr(alerts, name, call_wrapped(getattr(alerts, name)))
    yield lambda: calls >= at


class _Killed(BaseException):
    """Raised when the process dies."""


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
@run_by(play_one)
async def test_a_scheduler_that_dies_at_any_point_has_notified_no_change_twice(
    stage: Stage, /, at: int, is_done: bool
) -> None:
    store = stage.store
    await store.history.alerts.put_rule(RULE)
    await store.history.alerts.put_rule(replace(RULE, name="second"))
    await _fail(stage, 4)
    app = TaskMQ(f"memory://{stage.name}", name="shop")

    def watch(over: StagedStore, me: str) -> AlertWatch:
        return AlertWatch(app, over, over.history.alerts, LiveWorkers(), AlertSettings(), me=me)

    first = stage.store
    with _dying(first, at, is_done=is_done) as has_come:
        with pytest.raises(_Killed):
            await watch(first, "a").evaluate_all()
        assert has_come()
    await watch(store, "b").evaluate_all()
    await watch(store, "c").evaluate_all()

    assert sorted(_pending_notices(stage)) == [("firing", "task:t")] * 2
    assert len(_notices(stage)) == 4
    assert {alert.number for alert in await store.history.alerts.alerts()} == {2}


@run_by(play_one)
async def test_two_simultaneous_evaluations_notify_once(stage: Stage, /) -> None:
    await stage.store.history.alerts.put_rule(RULE)
    await _fail(stage, 4)
    app = TaskMQ(f"memory://{stage.name}", name="shop")
    stores = [stage.store for _ in range(4)]

    await asyncio.gather(
        *(
            AlertWatch(
                app, store, store.history.alerts, LiveWorkers(), AlertSettings(), me=str(number)
            ).evaluate_all()
            for number, store in enumerate(stores)
        )
    )

    assert _pending_notices(stage) == [("firing", "task:t")]


@run_by(play_one)
async def test_a_silence_or_a_suppressing_rule_prevents_notifications(stage: Stage, /) -> None:
    alerts = stage.store.history.alerts
    await alerts.put_rule(RULE)
    await alerts.put_rule(replace(RULE, name="all", each="", unless=("fails",)))
    await alerts.put_rule(replace(RULE, name="off", is_enabled=False))
    now = stage.clock.now_ms()
    await alerts.add_silence(Silence(id="s", rule="fails", begins=now, ends=now + 40_000))
    await _fail(stage, 4)
    stage.start(alerts=AlertSettings())
    await stage.pass_by(30)
    assert {(each.rule, each.state) for each in await alerts.alerts()} == {
        ("fails", AlertState.FIRING),
        ("all", AlertState.FIRING),
    }
    assert _pending_notices(stage) == []

    await stage.pass_by(30)

    assert _pending_notices(stage) == [("firing", "task:t")]


@run_by(play_one)
async def test_no_evaluation_runs_or_is_lost_while_the_store_is_unavailable(stage: Stage, /) -> None:
    await stage.store.history.alerts.put_rule(RULE)
    process = stage.start(alerts=AlertSettings())
    await stage.pass_by(15)
    process.store.is_reachable = False
    await _fail(stage, 4)
    await stage.pass_by(60)
    assert _pending_notices(stage) == []

    process.store.is_reachable = True
    await stage.pass_by(60)

    assert _pending_notices(stage) == [("firing", "task:t")]


def _define(app: TaskMQ) -> None:
    @app.task(name="t", queue="work")
    async def t() -> None: ...


_OTHER_FIGURE = pytest.mark.nightly(
    "tests/unit/scheduler/test_alerts.py::test_figures_of_queues_are_evaluated_as_they_are_now"
)


@pytest.mark.parametrize(
    ("metric", "below", "threshold"),
    [
        ("depth", False, 2),
        pytest.param("dead_letters", False, 0, marks=_OTHER_FIGURE),
        ("age", False, 60),
        pytest.param("workers", True, 1, marks=_OTHER_FIGURE),
    ],
)
@run_by(play_one, _define)
async def test_figures_of_queues_are_evaluated_as_they_are_now(
    stage: Stage, /, metric: AlertMetric, below: bool, threshold: float
) -> None:
    await stage.broker.declare([WorkQueue("work")])
    rule = replace(RULE, metric=metric, each="queue", below=below, threshold=threshold)
    await stage.store.history.alerts.put_rule(rule)
    stage.start(alerts=AlertSettings())
    stage.worker_says()
    await stage.pass_by(15)
    assert _pending_notices(stage) == []

    for queue in ("work", "work", "work", dead_letter_queue("work")):
        await stage.broker.publish(
            Outgoing(queue=queue, body=b"{}", content_type=JSON, job_id="", task="t"), timeout=5
        )
    # The dispatcher's window is full after some of them.
    await stage.submit(200)
    await stage.pass_by(90)

    assert _pending_notices(stage) == [("firing", "queue:work")]


@run_by(play_one, _define)
async def test_an_unavailable_broker_fires_no_alert_and_ends_none(stage: Stage, /) -> None:
    await stage.broker.declare([WorkQueue("work")])
    await stage.store.history.alerts.put_rule(replace(RULE, metric="workers", each="queue", below=True))
    await stage.store.history.alerts.put_rule(replace(RULE, name="depth", metric="depth", each="queue"))
    process = stage.start(alerts=AlertSettings())

    async def stats(_: Iterable[str]) -> list[QueueStats]:
        raise BrokerUnavailable("away")

    process.broker.stats = stats  # type: ignore[assignment,method-assign]
    await stage.pass_by(60)

    assert [each.rule for each in await stage.store.history.alerts.alerts()] == ["fails"]


@run_by(play_one)
async def test_rules_are_evaluated_again_after_one_failed_evaluation(stage: Stage, /) -> None:
    store = stage.store
    store.is_reachable = False
    app = TaskMQ(f"memory://{stage.name}", name="shop")
    watch = AlertWatch(app, store, store.history.alerts, LiveWorkers(), AlertSettings(), me="a")

    with pytest.raises(StoreUnavailable):
        await watch.evaluate_all()
    store.is_reachable = True
    await watch.evaluate_all()

    assert watch.evaluated == stage.clock.now_ms()


@run_by(play_one)
async def test_notices_of_the_same_changes_are_equal(stage: Stage, /) -> None:
    await stage.store.history.alerts.put_rule(RULE)
    await _fail(stage, 4)
    stage.start(alerts=AlertSettings())
    await stage.pass_by(12)

    notices = _notices(stage)
    assert len({notice.id for notice in notices}) == len(notices) == 2
    assert {notice.rule for notice in notices} == {RULE}


@run_by(play_one)
async def test_a_recreated_rule_is_reported_again(stage: Stage, /) -> None:
    alerts = stage.store.history.alerts
    await alerts.put_rule(RULE)
    stage.start(alerts=AlertSettings())
    await _fail(stage, 4)
    await stage.pass_by(15)
    await alerts.remove_rule("", RULE.name)
    await stage.pass_by(15)
    await alerts.put_rule(RULE)
    await stage.pass_by(15)

    assert _pending_notices(stage) == [("firing", "task:t")] * 2


@pytest.mark.parametrize("is_removed", [False, True])
@run_by(play_one)
async def test_an_unevaluated_rule_ends_its_alerts_and_inhibits_nothing(stage: Stage, /, is_removed: bool) -> None:
    alerts = stage.store.history.alerts
    await alerts.put_rule(RULE)
    await alerts.put_rule(replace(RULE, name="all", each="", unless=("fails",)))
    await _fail(stage, 4)
    stage.start(alerts=AlertSettings())
    await stage.pass_by(15)
    assert _pending_notices(stage) == [("firing", "task:t")]

    if is_removed:
        # The state left by an earlier evaluation.
        stage.database.ask("DELETE FROM alert_rule WHERE name = 'fails'")
    else:
        await alerts.put_rule(replace(RULE, is_enabled=False))
    await stage.pass_by(15)

    assert {each.rule: each.state for each in await alerts.alerts()} == {
        "fails": AlertState.RESOLVED,
        "all": AlertState.FIRING,
    }
    assert _pending_notices(stage)[1:] == [("firing", ""), *([] if is_removed else [("resolved", "task:t")])]


@run_by(play_one)
async def test_the_alerts_of_the_last_rule_end_when_it_is_disabled(stage: Stage, /) -> None:
    await stage.store.history.alerts.put_rule(RULE)
    await _fail(stage, 4)
    stage.start(alerts=AlertSettings())
    await stage.pass_by(15)
    await stage.store.history.alerts.put_rule(replace(RULE, is_enabled=False))
    await stage.pass_by(15)

    assert _pending_notices(stage) == [("firing", "task:t"), ("resolved", "task:t")]


@pytest.mark.parametrize("tenant", ["", "acme"])
@run_by(play_one)
async def test_a_window_of_quarters_of_an_hour_contains_exactly_its_minutes(stage: Stage, /, tenant: str) -> None:
    now = minute_of(stage.clock.now_ms()) // QUARTER * QUARTER + 7 * MINUTE
    rule = replace(RULE, each="", tenant=tenant, window=3_600)
    silent = replace(rule, name="silent", metric="silence")
    other = replace(rule, name="other", tenant="other")
    for minute in range(-70, 2):
        keys = [RollupKey(now + minute * MINUTE, "t", "work", each) for each in ("acme", "other", "third")]
        found = {"dead": 1, **({"succeeded": 1} if minute == -33 else {})}
        await stage.store.history.rollups.add([Rollup(key, found) for key in keys])
    app = TaskMQ(f"memory://{stage.name}", name="shop")
    rules = [rule, silent, other]
    figures = AlertFigures(app, stage.store, LiveWorkers(), rules, now=now + 30_000)

    of_each = {each.name: (await figures.samples(each, ()))[""] for each in rules}  # type: ignore[index]

    # From the minute in which the window begins to the present one.
    assert of_each == {"fails": 61 * (1 if tenant else 3), "silent": 33 * 60 - 30, "other": 61}


@run_by(play_one)
async def test_other_loops_run_between_reading_figures(stage: Stage, /) -> None:
    """Schedulers dispatch jobs on the loop, so a window of many figures must not block it."""

    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    key = RollupKey(minute_of(stage.clock.now_ms()), "t", "work", "")
    await stage.store.history.rollups.add([Rollup(replace(key, task=f"t{number:04}")) for number in range(1_000)])
    for number in range(3):
        await stage.store.history.alerts.put_rule(replace(RULE, name=f"r{number}"))
    app = TaskMQ(f"memory://{stage.name}", name="shop")
    watch = AlertWatch(app, stage.store, stage.store.history.alerts, LiveWorkers(), AlertSettings(), me="a")

    turn()
    await watch.evaluate_all()

    # Three rules: 200 figures, samples and subjects each at a time.
    assert turns >= 45


@run_by(play_one)
async def test_a_channel_gets_severe_alerts_and_an_incident_service_one_alert_each(stage: Stage, /) -> None:
    # An address, since looking up a name may take longer than virtual time allows a thread.
    channels = (
        "mailto:a@b.c#critical",
        "slack+https://127.0.0.1/x#warning",
        "pagerduty+https://127.0.0.1/v2?routing_key=k",
    )
    for name, severity in (("bad", "critical"), ("fair", "warning")):
        rule = replace(RULE, name=name, severity=severity, channels=channels)
        await stage.store.history.alerts.put_rule(rule)
    await _fail(stage, 4)
    await _fail(stage, 5, task="u")
    stage.start(alerts=AlertSettings())
    await stage.pass_by(12)

    told = sorted(
        (each.rule.name, each.channel.partition(":")[0], len(each.changes))
        for each in await stage.store.history.alerts.notices()
    )
    assert told == [
        ("bad", "mailto", 2),
        *[("bad", "pagerduty+https", 1)] * 2,
        ("bad", "slack+https", 2),
        *[("fair", "pagerduty+https", 1)] * 2,
        ("fair", "slack+https", 2),
    ]
