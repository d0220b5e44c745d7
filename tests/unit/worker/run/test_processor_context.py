"""A task's view of its run, and early acknowledgement."""

import json
import logging
from datetime import UTC, datetime

import pytest

from taskmq import Context, RetryPolicy, TaskMQ
from taskmq.model.outcome import Interrupted, Succeeded
from taskmq.run.context import current_context
from taskmq.worker.attempt import Attempt
from tests.unit.worker.bench import NOW, add, bench, outcome_of
from tests.unit.worker.staged import FakeDelivery

pytestmark = pytest.mark.real_time


def test_the_context_tells_a_task_all_about_its_run() -> None:
    seen: list[Context] = []

    def define(app: TaskMQ) -> None:
        @app.task(name="look", timeout=60, retry=RetryPolicy(max_attempts=4))
        async def look(context: Context, a: int) -> None:
            seen.append(context)
            assert current_context.get() is context

    body = {
        "task": "look",
        "id": "job-1",
        "args": [1],
        "attempt": 4,
        "tenant": "acme",
        "root": "root-1",
        "meta": {"a": "b", "taskmq.schedule": "nightly", "taskmq.scheduled_for": str(NOW)},
    }
    outcome = outcome_of(define, body, queue="work.p.low", redelivered=True)

    assert outcome == Succeeded(None)
    (context,) = seen
    assert (context.job_id, context.task, context.queue) == ("job-1", "look", "work")
    assert (context.attempt, context.max_attempts, context.is_last_attempt) == (4, 4, True)
    assert context.redelivered
    assert (context.tenant, context.root, context.meta["a"]) == ("acme", "root-1", "b")
    assert context.deadline == datetime.fromtimestamp(NOW / 1000 + 60, UTC)
    assert (context.schedule, context.scheduled_for) == ("nightly", datetime.fromtimestamp(NOW / 1000, UTC))
    assert not context.cancelled


def test_a_task_without_retries_timeout_or_schedule_sees_that() -> None:
    seen: list[Context] = []

    def define(app: TaskMQ) -> None:
        @app.task(name="look", retry=None)
        def look(context: Context) -> None:
            seen.append(context)
            assert current_context.get() is context

    assert outcome_of(define, {"task": "look"}) == Succeeded(None)
    (context,) = seen
    assert (context.max_attempts, context.is_last_attempt, context.deadline) == (1, True, None)
    assert (context.schedule, context.scheduled_for, context.tenant, dict(context.meta)) == (None, None, None, {})
    assert context.root == context.job_id == "job-1"


async def test_the_attempt_knows_when_its_function_was_called() -> None:
    with bench(add) as it:
        attempt = it.processor.read(FakeDelivery(b'{"task":"add","args":[1]}'))
        assert isinstance(attempt, Attempt)
        assert attempt.started is None
        it.clock.advance(1)

        await it.processor.run(attempt)

        assert attempt.started == NOW + 1000


def _early(app: TaskMQ, delivery: FakeDelivery, seen: list[object]) -> None:
    @app.task(name="early", ack="early")
    async def early(a: int = 1) -> None:
        seen.append(delivery.settled)


@pytest.mark.parametrize(
    ("fields", "settled"),
    [
        ({}, "acked"),
        # Not started: the settler makes its outcome durable first, as for any other task.
        ({"eta": NOW + 60_000}, None),
        ({"expires": NOW}, None),
        ({"args": ["x"]}, None),
    ],
)
async def test_a_task_with_early_ack_is_acknowledged_right_before_its_function_is_called(
    fields: dict[str, object], settled: str | None
) -> None:
    delivery = FakeDelivery(json.dumps({"task": "early", **fields}).encode())
    seen: list[object] = []
    with bench(lambda app: _early(app, delivery, seen)) as it:
        attempt = it.processor.read(delivery)
        assert isinstance(attempt, Attempt)

        await it.processor.run(attempt)

    assert delivery.settled == settled
    assert seen == ([settled] if settled else [])


async def test_a_task_with_early_ack_is_not_run_without_the_confirm_of_the_broker() -> None:
    class Lost(FakeDelivery):
        async def ack_confirmed(self) -> bool:
            return False

    delivery = Lost(b'{"task":"early"}')
    seen: list[object] = []
    with bench(lambda app: _early(app, delivery, seen)) as it:
        attempt = it.processor.read(delivery)
        assert isinstance(attempt, Attempt)

        outcome = await it.processor.run(attempt)

    assert outcome == Interrupted()
    assert seen == []


async def test_a_late_ack_is_not_sent_by_the_processor() -> None:
    delivery = FakeDelivery(b'{"task":"add","args":[1]}')
    with bench(add) as it:
        attempt = it.processor.read(delivery)
        assert isinstance(attempt, Attempt)
        await it.processor.run(attempt)

    assert delivery.settled is None


def test_running_a_task_logs_nothing_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="taskmq"):
        assert outcome_of(add, {"task": "add", "args": [1]}) == Succeeded(2)

    assert not caplog.records
