"""Workflows of an app with RabbitMQ and PostgreSQL, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from taskmq import JobCancelled, RunFailed, TaskMQ, Workflow, batch, chain, dag, subworkflow, wait
from taskmq.scheduler import Scheduler
from taskmq.worker.config import WorkerConfig
from taskmq.worker.worker import Worker
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]


class _Site:
    """An app with a worker and two schedulers."""

    def __init__(self, broker: str, store: str) -> None:
        self.broker = broker
        self.store = store
        self.ran: list[Any] = []
        self.broken: set[int] = set()
        self.gate = asyncio.Event()
        self.app = self.define()

    def define(self) -> TaskMQ:
        app = TaskMQ(self.broker, store=self.store, name="shop")

        @app.task(name="add", retry=None)
        async def add(number: int, other: int = 1) -> int:
            self.ran.append(number)
            if number in self.broken:
                raise ValueError(f"{number} is broken")
            return number + other

        @app.task(name="numbers", retry=None)
        async def numbers(count: int) -> list[int]:
            return list(range(count))

        @app.task(name="total", retry=None)
        async def total(numbers: Sequence[int]) -> int:
            return sum(numbers)

        @app.task(name="waits", retry=None)
        async def waits(number: int) -> int:
            self.ran.append(("waits", number))
            await self.gate.wait()
            return number

        @app.workflow(name="sum_up")
        def sum_up(count: int) -> Workflow[int]:
            return numbers.s(count) | total.s()

        @app.workflow(name="release")
        def release(count: int = 5) -> Workflow[dict[str, Any]]:
            graph = dag()
            inner = graph.add(subworkflow(sum_up, count))
            approval = graph.add(wait("approval", int), after=[])
            graph.add(add.s(), after=[inner, approval], name="sum")
            return graph

        @app.workflow(name="one_by_one", max_active_runs=1)
        def one_by_one(number: int) -> Workflow[int]:
            return waits.s(number) | add.s()

        self.one_by_one = one_by_one
        self.add, self.numbers, self.total, self.waits = add, numbers, total, waits
        self.release = release
        return app

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[list[asyncio.Task[None]]]:
        schedulers = [Scheduler(self.define()) for _ in range(2)]
        self.app = self.define()
        async with self.app:
            worker = Worker(self.app, WorkerConfig(concurrency=50))
            working = asyncio.create_task(worker.run())
            scheduling = [asyncio.create_task(each.run()) for each in schedulers]
            try:
                yield scheduling
            finally:
                worker.drain()
                await working
                for scheduler in schedulers:
                    scheduler.stop()
                await asyncio.wait(scheduling)


async def test_workflows_need_no_state_and_outlive_a_scheduler(amqp_url: str, job_store_url: str) -> None:
    site = _Site(amqp_url, job_store_url)
    async with site.open() as scheduling:
        assert await (await chain(site.add.s(1), site.add.s(), site.add.s(10)).asend()).aresult(30) == 13
        wide = chain(site.numbers.s(300), site.add.s().each(limit=40), site.total.s())
        assert await (await wide.asend()).aresult(60) == 45_150

        held = await chain(site.waits.s(1), site.add.s(5), site.numbers.s()).asend()
        await until(lambda: ("waits", 1) in site.ran)
        scheduling[0].cancel()
        await asyncio.wait({scheduling[0]})
        site.gate.set()
        assert await held.aresult(60) == list(range(6))


async def test_a_named_workflow_runs_for_its_code_and_for_a_program_without_it(
    amqp_url: str, job_store_url: str
) -> None:
    site = _Site(amqp_url, job_store_url)
    async with site.open() as scheduling, TaskMQ(amqp_url, store=job_store_url, name="other") as other:
        own = await site.release.asend(count=10)
        await own.asignal("approval", 100)
        assert await own.aresult(30) == {"sum": 145}

        # The schedulers have stored the workflow.
        named = await other.runs.astart("release", tenant="acme")
        scheduling[0].cancel()
        await asyncio.wait({scheduling[0]})
        await named.asignal("approval", 7)
        assert await named.aresult(60) == {"sum": 17}
        assert named.id.startswith("@acme:")
        (job,) = [step.job for step in await named.asteps() if step.name == "sum"]
        assert (await other.jobs.aget(job)).tenant == "acme"


async def test_runs_in_postgresql_are_redriven_cancelled_and_extended(amqp_url: str, job_store_url: str) -> None:
    site = _Site(amqp_url, job_store_url)
    site.broken = {7}
    async with site.open():
        graph = dag()
        first = graph.add(site.add.s(1), name="first")
        bad = graph.add(site.add.si(7), after=[first], name="bad")
        graph.add(site.total.si([1, 2]), after=[bad], name="last")
        run = await graph.asend(run_id="it")
        with pytest.raises(RunFailed, match="7 is broken"):
            await run.aresult(30)
        site.broken.clear()
        assert await site.app.runs.get("it").aredrive() == 2
        assert await run.aresult(30) == {"last": 3}
        assert site.ran == [1, 7, 7]

        jobs = await batch(site.add.s(1), on_success=site.total.s()).asend()
        await jobs.aadd(*(site.add.s(number) for number in range(2, 250)), key="more")
        await jobs.aclose()
        assert await jobs.aresult(60) == list(range(2, 251))

        waiting = await chain(site.waits.s(1), site.add.s()).asend()
        await until(lambda: ("waits", 1) in site.ran)
        assert await waiting.acancel("enough")
        with pytest.raises(JobCancelled, match="enough"):
            await waiting.aresult(30)


async def test_runs_of_a_limited_workflow_run_one_after_the_other(amqp_url: str, job_store_url: str) -> None:
    site = _Site(amqp_url, job_store_url)
    async with site.open() as scheduling:
        runs = [await site.one_by_one.asend(number) for number in range(4)]
        await until(lambda: bool(site.ran))
        cancelled = runs.pop(2)
        assert await cancelled.acancel("enough")
        with pytest.raises(JobCancelled, match="enough"):
            await cancelled.aresult(30)
        states = [line.state for line in (await site.app.runs.alist(workflow="one_by_one")).lines]
        assert sorted(states) == ["cancelled", "queued", "queued", "running"]
        assert site.ran == [("waits", 0)]

        scheduling[0].cancel()
        await asyncio.wait({scheduling[0]})
        site.gate.set()

        assert [await run.aresult(60) for run in runs] == [1, 2, 4]
        assert site.ran == [("waits", 0), 0, ("waits", 1), 1, ("waits", 3), 3]
