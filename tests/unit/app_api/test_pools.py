"""Backlogs of tenants."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from taskmq.cli.operator import OperatorApi
from taskmq.contracts.jobs import JobRecord
from taskmq.model.topology import WorkQueue
from taskmq.operations.queues import pause_queues
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Process, Stage, play_one


@run_by(play_one)
async def test_backlogs_are_explained_ten_at_a_time(stage: Stage, /) -> None:
    tenants = [f"tenant {number}" for number in range(25)]
    process = await _start_with_backlogs(stage, tenants)
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


@run_by(play_one)
async def test_a_failed_explanation_stops_the_others(stage: Stage, /) -> None:
    process = await _start_with_backlogs(stage, ["acme", "globex", "initech"])
    begun: list[str] = []
    stopped: list[str] = []

    async def get_or_fail(job_id: str, *, connection: Any = None) -> JobRecord | None:
        begun.append(job_id)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 1 if len(begun) == 1 else None)
        finally:
            stopped.append(job_id)
        return None

    vars(process.store)["get"] = get_or_fail
    with pytest.raises(TimeoutError):
        await OperatorApi(process.app).pools.waiting()

    assert len(begun) == 3
    assert sorted(stopped) == sorted(begun)


async def _start_with_backlogs(stage: Stage, tenants: Sequence[str]) -> Process:
    """Start a scheduler with one waiting job of each tenant."""
    process = stage.start()
    await stage.broker.declare([WorkQueue("work")])
    await pause_queues(process.app, ["work"])
    for tenant in tenants:
        await stage.submit(tenant=tenant)
    return process
