"""Task activity, counted from events."""

import pytest

from taskmq.model.telemetry.events import JobEvent
from taskmq.operations.activity import Activity, TaskActivity


def job(event: str, task: str = "pay", *, seconds: float | None = None, waited: float | None = None) -> JobEvent:
    return JobEvent(
        event=event, number=1, at=0, job_id="j", task=task, queue="default", seconds=seconds, waited=waited
    )


def test_each_end_is_counted_by_its_kind() -> None:
    activity = Activity(now=100.0)
    ends = ("succeeded", "answered", "dead", "retried", "cancelled")
    for end in ends:
        activity.note(job(end), now=101.0)

    assert activity.tasks(now=105.0) == [
        TaskActivity(task="pay", per_second=1.0, succeeded=2, failed=1, retried=1, cancelled=1)
    ]


@pytest.mark.parametrize("event", ["started", "snoozed", "interrupted", "parked"])
def test_other_events_are_not_counted_as_ends(event: str) -> None:
    activity = Activity(now=0.0)
    activity.note(job(event), now=1.0)

    assert activity.tasks(now=2.0) == []


def test_waits_and_runs_are_averaged_by_task() -> None:
    activity = Activity(now=0.0)
    activity.note(job("started", waited=1.0), now=1.0)
    activity.note(job("started", waited=3.0), now=1.5)
    activity.note(job("succeeded", seconds=0.5), now=2.0)
    activity.note(job("dead", seconds=1.5), now=2.0)
    activity.note(job("succeeded", "mail", seconds=9.0), now=3.0)

    pay, mail = activity.tasks(now=10.0)

    assert (pay.task, pay.per_second, pay.mean_wait, pay.mean_run, pay.longest_run) == ("pay", 0.2, 2.0, 1.0, 1.5)
    assert (mail.task, mail.mean_wait, mail.mean_run) == ("mail", None, 9.0)


def test_activity_is_forgotten_after_a_minute() -> None:
    activity = Activity(now=0.0)
    activity.note(job("succeeded"), now=10.2)
    activity.note(job("succeeded"), now=40.0)

    assert [each.succeeded for each in activity.tasks(now=69.9)] == [2]
    assert [each.succeeded for each in activity.tasks(now=70.1)] == [1]
    assert activity.tasks(now=100.0) == []


def test_less_than_a_second_of_activity_has_no_rate() -> None:
    activity = Activity(now=0.0)
    activity.note(job("succeeded"), now=0.1)

    assert [each.per_second for each in activity.tasks(now=0.2)] == [1.0]
