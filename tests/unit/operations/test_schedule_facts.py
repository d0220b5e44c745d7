"""The description of a schedule, and other rules for it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from taskmq import TaskMQ, chain
from taskmq.errors import InvalidOption
from taskmq.operations.schedule_facts import amend_trigger, build_trigger, schedule_facts, trigger_fields
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.policy import SchedulePolicy
from taskmq.schedules.target import read_target
from taskmq.schedules.triggers import Cron, Limited, Trigger, cron, every, once

_MOMENT = datetime(2027, 1, 31, 9, tzinfo=UTC)


class _Never:
    """A custom trigger."""

    def next_after(self, instant: int, /) -> int | None: ...

    def describe(self) -> str:
        return "never"


def _entry(trigger: Trigger, **options: Any) -> ScheduleEntry:
    app = TaskMQ("memory://")

    @app.task(name="say")
    def say(text: str, *, on: datetime | None = None) -> None: ...

    return ScheduleEntry("s", say, trigger, args=("hello",), kwargs={"on": _MOMENT}, **options)


@pytest.mark.parametrize(
    ("trigger", "rule"),
    [
        (cron("30 2 * * *", tz="Europe/Berlin"), {"cron": "30 2 * * *"}),
        (every("1.5s"), {"every": 1.5}),
        (once(_MOMENT), {"at": "2027-01-31T09:00:00.000Z"}),
        (every("1h", start=_MOMENT), {"every": 3600.0, "start": "2027-01-31T09:00:00.000Z"}),
        (cron("0 1 * * *", end=_MOMENT), {"cron": "0 1 * * *", "end": "2027-01-31T09:00:00.000Z"}),
        (_Never(), {}),
    ],
)
def test_a_rule_is_shown_in_its_own_syntax(trigger: Trigger, rule: dict[str, Any]) -> None:
    facts = schedule_facts(_entry(trigger))

    assert {key: facts[key] for key in ("cron", "every", "at", "start", "end") if facts[key] is not None} == rule


def test_policy_and_arguments_are_plain_data() -> None:
    policy = SchedulePolicy(catchup="all", late_after=5_000, jitter=90_000, overlap="skip")

    facts = schedule_facts(_entry(every("1h"), policy=policy))

    assert facts["task"] == "say"
    assert (facts["args"], facts["kwargs"]) == (["hello"], {"on": "2027-01-31T09:00:00Z"})
    assert (facts["catchup"], facts["late_after"], facts["jitter"], facts["overlap"]) == ("all", 5.0, 90.0, "skip")


def test_a_workflow_has_no_task_and_no_arguments_to_show() -> None:
    app = TaskMQ("memory://")
    app.task(name="tick")(lambda: None)
    tick = app.tasks["tick"]
    flow: Any = chain(tick.si(), tick.si())
    target = read_target(flow, args=(), kwargs={}, schedule="s")
    facts = schedule_facts(ScheduleEntry("s", tick, every("1h"), workflow=target.workflow))

    assert (facts["task"], facts["args"], facts["kwargs"]) == (None, None, None)


def test_a_new_expression_keeps_the_time_zone_and_the_limits() -> None:
    present = cron("30 2 * * *", tz="Europe/Berlin", dst_gap="skip", end=_MOMENT)

    changed = amend_trigger(present, {"cron": "45 2 * * *"})

    assert isinstance(changed, Limited)
    assert changed == cron("45 2 * * *", tz="Europe/Berlin", dst_gap="skip", end=_MOMENT)
    moved = amend_trigger(present, {"tz": "Europe/Paris"})
    assert moved == cron("30 2 * * *", tz="Europe/Paris", dst_gap="skip", end=_MOMENT)


def test_a_rule_of_another_kind_replaces_the_first() -> None:
    assert amend_trigger(every("1h"), {"cron": "0 3 * * *", "tz": "Europe/Berlin"}) == Cron(
        "0 3 * * *", "Europe/Berlin"
    )
    assert amend_trigger(every("1h"), {"cron": "0 3 * * *"}) == Cron("0 3 * * *")
    assert amend_trigger(cron("0 3 * * *"), {"every": "15m"}) == every("15m")
    assert amend_trigger(cron("0 3 * * *"), {"at": _MOMENT}) == once(_MOMENT)


@pytest.mark.parametrize("present", [every("1h"), every("1h", end=datetime(2999, 1, 1, tzinfo=UTC))])
def test_a_change_without_a_rule_keeps_it(present: Trigger) -> None:
    assert amend_trigger(present, {}) is present


def test_an_invalid_rule_is_refused() -> None:
    with pytest.raises(InvalidOption, match="give at most one of cron, every and at"):
        amend_trigger(every("1h"), {"cron": "0 3 * * *", "every": "1h"})
    with pytest.raises(InvalidOption, match="tz has no effect with every: leave it out"):
        amend_trigger(every("1h"), {"tz": "Europe/Berlin"})
    with pytest.raises(InvalidOption, match="60"):
        amend_trigger(cron("0 3 * * *"), {"cron": "60 3 * * *"})


def test_every_field_of_a_rule_is_shown_and_builds_the_same_rule() -> None:
    days = ["mon", "12-25", "2027-04-03"]
    for trigger in (
        cron("5 30 2 * * *", seconds=True, tz="Europe/Paris", dst_gap="skip", dst_fold="both", both_days=True),
        cron("0 1 * * *", start=_MOMENT, max_runs=3, exclude=days),
        every("1h", phase="5m", end=datetime(2999, 1, 1, tzinfo=UTC)),
        once(_MOMENT),
    ):
        assert build_trigger(trigger_fields(trigger)) == trigger
    facts = schedule_facts(_entry(cron("0 1 * * *", exclude=days)))
    assert facts["exclude"] == days
    assert trigger_fields(_Never()) == {}


def test_a_new_period_or_anchor_replaces_the_phase() -> None:
    present = every("1h", phase="5m", start=_MOMENT)

    assert amend_trigger(present, {"every": "1m"}) == every("1m", start=_MOMENT)
    assert amend_trigger(present, {"anchor": _MOMENT}) == every("1h", anchor=_MOMENT, start=_MOMENT)
    assert amend_trigger(present, {"max_runs": 2}) == every("1h", phase="5m", start=_MOMENT, max_runs=2)
