"""Messages at the broker's size limit."""

import asyncio
from datetime import timedelta

import pytest

from taskmq import RetryPolicy, Snooze, TaskMQ
from taskmq.contracts.broker import Outgoing
from taskmq.model.topology import WorkQueue
from taskmq.operations.dead_letters import browse
from taskmq.worker import Worker, WorkerConfig


@pytest.mark.real_time
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        pytest.param(
            Snooze(timedelta(seconds=1)),
            marks=pytest.mark.nightly(
                "tests/unit/worker/settlement/test_settle_sizes.py::"
                "test_a_job_whose_next_attempt_would_not_fit_is_a_dead_letter_and_not_a_loop"
            ),
        ),
    ],
)
async def test_a_job_whose_next_attempt_would_not_fit_is_a_dead_letter_and_not_a_loop(error: Exception) -> None:
    app = TaskMQ(f"memory://settle-sizes-{type(error).__name__}")
    runs = 0

    async def fail(text: str) -> None:
        nonlocal runs
        runs += 1
        raise error

    app.task(name="fail", retry=RetryPolicy(max_attempts=3))(fail)
    worker = Worker(app, WorkerConfig())
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    session = app.sessions.current()
    await session.declare([WorkQueue("default")])
    before, after = b'{"task": "fail", "args": ["', b'"]}'
    body = before + b"x" * (session.broker.max_message_bytes - len(before) - len(after)) + after
    await session.publish(
        Outgoing(queue="default", body=body, content_type="application/json", job_id="big", task="fail")
    )
    async with asyncio.timeout(20):
        while not (letters := await browse(session.broker, "default", limit=2)):
            await asyncio.sleep(0)

    assert [(letter.job_id, letter.reason, letter.body == body) for letter in letters] == [("big", "error", True)]
    assert "TooLarge" in letters[0].error
    assert runs == 1
    worker.drain()
    await running
