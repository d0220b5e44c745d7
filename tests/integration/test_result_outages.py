"""A Redis that is killed while it stores results of running RabbitMQ jobs."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from taskmq import Context, TaskMQ
from taskmq.model import headers as header
from taskmq.worker import Worker, WorkerConfig
from tests.integration.raw_rabbitmq import Message, Raw
from tests.servers import Redis
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time, pytest.mark.timeout(90)]


class _Shop:
    """An app whose runs kill the Redis that should store their results."""

    def __init__(self, url: str, redis: Redis) -> None:
        self.redis = redis
        self.runs: list[int] = []
        self.is_down = False
        self.app = TaskMQ(url, state=redis.url, name="shop")
        self.app.task(name="charge", queue="work")(self._charge)
        self.app.task(name="charge_once", queue="work", ack="early")(self._charge)
        self.app.task(name="fail", queue="work", retry=None)(self._fail)

    async def _charge(self, context: Context, cents: int) -> int:
        self.runs.append(context.attempt)
        self._kill()
        return cents

    async def _fail(self, cents: int) -> None:
        self._kill()
        raise ValueError(f"{cents} cents")

    def _kill(self) -> None:
        if not self.is_down:
            self.is_down = True
            self.redis.kill()

    @asynccontextmanager
    async def working(self, **config: Any) -> AsyncGenerator[Worker]:
        worker = Worker(self.app, WorkerConfig(**config))
        running = asyncio.create_task(worker.run())
        try:
            await worker.is_ready.wait()
            yield worker
        finally:
            worker.drain()
            await running


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Start a server for the test."""
    with Redis() as server:
        yield server


async def test_a_job_runs_again_and_returns_its_result_once_redis_is_up(amqp_url: str, redis: Redis) -> None:
    shop = _Shop(amqp_url, redis)
    async with shop.app, shop.working(result_wait=1.0):
        job = await shop.app.tasks["charge"].asend(1250)
        await until(lambda: len(shop.runs) == 2)
        redis.restart()

        assert await job.aresult(60) == 1250
    assert set(shop.runs) == {1}


async def test_a_job_at_the_broker_counts_its_outages(amqp_url: str, redis: Redis) -> None:
    shop = _Shop(amqp_url, redis)
    async with shop.app:
        async with shop.working(result_wait=0.5, grace=0.0) as worker:
            await shop.app.tasks["charge"].asend(1250)
            await until(lambda: len(shop.runs) == 3 and worker.status().unsettled == 1)
        copy = await asyncio.to_thread(_take, amqp_url, "work")

    assert copy.properties.headers[header.OUTAGES] == 2
    assert json.loads(copy.body).get("attempt", 1) == 1


async def test_an_early_acknowledged_job_runs_once_and_is_a_dead_letter(amqp_url: str, redis: Redis) -> None:
    shop = _Shop(amqp_url, redis)
    async with shop.app, shop.working(result_wait=1.0):
        await shop.app.tasks["charge_once"].asend(1250)
        await until(lambda: _has_letter(shop.app))
        letter = await asyncio.to_thread(_take, amqp_url, "work.dlq")

    assert shop.runs == [1]
    assert letter.properties.headers[header.ERROR_TYPE] == "taskmq.errors.StateUnavailable"


async def test_a_failed_job_is_a_dead_letter_with_its_error(amqp_url: str, redis: Redis) -> None:
    shop = _Shop(amqp_url, redis)
    async with shop.app, shop.working(result_wait=1.0):
        await shop.app.tasks["fail"].asend(1250)
        await until(lambda: _has_letter(shop.app))
        letter = await asyncio.to_thread(_take, amqp_url, "work.dlq")

    assert letter.properties.headers[header.ERROR] == "ValueError: 1250 cents"


async def test_a_stopping_worker_requeues_the_job_after_its_grace_period(amqp_url: str, redis: Redis) -> None:
    shop = _Shop(amqp_url, redis)
    async with shop.app:
        async with shop.working(grace=0.2) as worker:
            await shop.app.tasks["charge"].asend(1250)
            await until(lambda: worker.status().unsettled == 1)
        redis.restart()

        async with shop.working():
            await until(lambda: len(shop.runs) == 2)
    assert shop.runs == [1, 1]


async def _has_letter(app: TaskMQ) -> bool:
    found = await app.sessions.current().broker.stats(["work.dlq"])
    return [stats.ready for stats in found] == [1]


def _take(url: str, queue: str) -> Message:
    with Raw(url) as raw:
        return raw.take(queue, within=30)
