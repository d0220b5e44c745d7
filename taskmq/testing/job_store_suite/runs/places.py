"""Tests of `max_active_runs`: places of runs."""

import asyncio
from typing import Any

from msgspec.structs import replace

from taskmq.contracts.jobs import NewInboxRow, Retaining, RunFilter, RunPlace
from taskmq.model.runs.records import RunState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from taskmq.testing.runner import case

_TASK: dict[str, Any] = {"s": {"task": "t"}}


class RunPlaces(JobStoreCase):
    """Queues of runs whose workflow limits them."""

    @case
    async def test_runs_above_the_limit_wait_and_begin_in_the_order_of_their_starts(self) -> None:
        driver = RunDriver(self.store())
        runs = [await _start(driver, 2) for _ in range(4)]
        await driver.settle()
        # The order of transitions is of no effect.
        for run in reversed(runs[2:]):
            await driver.advance(run)

        assert await _states(driver, runs) == ["running", "running", "queued", "queued"]
        assert await driver.states(runs[2]) == {}
        waiting = [await driver.runs.place(run) for run in runs]
        assert waiting == [
            None,
            None,
            RunPlace(active=2, most=2, ahead=0),
            RunPlace(active=2, most=2, ahead=1),
        ]
        assert (await driver.run(runs[0])).begun is not None
        assert (await driver.run(runs[2])).begun is None
        await driver.finish(runs[1], "s")
        assert await _states(driver, runs) == ["running", "succeeded", "running", "queued"]
        await driver.finish(runs[0], "s", "failed")
        await driver.finish(runs[2], "s")
        await driver.finish(runs[3], "s")
        assert await _states(driver, runs) == ["failed", "succeeded", "succeeded", "succeeded"]
        assert await driver.runs.pending(limit=10) == []

    @case
    async def test_runs_begin_in_the_order_of_their_starts_whichever_is_advanced_first(self) -> None:
        driver = RunDriver(self.store())
        runs = [await _start(driver, 1) for _ in range(3)]
        waiting = [await driver.runs.place(run) for run in runs]
        assert waiting == [RunPlace(active=0, most=1, ahead=ahead) for ahead in range(3)]

        advanced = await driver.advance(runs[2])

        assert advanced[runs[2]].woken == (runs[0],)
        await driver.settle()
        assert await _states(driver, runs) == ["running", "queued", "queued"]
        assert await driver.runs.place(runs[2]) == RunPlace(active=1, most=1, ahead=1)

    @case
    async def test_a_run_that_is_cancelled_before_its_first_transition_gives_its_place_back(self) -> None:
        driver = RunDriver(self.store())
        runs = [await _start(driver, 1) for _ in range(2)]
        assert await driver.runs.send(runs[0], NewInboxRow(kind="cancel", id="c", error="stop"))

        # The first run gets the place, and ends before it begins.
        await driver.advance(runs[1])
        await driver.settle()

        assert await _states(driver, runs) == ["cancelled", "running"]

    @case
    async def test_the_end_of_a_run_wakes_the_next_one_in_its_transaction(self) -> None:
        driver = RunDriver(self.store())
        waits = content_of({"s": {"wait": "go"}}, max_active_runs=1)
        first, second = [await driver.start(content=waits) for _ in range(2)]
        await driver.settle()
        await driver.runs.send(first, NewInboxRow(kind="signal", name="go"))

        advanced = await driver.advance(first)

        assert (advanced[first].woken, await driver.runs.pending(limit=10)) == ((second,), [second])
        assert await _states(driver, [first, second]) == ["succeeded", "queued"]
        await driver.advance(second)
        assert await driver.states(second) == {"s": "running"}

    @case
    async def test_a_cancelled_queued_run_ends_without_a_job_and_leaves_the_queue(self) -> None:
        driver = RunDriver(self.store())
        runs = [await _start(driver, 1) for _ in range(3)]
        await driver.settle()

        assert await driver.send(runs[1], NewInboxRow(kind="cancel", id="c", error="stop")) == "accepted"

        assert await _states(driver, runs) == ["running", "cancelled", "queued"]
        assert (await driver.step(runs[1], "s")).job == ""
        assert await driver.runs.place(runs[2]) == RunPlace(active=1, most=1, ahead=0)
        await driver.finish(runs[0], "s")
        assert await _states(driver, runs) == ["succeeded", "cancelled", "running"]

    @case
    async def test_a_redriven_run_takes_a_place_or_waits_for_one(self) -> None:
        driver = RunDriver(self.store())
        runs = [await _start(driver, 1) for _ in range(3)]
        await driver.settle()
        await driver.finish(runs[0], "s", "failed")

        assert await driver.send(runs[0], NewInboxRow(kind="redrive", id="r")) == "accepted"

        # It started before the last one.
        assert await _states(driver, runs) == ["queued", "running", "queued"]
        await driver.finish(runs[1], "s")
        assert await _states(driver, runs) == ["running", "succeeded", "queued"]
        await driver.finish(runs[0], "s", "failed")
        await driver.finish(runs[2], "s")
        assert await driver.send(runs[0], NewInboxRow(kind="redrive", id="again")) == "accepted"
        assert await _states(driver, runs) == ["running", "succeeded", "succeeded"]

    @case
    async def test_each_tenant_and_each_workflow_has_places_of_its_own(self) -> None:
        driver = RunDriver(self.store())
        for fields in ({}, {"tenant": "acme"}, {"workflow": "other"}):
            await _start(driver, 1, **fields)
        queued = await _start(driver, 1, tenant="acme")
        unlimited = [await driver.start(_TASK) for _ in range(2)]

        await driver.settle()

        assert await _states(driver, unlimited) == ["running", "running"]
        page = await driver.runs.list_runs(RunFilter(states=(RunState.QUEUED,)))
        assert [run.id for run in page.runs] == [queued]

    @case
    async def test_the_limit_of_the_run_that_started_last_counts(self) -> None:
        driver = RunDriver(self.store())
        await driver.runs.put_workflow("", "w", content_of(_TASK, max_active_runs=1))
        before = [await driver.start(workflow="w") for _ in range(4)]
        await driver.settle()
        assert sorted(await _states(driver, before)) == ["queued", "queued", "queued", "running"]

        await driver.runs.put_workflow("", "w", content_of(_TASK, max_active_runs=3))
        await driver.start(workflow="w")
        await driver.settle()

        assert sorted(await _states(driver, before)) == ["queued", "running", "running", "running"]

    @case
    async def test_a_raised_limit_lets_any_number_of_runs_begin(self) -> None:
        driver = RunDriver(self.store())
        new = [await driver.new_run({"s": {"wait": "go"}}, workflow="w") for _ in range(220)]
        limited = {most: content_of({"s": {"wait": "go"}}, max_active_runs=most) for most in (1, 300)}
        await driver.runs.start([replace(run, content=limited[1]) for run in new])
        await driver.settle()

        await driver.start(content=limited[300])
        await driver.settle()

        page = await driver.runs.list_runs(RunFilter(states=(RunState.RUNNING,)), limit=500)
        assert len(page.runs) == 221

    @case
    async def test_a_workflow_that_starts_itself_does_not_wait_for_its_own_place(self) -> None:
        driver = RunDriver(self.store())
        again: dict[str, Any] = {"workflow": "w", "needs": [], "if": "params.deep < 1", "with": {"deep": 1}}
        steps = {"s": {"task": "t"}, "again": again}
        content = content_of(steps, params={"deep": {}}, max_active_runs=1)
        await driver.runs.put_workflow("", "w", content)
        run = await driver.start(workflow="w", params=b'{"deep":0}')
        await driver.settle()

        child = (await driver.step(run, "again")).job
        assert await _states(driver, [run, child]) == ["running", "running"]
        await driver.finish(child, "s")
        await driver.finish(run, "s")

        assert await _states(driver, [run, child]) == ["succeeded", "succeeded"]
        later = await driver.start(workflow="w", params=b'{"deep":1}')
        await driver.settle()
        assert await _states(driver, [later]) == ["running"]

    @case
    async def test_no_more_runs_than_places_begin_whoever_advances_them(self) -> None:
        drivers = [RunDriver(self.store()) for _ in range(3)]
        driver = drivers[0]
        steps: dict[str, Any] = {"s": {"sleep": 0}}
        new = [await driver.new_run(steps) for _ in range(12)]
        await driver.runs.start([replace(run, content=content_of(steps, max_active_runs=2)) for run in new])
        most = 0
        while pending := await driver.runs.pending(limit=20):
            await asyncio.gather(*(one.advance(*pending) for one in drivers))
            running = await driver.runs.list_runs(RunFilter(states=(RunState.RUNNING,)))
            most = max(most, len(running.runs))
            await driver.runs.fire_timers()

        assert most == 2
        assert await _states(driver, [run.id for run in new]) == ["succeeded"] * 12

    @case
    async def test_a_tenant_with_queued_runs_is_erased_once_they_have_ended(self) -> None:
        driver = RunDriver(self.store())
        store = driver.store
        assert isinstance(store, Retaining)
        runs = [await _start(driver, 1, tenant="acme") for _ in range(2)]
        await driver.settle()
        await driver.send(runs[1], NewInboxRow(kind="cancel", id="c"))

        await store.forget_tenant("acme")

        assert await driver.runs.get(runs[1]) is None
        assert await driver.runs.place(runs[1]) is None
        assert await _states(driver, runs[:1]) == ["running"]


async def _start(driver: RunDriver, most: int, **fields: Any) -> str:
    return await driver.start(content=content_of(_TASK, max_active_runs=most), **fields)


async def _states(driver: RunDriver, runs: list[str]) -> list[str]:
    return [str((await driver.run(run)).state) for run in runs]
