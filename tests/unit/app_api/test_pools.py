"""Backlogs of tenants."""

from typing import Any

from taskmq.cli.operator import OperatorApi
from taskmq.contracts.jobs import JobRecord
from taskmq.model.topology import WorkQueue
from taskmq.operations.queues import pause_queues
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one


@run_by(play_one)
async def test_backlogs_are_explained_ten_at_a_time(stage: Stage, /) -> None:
    process = stage.start()
    await stage.broker.declare([WorkQueue("work")])
    await pause_queues(process.app, ["work"])
    tenants = [f"tenant {number}" for number in range(25)]
    for tenant in tenants:
        await stage.submit(tenant=tenant)
    get = process.store.get

    async def get_slowly(job_id: str, *, connection: Any = None) -> JobRecord | None:
        await stage.pass_by(1)
        return await get(job_id, connection=connection)

    vars(process.store)["get"] = get_slowly
    began = stage.clock.monotonic()
    found = await OperatorApi(process.app).pools.waiting(limit=25)

    assert [one.tenant for one in found] == tenants
    assert all("paused" in str(one.reasons) for one in found)
    assert 3 <= stage.clock.since(began) < 4
