"""The health of each component in the API, over a real RabbitMQ, Redis and PostgreSQL that hang and stop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest

from taskmq import TaskMQ
from taskmq.operations.diagnosis import health as diagnosis
from taskmq.operations.diagnosis.health import examine_parts
from taskmq.scheduler import Scheduler
from taskmq.server import build
from taskmq.worker import Worker, WorkerConfig
from tests.servers import TcpProxy
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time, pytest.mark.timeout(120)]

_Health = Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]


class _Ways:
    """The servers of an app, each behind a proxy that a test can stall or break."""

    def __init__(self, amqp_url: str, redis_url: str, store_url: str) -> None:
        self._stack = ExitStack()
        self.broker, broker = self._open_proxy(amqp_url)
        self.state, state = self._open_proxy(redis_url)
        self.store, store = self._open_proxy(store_url)
        self.urls = {"url": broker, "state": state, "store": store}

    def _open_proxy(self, url: str) -> tuple[TcpProxy, str]:
        parts = urlsplit(url)
        assert parts.port is not None
        proxy = self._stack.enter_context(TcpProxy(parts.port))
        return proxy, url.replace(f":{parts.port}", f":{proxy.port}")

    def app(self) -> TaskMQ:
        app = TaskMQ(self.urls["url"], state=self.urls["state"], store=self.urls["store"], name="healthy")

        @app.task(name="render", queue="pdf")
        async def render() -> None: ...

        return app

    def close(self) -> None:
        for proxy in (self.broker, self.state, self.store):
            proxy.stall(stalled=False)
        self._stack.close()


@pytest.fixture
def ways(amqp_url: str, redis_url: str, job_store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Ways]:
    monkeypatch.setattr(diagnosis, "_TIMEOUT", 1.0)
    monkeypatch.setattr(diagnosis, "_WORKERS_ANSWER", 0.25)
    opened = _Ways(amqp_url, redis_url, job_store_url)
    yield opened
    opened.close()


@asynccontextmanager
async def _serve_app(ways: _Ways) -> AsyncGenerator[_Health]:
    """Serve the app; return the components by name, as an anonymous caller sees them."""
    served = build(ways.app())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(served.lifespan())
        transport = httpx.ASGITransport(cast("Any", served))
        client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://here"))

        async def health() -> Mapping[str, Mapping[str, Any]]:
            answer = await client.get("/api/v1/health")
            assert answer.status_code == 200, answer.text
            report = answer.json()
            parts = {part["part"]: part for part in report["parts"]}
            assert report["works"] is not any(part["status"] in {"down", "partly"} for part in parts.values())
            return parts

        yield health


def _are(health: _Health, **expected: str) -> Callable[[], Awaitable[bool]]:
    async def hold() -> bool:
        parts = await health()
        return {name: parts[name]["status"] for name in expected} == expected

    return hold


async def test_a_hanging_component_is_down_and_the_others_are_still_reported(ways: _Ways) -> None:
    async with _serve_app(ways) as health:
        before = await health()
        assert [before[name]["status"] for name in ("store", "broker", "state")] == ["works"] * 3

        ways.state.stall(stalled=True)
        await until(_are(health, state="down", store="works", broker="works"))
        parts = await health()
        assert parts["state"]["finding"] in {"did not answer within 1 s", "does not answer"}
        assert parts["state"]["without"].startswith("no results, progress, checkpoints, pauses")
        assert parts["state"]["since"] > before["state"]["since"]
        assert parts["store"]["since"] == before["store"]["since"]

        ways.state.stall(stalled=False)
        await until(_are(health, state="works"))


@pytest.mark.nightly(
    "tests/integration/test_health.py::test_a_hanging_component_is_down_and_the_others_are_still_reported"
)
async def test_workers_are_unknown_while_the_broker_is_down(ways: _Ways) -> None:
    async with _serve_app(ways) as health:
        await until(_are(health, broker="works", workers="down"))

        ways.broker.refuse(refused=True)
        ways.broker.cut()
        await until(_are(health, broker="down", workers="unknown", store="works", state="works"))
        assert (await health())["workers"]["finding"] == "cannot be checked while the broker does not answer"

        ways.broker.refuse(refused=False)
        await until(_are(health, broker="works", workers="down"))


@pytest.mark.nightly(
    "tests/integration/test_health.py::test_a_hanging_component_is_down_and_the_others_are_still_reported"
)
async def test_schedulers_are_unknown_while_the_store_is_down(ways: _Ways) -> None:
    async with _serve_app(ways) as health:
        await until(_are(health, store="works", schedulers="down"))

        ways.store.stall(stalled=True)
        await until(_are(health, store="down", schedulers="unknown", broker="works", state="works"))

        ways.store.stall(stalled=False)
        await until(_are(health, store="works", schedulers="down"))


async def test_schedulers_and_workers_are_healthy_once_they_run(ways: _Ways) -> None:
    scheduler = Scheduler(ways.app())
    worker = Worker(ways.app(), WorkerConfig(concurrency=1, grace=5.0))
    async with _serve_app(ways) as health:
        runs = [asyncio.create_task(scheduler.run()), asyncio.create_task(worker.run())]
        await until(_are(health, schedulers="works", workers="works"))

        worker.drain()
        await runs[1]
        await until(_are(health, schedulers="works", workers="down"))
        assert (await health())["workers"]["finding"] == "no worker answered within 0.25 s"

        scheduler.stop()
        await runs[0]
        await until(_are(health, schedulers="down"))
        assert (await health())["schedulers"]["finding"] == "no scheduler runs: start `taskmq scheduler`"


async def test_a_store_without_tables_is_down_with_a_remedy(postgres_url: str) -> None:
    async with TaskMQ("memory://", store=postgres_url) as app:

        async def is_named() -> bool:
            found = {each.part: each for each in await examine_parts(app)}
            expected = ("store", "down", "has the tables of another version: run `taskmq store upgrade`")
            return found["store"][:3] == expected and found["schedulers"].status == "unknown"

        await until(is_named)
