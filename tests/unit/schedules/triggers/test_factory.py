from datetime import UTC, datetime
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.errors import InvalidOption
from taskmq.schedules.triggers import Cron, DaysOff, Every, Limited, cron

_START = datetime(2027, 1, 1, tzinfo=UTC)
_START_MS = int(_START.timestamp()) * 1000


@pytest.fixture
def app() -> TaskMQ:
    return TaskMQ("memory://")


def test_a_cron_schedule_decorates_its_task(app: TaskMQ) -> None:
    @app.cron("*/5 * * * *", tz="Europe/Paris")
    @app.task
    def tick() -> int:
        return 1

    assert tick() == 1
    assert app.schedules[tick.name].trigger == Cron("*/5 * * * *", "Europe/Paris")


def test_every_option_reaches_the_rule_or_the_policy(app: TaskMQ) -> None:
    @app.cron(
        "*/10 0 2 * * *", name="a", tz="Europe/Paris", seconds=True, dst_gap="skip", dst_fold="both", both_days=True,
        start=_START, max_runs=2, exclude=["sat"], jitter="5m", catchup="all",
    )  # fmt: skip
    @app.every("1h", name="b", phase="5m", end=_START, jitter="1s")
    @app.every("1d", name="c", anchor=_START)
    @app.task
    def tick() -> None: ...

    assert app.schedules["a"].trigger == Limited(
        Cron("*/10 0 2 * * *", "Europe/Paris", seconds=True, dst_gap="skip", dst_fold="both", both_days=True),
        start=_START_MS,
        max_runs=2,
        days_off=DaysOff(weekdays=(5,)),
    )
    assert (app.schedules["a"].policy.jitter, app.schedules["a"].policy.catchup) == (300_000, "all")
    assert app.schedules["b"].trigger == Limited(Every(3_600_000, 300_000), end=_START_MS)
    assert app.schedules["b"].policy.jitter == 1000
    assert app.schedules["c"].trigger == Every(86_400_000, 0)


def test_h_is_computed_from_the_name_of_the_schedule(app: TaskMQ) -> None:
    @app.cron("H H * * *")
    @app.cron("H H * * *", name="other", exclude=["sat"])
    @app.task(name="tick")
    def tick() -> None: ...

    assert app.schedules["tick"].trigger == Cron("H H * * *", hash_id="tick")
    limited = app.schedules["other"].trigger
    assert isinstance(limited, Limited)
    assert limited.trigger == Cron("H H * * *", hash_id="other")


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda app: app.cron("0 0 30 2 *"), "never due"),
        (lambda app: app.cron("* * * * * *"), "six fields"),
        (lambda app: app.cron("* * * * *", tz="Mars/Olympus"), "is not a time zone"),
        (lambda app: app.cron("* * * * *", max_runs=1), "needs start="),
        (lambda app: app.every("50ms"), "at least 100 ms"),
    ],
)
def test_an_invalid_schedule_is_refused_at_its_definition(app: TaskMQ, define: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        define(app)


def test_an_unknown_option_is_refused(app: TaskMQ) -> None:
    def tick() -> None: ...

    with pytest.raises(InvalidOption, match="unknown option 'zone'"):
        app.cron("* * * * *", zone="Europe/Paris")(app.task(tick))  # type: ignore[call-arg]


def test_a_schedule_of_any_rule_survives_the_state() -> None:
    with TaskMQ("memory://survives") as app:

        @app.task(name="tick")
        def tick() -> None: ...

        rule = cron("H 2 * * *", tz="Europe/Paris", start=_START, max_runs=3, exclude=["sat", "12-25", "2027-04-03"])
        app.schedules.add("a", tick, rule, jitter="5m")
        (kept,) = app.schedules.all().values()

    assert isinstance(kept.trigger, Limited)
    assert isinstance(rule, Limited)
    assert kept.trigger == Limited(
        Cron("H 2 * * *", "Europe/Paris", hash_id="a"), start=rule.start, max_runs=3, days_off=rule.days_off
    )
    assert kept.policy.jitter == 300_000
