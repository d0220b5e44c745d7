"""Policies, definitions and records of schedules."""

from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import TaskMQ
from taskmq.contracts.stores import KeptRecord
from taskmq.errors import InvalidOption, StateUnavailable
from taskmq.model.keys import scheduled_job_id
from taskmq.schedules import ScheduleEntry, SchedulePolicy, read_policy, rule_of
from taskmq.schedules.definition import read_definition, write_definition
from taskmq.schedules.record import Emitted, ScheduleRecord, decode_record, encode_record, new_version
from taskmq.schedules.triggers import Trigger, cron, every, once

_DAY = datetime(2027, 1, 31, 9, tzinfo=UTC)


def _app() -> TaskMQ:
    app = TaskMQ("memory://scheduling")

    @app.task(name="say")
    async def say(text: str, *, at: date | None = None) -> None: ...

    return app


@pytest.mark.parametrize(
    "trigger",
    [
        every("10s"),
        every("10s", phase="3s", start=_DAY, max_runs=7),
        cron("*/5 8-17 * * mon-fri", tz="Europe/Berlin", dst_gap="skip", dst_fold="both"),
        cron("H 3 * * *", exclude=["sat", "12-25", date(2027, 4, 2)], end=datetime(2030, 1, 1, tzinfo=UTC)),
        once(_DAY),
    ],
    ids=lambda trigger: trigger.describe(),
)
def test_a_definition_survives_its_round_trip(trigger: Trigger) -> None:
    app = _app()
    policy = read_policy(
        {"catchup": "all", "late_after": "90s", "overlap": "skip", "max_concurrency": 3}, schedule="x"
    )
    entry = ScheduleEntry("x", app.tasks["say"], trigger, ("hi",), {"at": date(2027, 1, 1)}, policy, is_dynamic=True)

    found = read_definition(write_definition(entry), name="x", tasks=app.tasks)

    assert (found.trigger, found.policy, found.task) == (trigger, policy, entry.task)
    assert (found.args, found.kwargs) == (("hi",), {"at": "2027-01-01"})
    assert rule_of(found.trigger) == rule_of(trigger)
    instant = 1_800_000_000_000
    assert found.trigger.next_after(instant) == trigger.next_after(instant)


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (b"no json", "its definition cannot be read"),
        (b'{"task": "other", "trigger": {}}', "this app has no task 'other'"),
        (b'{"task": "say", "trigger": {"type": "Moon"}}', "this taskmq has no trigger 'Moon'"),
        (b'{"task": "say", "trigger": {"type": "DstGap"}}', "this taskmq has no trigger 'DstGap'"),
        (b'{"task": "say", "trigger": {"type": "Every", "wobble": 1}}', r"Every knows no \['wobble'\]"),
        (
            b'{"task": "say", "trigger": {"type": "Every", "period": 1}, "policy": {"x": 1}}',
            "unknown option 'x'",
        ),
    ],
)
def test_a_definition_of_another_taskmq_is_refused_with_its_name(kept: bytes, words: str) -> None:
    with pytest.raises(InvalidOption, match=rf"schedule 'x': .*{words}"):
        read_definition(kept, name="x", tasks=_app().tasks)


def test_a_custom_trigger_cannot_be_stored() -> None:
    class Tide:
        def next_after(self, instant: int, /) -> int | None:
            return instant + 1

        def describe(self) -> str:
            return "at high tide"

    entry = ScheduleEntry("x", _app().tasks["say"], Tide(), ("hi",))

    with pytest.raises(InvalidOption, match=r"a trigger of class .*Tide cannot be stored"):
        write_definition(entry)
    # Its repr differs between processes, and it still counts as the same rule.
    assert rule_of(Tide()) == rule_of(Tide())


@given(
    options=st.fixed_dictionaries(
        {},
        optional={
            "catchup": st.sampled_from(["skip", "once", "all"]),
            "late_after": st.integers(0, 10**6),
            "catchup_window": st.integers(0, 10**6),
            "catchup_limit": st.integers(1, 10**6),
            "catchup_rate": st.integers(1, 100),
            "on_resume": st.sampled_from(["skip", "catchup"]),
            "jitter": st.integers(0, 1_000),
        },
    )
)
def test_a_policy_is_rebuilt_from_its_options(options: dict[str, Any]) -> None:
    policy = read_policy(options, schedule="x")

    assert read_policy(policy.as_options(), schedule="x") == policy


def test_a_policy_without_options_is_the_default() -> None:
    assert read_policy({}, schedule="x") == SchedulePolicy()
    assert SchedulePolicy().as_options() == {}


def test_a_record_survives_its_round_trip_and_remembers_the_last_twenty() -> None:
    record = ScheduleRecord(mark=5, rule="r")
    for number in range(30):
        record.remember(Emitted(number, number + 1, "due"))

    found = decode_record(KeptRecord(new_version(), encode_record(record)), name="x")

    assert found == record
    assert [one.instant for one in found.history] == list(range(10, 30))


def test_a_record_of_a_newer_taskmq_is_read_and_an_invalid_one_is_refused() -> None:
    newer = [*msgspec.msgpack.decode(encode_record(ScheduleRecord(mark=5))), "something new"]
    assert decode_record(KeptRecord("v", msgspec.msgpack.encode(newer)), name="x").mark == 5

    with pytest.raises(StateUnavailable, match="the record of schedule 'x' cannot be read"):
        decode_record(KeptRecord("v", b"\x01"), name="x")


def test_a_job_id_derives_from_app_schedule_instant_and_run() -> None:
    ids = {
        scheduled_job_id(app, schedule, instant, run)
        for app in ("a", "b")
        for schedule in ("x", "y")
        for instant in (1, 2)
        for run in ("", "backfill-1")
    }

    assert len(ids) == 16
    # Stored permanently: a replica of the next release has to derive the same.
    assert scheduled_job_id("shop", "nightly", 1_700_000_000_000) == (
        "taskmq:schedule:87f6bc4f-e244-5885-ae4d-8fc01bbae58d"
    )
