"""Open batches from their sending to their end, with a worker on `memory://`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from taskmq import (
    Context,
    InvalidArguments,
    InvalidOption,
    JobCancelled,
    RunClosed,
    RunFailed,
    RunNotFound,
    TaskMQ,
    batch,
    chain,
)
from taskmq.scheduler.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.unit.app_kit import new_store, new_url

pytestmark = pytest.mark.real_time


class Shop:
    """An app, its tasks, and a record of their calls."""

    def __init__(self, **options: Any) -> None:
        self.app = app = TaskMQ(new_url(), store=new_store(), **options)
        self.ran: list[object] = []
        self.broken: set[int] = set()

        @app.task(name="double", retry=None)
        async def double(number: int) -> int:
            self.ran.append(number)
            if number in self.broken:
                raise ValueError(f"{number} is broken")
            return number * 2

        @app.task(name="page", retry=None)
        async def page(context: Context, number: int) -> int:
            assert context.run_id is not None
            flow = app.runs.get(context.run_id)
            if number < 3:
                # A rerun task adds the next page once.
                for _ in range(2):
                    await flow.aadd(page.s(number + 1), key=f"page {number + 1}")
            else:
                await flow.aclose()
            return number

        @app.task(name="total", retry=None)
        async def total(numbers: list[int]) -> int:
            self.ran.append(numbers)
            return sum(numbers)

        @app.task(name="ended", retry=None)
        async def ended(numbers: list[int] | None) -> None:
            self.ran.append(("ended", numbers))

        @app.task(name="alone", retry=None)
        async def alone(context: Context) -> str | None:
            return context.run_id

        self.double, self.page, self.total, self.ended, self.alone = double, page, total, ended, alone


@asynccontextmanager
async def working(app: TaskMQ) -> AsyncGenerator[None]:
    async with app:
        worker, scheduler = Worker(app, WorkerConfig(concurrency=50)), Scheduler(app)
        running = asyncio.create_task(worker.run())
        scheduling = asyncio.create_task(scheduler.run())
        try:
            yield
        finally:
            worker.drain()
            await running
            scheduler.stop()
            await scheduling


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.mark.parametrize("content_type", ["json", pytest.param("msgpack", marks=pytest.mark.matrix)])
async def test_a_batch_accepts_jobs_until_it_is_closed_and_then_its_callbacks_run(content_type: str) -> None:
    shop = Shop(content_type=content_type)

    async with working(shop.app):
        flow = await batch(shop.double.s(1), on_success=shop.total.s(), on_end=shop.ended.s()).asend()
        await flow.aadd(shop.double.s(2), shop.double.s(3))
        await flow.aadd(*(shop.double.s(number) for number in range(4, 254)))
        assert (await flow.astate()).state == "running"
        await flow.aclose()
        await flow.aclose()

        doubled = [2 * number for number in range(1, 254)]
        assert await flow.aresult(20) == doubled
        assert doubled in shop.ran
        assert ("ended", doubled) in shop.ran
        state = await flow.astate()
        assert state.steps["jobs[252]"] == state.steps["total"] == "succeeded"
        steps = await flow.asteps()
        assert [step.name for step in steps[:3]] == ["jobs", "jobs[0]", "jobs[1]"]
        with pytest.raises(RunClosed, match=f"workflow {flow.id} accepts no more jobs: it was closed"):
            await flow.aadd(shop.double.s(5))


async def test_a_job_adds_to_its_own_batch_and_a_keyed_addition_exists_once(shop: Shop) -> None:

    async with working(shop.app):
        flow = await batch(shop.page.s(0), on_success=shop.total.s()).asend()
        assert await flow.aresult(20) == [0, 1, 2, 3]
        assert shop.ran == [[0, 1, 2, 3]]
        assert await (await shop.alone.asend()).aresult(20) is None


async def test_a_failed_job_fails_the_batch_which_still_ends_and_a_redrive_repairs_it(shop: Shop) -> None:
    shop.broken = {2}

    async with working(shop.app):
        jobs = [shop.double.s(number) for number in (1, 2)]
        flow = await batch(*jobs, on_success=shop.total.s(), on_end=shop.ended.s()).asend()
        await flow.aclose()
        with pytest.raises(RunFailed) as caught:
            await flow.aresult(20)
        assert caught.value.failures == {"jobs[1]": "ValueError: 2 is broken"}
        assert ("ended", None) in shop.ran
        assert (await flow.astate()).steps["total"] == "upstream_failed"

        shop.broken = set()
        await flow.aredrive()
        assert await flow.aresult(20) == [2, 4]
        assert shop.ran.count(1) == 1
        assert [2, 4] in shop.ran


async def test_a_batch_of_one_id_is_sent_once_and_resumes_where_it_stopped(shop: Shop) -> None:

    async with working(shop.app):
        jobs = batch(shop.double.s(1), shop.double.s(2))
        for _ in range(2):
            flow = await jobs.asend(run_id="nightly")
            await flow.aadd(shop.double.s(3), key="3")
        await shop.app.runs.get("nightly").aclose()
        # Even once it is closed.
        again = await jobs.asend(run_id="nightly")
        assert await again.aresult(20) == [2, 4, 6]
        assert sorted(number for number in shop.ran if isinstance(number, int)) == [1, 2, 3]


async def test_a_cancelled_batch_accepts_no_more_jobs(shop: Shop) -> None:
    async with working(shop.app):
        flow = await batch(shop.double.s(1)).asend()
        await flow.acancel("enough")
        with pytest.raises(RunClosed, match="or cancelled"):
            await flow.aadd(shop.double.s(2))
        with pytest.raises(RunClosed):
            await flow.aclose()
        with pytest.raises(JobCancelled, match="enough"):
            await flow.aresult(20)


async def test_synchronous_code_adds_and_closes_too(shop: Shop) -> None:
    def use() -> None:
        flow = batch(on_success=shop.total.s()).send()
        flow.add()
        flow.add(shop.double.s(1))
        flow.close()
        with pytest.raises(RunClosed):
            shop.app.runs.get(flow.id).add(shop.double.s(2))

    async with working(shop.app):
        await asyncio.to_thread(use)


def test_an_invalid_batch_is_refused_before_anything_is_sent() -> None:
    shop = Shop()
    not_complete: Any = shop.double.s()
    anything: Any = 7
    with pytest.raises(InvalidOption, match=r"is not a job of a batch: use task\.s\(\.\.\.\) with all its arguments"):
        batch(not_complete)
    with pytest.raises(InvalidOption, match="on_success=7: must be one step"):
        batch(on_success=anything)
    with pytest.raises(InvalidOption, match="limit=0: must be at least 1"):
        batch(limit=0)
    with pytest.raises(InvalidOption, match="names no task, so no app can send it"):
        batch().send()
    with pytest.raises(InvalidOption, match="a batch cannot be a part of another workflow"):
        chain(batch(shop.double.s(1)), shop.total.s()).send()
    total: Any = shop.total
    with pytest.raises(InvalidArguments):
        batch(shop.double.s(1), total.s([1], 2, 3)).send()

    async def main() -> None:
        async with shop.app:
            flow = await batch(shop.double.s(1)).asend()
            with pytest.raises(InvalidOption, match="key='': 1 to 200 characters"):
                await flow.aadd(shop.double.s(2), key="")
            with pytest.raises(RunNotFound):
                await shop.app.runs.get("gone").aadd(shop.double.s(2))
            with pytest.raises(RunNotFound):
                await shop.app.runs.get("gone").aclose()
            other = await chain(shop.double.s(1)).asend()
            with pytest.raises(RunClosed, match="or is not a batch"):
                await other.aadd(shop.double.s(2))

    asyncio.run(main())
