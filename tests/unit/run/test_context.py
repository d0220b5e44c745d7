from datetime import UTC, datetime

import pytest

from taskmq.model.envelope import Envelope
from taskmq.run.context import Context, current_context
from taskmq.run.facts import SCHEDULE_NAME, SCHEDULED_FOR


def context(envelope: Envelope | None = None, *, max_attempts: int = 5, deadline: float | None = None) -> Context:
    return Context(
        envelope or Envelope(task="shop.sell"),
        job_id="job-7",
        max_attempts=max_attempts,
        queue="sales",
        redelivered=True,
        _deadline=deadline,
    )


def test_a_context_describes_its_run() -> None:
    run = context(Envelope(task="shop.sell", attempt=2, tenant="acme", meta={"a": "b"}))

    assert (run.job_id, run.task, run.queue, run.redelivered) == ("job-7", "shop.sell", "sales", True)
    assert (run.attempt, run.max_attempts, run.tenant, run.meta) == (2, 5, "acme", {"a": "b"})
    assert repr(run) == "<Context shop.sell job=job-7 attempt=2/5>"


@pytest.mark.parametrize(("attempt", "is_last"), [(1, False), (4, False), (5, True), (6, True)])
def test_the_last_attempt_is_the_one_without_another_left(attempt: int, *, is_last: bool) -> None:
    assert context(Envelope(task="t", attempt=attempt)).is_last_attempt is is_last


def test_tenant_meta_and_timeout_are_optional() -> None:
    run = context()

    assert (run.tenant, run.meta, run.deadline) == (None, {}, None)


def test_the_default_meta_cannot_be_changed_for_all_runs() -> None:
    with pytest.raises(TypeError):
        context().meta["a"] = "b"  # type: ignore[index]


def test_the_deadline_is_an_instant_with_a_zone() -> None:
    assert context(deadline=0.5).deadline == datetime(1970, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)


def test_the_root_is_the_job_itself_unless_a_task_sent_it() -> None:
    assert context().root == "job-7"
    assert context(Envelope(task="t", root="job-1")).root == "job-1"


def test_a_run_is_cancelled_when_the_worker_says_so() -> None:
    run = context()
    before = run.cancelled
    run.mark_cancelled()

    assert not before
    assert run.cancelled


def test_a_scheduled_run_knows_its_schedule_and_its_nominal_instant() -> None:
    run = context(Envelope(task="t", meta={SCHEDULE_NAME: "hourly", SCHEDULED_FOR: "3600000"}))

    assert run.schedule == "hourly"
    assert run.scheduled_for == datetime(1970, 1, 1, 1, tzinfo=UTC)


def test_an_unscheduled_run_has_no_schedule() -> None:
    run = context()

    assert (run.schedule, run.scheduled_for) == (None, None)


def test_there_is_no_current_run_outside_a_run() -> None:
    assert current_context.get() is None


def test_a_detached_context_is_a_first_and_last_attempt_without_a_job() -> None:
    run = Context.create_detached("shop.sell")

    assert (run.task, run.job_id, run.queue, run.root, run.redelivered) == ("shop.sell", "", "", "", False)
    assert run.is_last_attempt
