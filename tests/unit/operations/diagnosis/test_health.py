import asyncio
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import Upgradable, partition_key
from taskmq.operations.diagnosis.health import LOSSES, PartHealth, examine_parts
from taskmq.worker import Worker, WorkerConfig
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time


async def _parts(app: TaskMQ) -> dict[str, PartHealth]:
    return {each.part: each for each in await examine_parts(app)}


async def test_an_app_without_a_store_has_no_component_that_needs_one() -> None:
    async with TaskMQ(new_url()) as app:
        found = await _parts(app)

    assert list(found) == list(LOSSES)
    assert {name: each.status for name, each in found.items()} == {
        "store": "absent",
        "broker": "works",
        "state": "works",
        "schedulers": "absent",
        "workers": "down",
    }


async def test_partitions_without_a_scheduler_are_a_degraded_component(tmp_path: Path) -> None:
    async with TaskMQ(new_url(), store=f"sqlite:///{tmp_path}/jobs.db") as app:
        store = app.sessions.store()
        assert isinstance(store, Upgradable)
        await store.upgrade()
        before = await _parts(app)
        lease = await store.dispatching.leases.acquire(partition_key(0), owner="one", seconds=60)
        after = await _parts(app)

    assert isinstance(lease, int)
    assert (before["schedulers"].status, after["schedulers"].status) == ("down", "partly")


async def test_a_queue_without_a_worker_is_a_degraded_component() -> None:
    app = TaskMQ(new_url())
    for queue in ("images", "mail"):

        @app.task(name=f"of.{queue}", queue=queue)
        async def work() -> None: ...

    worker = Worker(app, WorkerConfig(queues=("mail",), grace=5.0))
    async with app:
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        found = await _parts(app)
        worker.drain()
        await running

    assert found["workers"].status == "partly"
