"""Reachability of names: through the client, over a socket, at a running server."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from litestar.connection import ASGIConnection

from taskmq import TaskMQ, WorkQueue
from taskmq.api.schedules import PutScheduleBody
from taskmq.errors import InvalidOption
from taskmq.http import Client
from taskmq.model.identity import Identity
from taskmq.server import ServerSettings
from taskmq.server.process import ServerProcess
from tests.servers import eventually
from tests.unit.app_kit import new_url
from tests.unit.server.kit import CALLERS, build_served, define

_NAMES = [
    "2027/01", "reports/yearly", "/", "a/", "/a", "a//b", "../x", "./.", "...", "50%", "a%2Fb", "%2e%2e", "ä ö",
    "?x=1", "#x", "a;b=c", "a+b", "\\", "'\"<>", "*", "~", "日本",
]  # fmt: skip
_QUEUES = ["team/images", "a//b", "50%", "ä ö", "?x=1", "#x", "a;b=c"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("names")
    queues = [WorkQueue(name) for name in _QUEUES]
    app = TaskMQ(new_url(), store=f"sqlite:///{folder}/jobs.db?synchronous=normal", queues=queues)
    define(app)

    async def declare() -> None:
        async with app:
            await app.sessions.current().broker.declare(queues)

    asyncio.run(declare())

    async def identify(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
        return CALLERS[connection.headers["authorization"].removeprefix("Bearer ")]

    settings = ServerSettings(port=0, rate=0)
    process = ServerProcess(build_served(app, identify=identify, settings=settings), settings)
    found: SimpleQueue[tuple[asyncio.AbstractEventLoop, str]] = SimpleQueue()

    async def serve() -> None:
        await process.run(on_ready=lambda address: found.put((asyncio.get_running_loop(), address)))

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, serve())
        eventually(lambda: running.done() or not found.empty(), "a server that answers")
        loop, address = found.get()
        try:
            with Client(address.rstrip("/"), token="all-admin") as opened:
                yield opened
        finally:
            loop.call_soon_threadsafe(process.stop)
            running.result(40)


@pytest.mark.parametrize("name", _NAMES)
def test_a_job_is_reached_by_its_name(client: Client, name: str) -> None:
    client.jobs.submit("data_processing", job_id=name, held=True)

    assert client.jobs.get(name).job_id == name
    client.jobs.history(name)
    assert client.jobs.cancel(name).job_id == name


@pytest.mark.parametrize("name", _NAMES)
def test_a_schedule_is_reached_by_its_name(client: Client, name: str) -> None:
    client.schedules.put(name, PutScheduleBody(task="data_processing", every="1h"))

    assert client.schedules.get(name).name == name
    assert client.schedules.pause(name).paused is not None
    assert client.schedules.resume(name).paused is None
    assert len(client.schedules.next(name)) == 5
    client.schedules.remove(name)


@pytest.mark.parametrize("name", _QUEUES)
def test_a_queue_is_reached_by_its_name(client: Client, name: str) -> None:
    client.queues.pause(name)

    assert client.queues.get(name, within=0.01).paused is not None
    client.queues.resume(name)


@pytest.mark.parametrize("name", [".", "..", "count", "counts", "histogram"])
def test_a_job_name_that_no_path_can_contain_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InvalidOption, match="has a special meaning"):
        client.jobs.submit("data_processing", job_id=name)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_schedule_name_that_no_path_can_contain_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InvalidOption, match="has a special meaning"):
        client.schedules.put(name, PutScheduleBody(task="data_processing", every="1h"))
