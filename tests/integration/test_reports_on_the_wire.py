"""docs/wire.md, "Jobs of the store", implemented by a worker without taskmq code: an AMQP client and JSON."""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika  # type: ignore[import-untyped]
import pika.exceptions  # type: ignore[import-untyped]
import pytest

from taskmq import TaskMQ
from taskmq.errors import TaskFailed
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from tests.e2e.clients import amqplib_work
from tests.servers.waiting import until

pytestmark = pytest.mark.rabbitmq

_PATIENCE = 40.0

Work = Callable[[str, str, set[tuple[str, int]]], set[tuple[str, int]]]
"""A worker at a broker, for a queue, until these attempts have been reported."""


def _shop(url: str, store: Path, queue: str, **options: Any) -> TaskMQ:
    app = TaskMQ(url, store=f"sqlite:///{store}", name="shop", **options)
    for name in ("double", "fail", "flaky"):
        app.task(name=name, queue=queue)(_refuse_to_run)
    return app


def _refuse_to_run(number: int) -> int:
    raise AssertionError(f"{number}: only the other worker runs it")


class _ForeignWorker:
    """Consumes invitations of one queue and reports, as the page says."""

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._queue = f"{queue}.jobs"
        self.seen: list[tuple[str, int]] = []

    def run(self, last: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """Run invitations until these attempts have been reported; return the reported ones."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
                    self._run_all(connection, last)
                    return set(self.seen)
            except pika.exceptions.ConnectionClosedByBroker:
                # A quorum queue being declared exists before it can be consumed.
                if time.monotonic() >= end:
                    raise

    def _run_all(self, connection: Any, last: set[tuple[str, int]]) -> None:
        channel = self._consuming_channel(connection)
        # A scheduler without a confirm publishes the invitation again: their number proves nothing.
        for method, _, body in channel.consume(self._queue, inactivity_timeout=_PATIENCE):
            assert method is not None, f"no further invitation has arrived after {self.seen}"
            assert body is not None
            message = json.loads(body)
            report = self._run(message)
            queue = message["store"]["reports"]
            channel.basic_publish("taskmq.reports", queue, json.dumps([report]).encode(), mandatory=True)
            channel.basic_ack(method.delivery_tag)
            if last <= set(self.seen):
                break
        channel.cancel()

    def _consuming_channel(self, connection: Any) -> Any:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            channel = connection.channel()
            with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
                channel.queue_declare(self._queue, passive=True)
                channel.confirm_delivery()
                return channel
            # A scheduler declares it with the first job.
            connection.process_data_events(time_limit=0.05)
        raise AssertionError(f"{self._queue} was never declared")

    def _run(self, message: dict[str, Any]) -> dict[str, Any]:
        task, attempt = message["task"], message.get("attempt", 1)
        self.seen.append((task, attempt))
        report = {
            "id": message["store"]["id"],
            "token": message["store"]["token"],
            "attempt": attempt,
            "worker": "elsewhere",
            "started": int(time.time() * 1000),
            "ran": 3,
        }
        if message.get("v", 1) > 1:
            error = {"type_name": "Refused", "message": f"version {message['v']} of the message"}
            return report | {"kind": "refused", "started": None, "delay": 60_000, "error": error}
        (number,) = message["args"]
        if task == "fail":
            error = {"type_name": "RangeError", "message": "too large", "traceback": "at line 1"}
            return report | {"kind": "failed", "error": error}
        if task == "flaky" and attempt == 1:
            return report | {"kind": "retry", "delay": 50, "error": {"type_name": "Busy", "message": "later"}}
        value = base64.b64encode(json.dumps(number * 2).encode()).decode()
        return report | {"kind": "succeeded", "content_type": "application/json", "result": value}


@pytest.fixture
def queue() -> str:
    return f"wire-{uuid4().hex[:8]}"


def _work_by_pika(url: str, queue: str, attempts: set[tuple[str, int]]) -> set[tuple[str, int]]:
    return _ForeignWorker(url, queue).run(attempts)


def _work_by_node(url: str, queue: str, attempts: set[tuple[str, int]]) -> set[tuple[str, int]]:
    return amqplib_work(url, f"{queue}.jobs", len(attempts))


@pytest.mark.real_time
@pytest.mark.parametrize(("work", "name"), [(_work_by_pika, "elsewhere"), (_work_by_node, "node")])
async def test_a_worker_in_another_language_receives_invitations_and_reports_ends(
    amqp_url: str, tmp_path: Path, queue: str, work: Work, name: str
) -> None:
    scheduler = Scheduler(_shop(amqp_url, tmp_path / "jobs.db", queue))
    scheduling = asyncio.create_task(scheduler.run())
    try:
        async with _shop(amqp_url, tmp_path / "jobs.db", queue) as app:
            attempts = {("double", 1), ("fail", 1), ("flaky", 1), ("flaky", 2)}
            running = asyncio.create_task(asyncio.to_thread(work, amqp_url, queue, attempts))
            double = await app.jobs.asubmit("double", 21, job_id="order-17")
            flaky, fail = await app.jobs.asubmit("flaky", 4), await app.jobs.asubmit("fail", 1)

            assert await running == attempts
            assert await double.aresult(_PATIENCE) == 42
            assert await flaky.aresult(_PATIENCE) == 8
            with pytest.raises(TaskFailed, match="RangeError"):
                await fail.aresult(_PATIENCE)

            record = await app.jobs.aget(flaky.id)
            assert (record.state, record.attempt, record.worker) == (JobState.SUCCEEDED, 2, name)
            first, second = await app.jobs.aattempts(flaky.id)
            # Its worker measures neither.
            assert (second.state, second.processor_ms, second.peak_memory) == (JobState.SUCCEEDED, None, None)
            assert first.error is not None
            assert first.error.type_name == "Busy"
    finally:
        scheduler.stop()
        await scheduling


@pytest.mark.real_time
@pytest.mark.parametrize("work", [_work_by_pika, _work_by_node])
async def test_a_worker_in_another_language_refuses_arguments_that_it_cannot_load(
    amqp_url: str, tmp_path: Path, queue: str, work: Work
) -> None:
    elsewhere: dict[str, Any] = {"results_at": f"file://{tmp_path}/place", "args_inline": 1}
    scheduler = Scheduler(_shop(amqp_url, tmp_path / "jobs.db", queue, **elsewhere))
    scheduling = asyncio.create_task(scheduler.run())
    try:
        async with _shop(amqp_url, tmp_path / "jobs.db", queue, **elsewhere) as app:
            running = asyncio.create_task(asyncio.to_thread(work, amqp_url, queue, {("double", 1)}))
            job = await app.jobs.asubmit("double", 21)
            assert await running == {("double", 1)}

            async def refusals() -> list[str]:
                return [each.note for each in await app.jobs.ahistory(job.id) if each.kind == "refused"]

            async def is_refused() -> bool:
                return bool(await refusals())

            await until(is_refused)
            assert await refusals() == ["version 2 of the message"]
    finally:
        scheduler.stop()
        await scheduling
