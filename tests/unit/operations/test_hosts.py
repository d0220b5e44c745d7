"""Hosts of all workers in the list of nodes, with and without a store."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.app_api.nodes import list_hosts
from taskmq.cli.operator import OperatorApi
from taskmq.errors import BrokerUnavailable, InvalidOption, RequestRefused
from taskmq.model.nodes import NodeTold
from taskmq.model.units import milliseconds_in
from taskmq.operations.workers import list_workers
from taskmq.worker import Worker, WorkerConfig
from tests.unit.app_kit import new_url
from tests.unit.scheduler.stage import worker_event

pytestmark = pytest.mark.real_time


def _app(store: str | None = None, *, version: str | None = None) -> TaskMQ:
    app = TaskMQ(new_url(), store=store, version=version)

    @app.task(name="render", queue="pdf")
    async def render() -> None: ...

    return app


@asynccontextmanager
async def _working(app: TaskMQ, config: WorkerConfig) -> AsyncGenerator[None]:
    worker = Worker(app, config)
    async with app, asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await worker.is_ready.wait()
        yield
        worker.drain()


async def _record_heartbeats(app: TaskMQ) -> None:
    """Write the workers' statuses to the store, as a scheduler does with their heartbeats."""
    answers = await list_workers(app)
    await app.sessions.store().nodes.report_workers([answer.status for answer in answers])


async def test_a_worker_without_a_node_is_listed_by_its_host_without_a_store() -> None:
    app = _app()
    async with _working(app, WorkerConfig(concurrency=3, grace=5.0)):
        (listed,) = await OperatorApi(app).nodes.list()
        shown = await OperatorApi(app).nodes.get(socket.gethostname())

    assert (listed.name, listed.status, listed.queues) == (socket.gethostname(), "available", ["pdf"])
    assert (len(listed.workers), listed.running, listed.slots) == (1, 0, 3)
    assert (listed.capacity, listed.runs_jobs, bool(listed.version)) == ({}, False, True)
    assert (shown.name, shown.workers) == (listed.name, listed.workers)


async def test_workers_of_a_node_are_listed_with_what_the_store_knows_of_it(tmp_path: Path) -> None:
    app = _app(f"sqlite:///{tmp_path}/jobs.db")
    async with _working(app, WorkerConfig(concurrency=3, grace=5.0, node="gpu-1")):
        await app.sessions.store().nodes.report([NodeTold(name="gpu-1", capacity={"cpu": 8.0}, runs_jobs=True)])
        await _record_heartbeats(app)
        (gpu,) = await OperatorApi(app).nodes.list()

    assert gpu.name == "gpu-1"
    assert (gpu.capacity, gpu.runs_jobs, gpu.queues, gpu.slots) == (
        {"cpu": 8.0},
        True,
        ["pdf", "taskmq.node.gpu-1"],
        3,
    )
    assert len(gpu.workers) == 1


@pytest.mark.parametrize("is_in_code", [True, False])
async def test_the_version_of_an_app_is_shown_of_its_workers_and_their_host(
    monkeypatch: pytest.MonkeyPatch, *, is_in_code: bool
) -> None:
    if not is_in_code:
        monkeypatch.setenv("TASKMQ_APP_VERSION", "2026.11.30-1")
    app = _app(version="2026.11.30-1" if is_in_code else None)
    async with _working(app, WorkerConfig(grace=5.0)):
        (host,) = await OperatorApi(app).nodes.list()
        (worker,) = await OperatorApi(app).workers.list()

    assert (host.app_versions, worker.app_version, app.sessions.app_version) == (
        ["2026.11.30-1"],
        *["2026.11.30-1"] * 2,
    )


def test_an_app_with_an_invalid_version_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"^version=''"):
        _app(version="")


async def test_heartbeats_in_the_store_are_listed_without_the_broker(tmp_path: Path) -> None:
    app = TaskMQ("amqp://127.0.0.1:1", store=f"sqlite:///{tmp_path}/jobs.db", send_timeout="1s")
    workers = [worker_event(name=name, host="vm", slots=4, running=1, cpu=0.5, memory=2**30) for name in ("v", "w")]
    async with app:
        before = await app.sessions.store().now_ms()
        await app.sessions.store().nodes.report([NodeTold(name="gpu-1")])
        await app.sessions.store().nodes.report_workers([each.status for each in workers])
        node, host = await OperatorApi(app).nodes.list()

    assert (node.name, node.workers, node.status) == ("gpu-1", [], "available")
    assert (host.name, host.workers, host.queues) == ("vm", ["v", "w"], ["work"])
    assert (host.running, host.slots, host.cpu, host.memory) == (2, 8, 1.0, 2**31)
    assert (milliseconds_in(host.heartbeat_at or "") or 0) >= before


async def test_hosts_without_a_store_need_the_broker() -> None:
    async with TaskMQ("amqp://127.0.0.1:1", send_timeout="1s") as app:
        with pytest.raises(BrokerUnavailable):
            await list_hosts(app, within=0.01)


@pytest.mark.parametrize("has_store", [True, False])
async def test_a_host_without_resources_is_not_drained_but_its_workers(tmp_path: Path, has_store: bool) -> None:
    host = socket.gethostname()
    app = _app(f"sqlite:///{tmp_path}/jobs.db" if has_store else None)
    async with _working(app, WorkerConfig(concurrency=3, grace=5.0)):
        if has_store:
            await _record_heartbeats(app)
        with pytest.raises(RequestRefused, match=f"worker control drain --host {host}`") as refused:
            await OperatorApi(app).nodes.drain(host)
        with pytest.raises(RequestRefused, match="'other' not found") as unknown:
            await OperatorApi(app).nodes.drain("other")

    assert (refused.value.status, refused.value.code) == (409, "node_without_resources")
    assert (unknown.value.status, unknown.value.code) == (404, "node_not_found")
