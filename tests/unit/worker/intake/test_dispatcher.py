"""Slots of a worker: limits by task and queue, resources, and their number."""

import asyncio
from typing import Any

import pytest

from taskmq import Context
from taskmq.errors import InvalidOption
from taskmq.worker import Worker, WorkerConfig
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, play, send, working
from tests.unit.worker.staged import FakeDelivery, StagedApp, open_staged, settle_loop


@run_by(play, worker_concurrency=2)
async def test_a_task_runs_up_to_its_concurrency_and_others_pass(app: StagedApp, gate: Gate, /) -> None:
    other = Gate()

    @app.task(name="other", queue="work")
    async def also(label: str) -> None:
        other.started.append(label)

    async with working(app, concurrency=8) as (worker, _):
        await send(app, "a", "b", "c")
        await send(app, "x", task="other")
        await settle_loop()

        assert gate.started == ["a", "b"]
        assert other.started == ["x"]
        assert worker.status().backlog == 1
        gate.open.set()
        await settle_loop()
        assert gate.finished == ["a", "b", "c"]
        assert gate.most == 2


async def test_jobs_wait_for_their_resources_and_get_them_in_order() -> None:
    with open_staged() as app:
        running: list[str] = []
        gates = {name: asyncio.Event() for name in ("large", "small 1", "small 2")}

        async def work(label: str) -> None:
            running.append(label)
            await gates[label].wait()
            running.remove(label)

        app.task(name="large", queue="work", resources={"cpu": 3})(work)
        app.task(name="small", queue="work", resources={"cpu": 2})(work)

        async with working(app, resources={"cpu": 4.0}):
            await send(app, "large", task="large")
            await send(app, "small 1", "small 2", task="small")
            await settle_loop()
            assert running == ["large"]
            gates["large"].set()
            await settle_loop()
            assert running == ["small 1", "small 2"]
            gates["small 1"].set()
            gates["small 2"].set()
            await settle_loop()
            assert running == []


async def test_a_run_knows_its_resources_and_always_returns_them() -> None:
    with open_staged() as app:

        @app.task(name="failing", queue="work", resources={"licence": 1}, retry=None)
        async def failing(context: Context, label: str) -> None:
            raise ValueError(label)

        @app.task(name="misfit", queue="work", resources={"licence": 1})
        async def misfit(number: int) -> None: ...

        async with working(app, resources={"licence": 1.0}) as (worker, _):
            await send(app, "a", "b", task="failing")
            await send(app, "c", task="misfit")
            await send(app, "d", task="failing")
            await settle_loop()

            assert worker.stats.counts["failing", "work"].outcomes == {"dead": 3}
            assert worker.stats.counts["misfit", "work"].outcomes == {"dead": 1}
            assert worker.status().backlog == 0


@run_by(play)
async def test_a_worker_is_busy_while_a_delivery_waits_for_its_turn(app: StagedApp, gate: Gate, /) -> None:
    # Otherwise a burst would end between two turns of the loop, with all that waits here.
    gate.open.set()
    async with working(app) as (worker, _):
        dispatcher = worker._dispatcher
        assert dispatcher is not None
        assert not dispatcher.is_busy

        dispatcher.deliver(FakeDelivery(b'{"task":"gated","id":"a","args":["a"]}'))

        assert dispatcher.is_busy
        await settle_loop()
        assert not dispatcher.is_busy


@pytest.mark.parametrize(
    ("options", "config", "complaint"),
    [
        ({"resources": {"gpu": 1}}, {}, "needs gpu=1 and can never run here: this worker has gpu=0"),
        ({"resources": {"cpu": 5000}}, {}, "needs cpu=5000"),
        ({"resources": {"licence": 2}}, {"resources": {"licence": 1.0}}, "this worker has licence=1"),
        ({"resources": {"gpu": 1}}, {"resources": {"gpu": 2.0}, "processes": 2}, "would hand out the same GPUs"),
        ({}, {"queue_slots": {"wrok": 2}}, "queues that are not consumed: wrok"),
        ({}, {"queue_shares": {"wrok": 2}}, "queues that are not consumed: wrok"),
        ({}, {"queue_shares": {"work": 0}}, "at least 1"),
    ],
)
def test_an_impossible_request_is_refused_at_the_start(
    options: dict[str, Any], config: dict[str, Any], complaint: str
) -> None:
    with open_staged() as app:
        app.task(name="gated", queue="work", **options)(_do_nothing)

        with pytest.raises(InvalidOption, match=complaint):
            Worker(app, WorkerConfig(**config))


async def _do_nothing() -> None: ...


@run_by(play)
async def test_a_queue_has_at_most_its_own_slots(app: StagedApp, gate: Gate, /) -> None:
    async with working(app, queue_slots={"work": 2}, concurrency=8):
        await send(app, "a", "b", queue="work.p.high")
        await send(app, "c")
        await settle_loop()

        assert gate.running == 2
        gate.open.set()
        await settle_loop()
        assert (len(gate.finished), gate.most) == (3, 2)


@run_by(play)
async def test_the_number_of_slots_can_be_changed_while_the_worker_runs(app: StagedApp, gate: Gate, /) -> None:
    async with working(app, concurrency=1, prefetch=10) as (worker, _):
        await send(app, "a", "b", "c", "d")
        await settle_loop()
        assert gate.running == 1

        worker.set_concurrency(3)
        await settle_loop()
        assert gate.running == 3
        assert worker.status().slots == 3

        worker.set_concurrency(1)
        with pytest.raises(InvalidOption, match="at least 1"):
            worker.set_concurrency(0)
        gate.open.set()
        await settle_loop()
        assert len(gate.finished) == 4


async def test_a_run_sees_its_requested_resources_and_no_internal_ones() -> None:
    with open_staged() as app:
        seen: list[dict[str, float]] = []

        @app.task(name="asks", queue="work", resources={"licence": 1}, worker_concurrency=2)
        async def asks(context: Context, label: str) -> None:
            seen.append(dict(context.resources.amounts))

        @app.task(name="asks_nothing", queue="work", worker_concurrency=2)
        async def require_nothing(context: Context, label: str) -> None:
            seen.append(dict(context.resources.amounts))

        async with working(app, resources={"licence": 1.0}):
            await send(app, "a", task="asks")
            await send(app, "b", task="asks_nothing")
            await settle_loop()

        assert seen == [{"licence": 1.0}, {}]


@run_by(play, worker_concurrency=1)
async def test_a_job_that_waits_for_resources_is_requeued_when_the_worker_stops(
    app: StagedApp, gate: Gate, /
) -> None:
    async with working(app) as (worker, running):
        await send(app, "a", "b")
        await settle_loop()
        worker.drain()
        gate.open.set()
        await asyncio.wait((running,))

    assert gate.finished == ["a"]
    assert (await app.stats("work")).ready == 1


class Revoked(FakeDelivery):
    revoked = True


@run_by(play)
async def test_a_job_withdrawn_before_its_start_is_not_run(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    async with working(app) as (worker, _):
        body = b'{"task":"gated","id":"%s","args":["%s"]}'
        void, valid = Revoked(body % (b"void", b"void")), FakeDelivery(body % (b"valid", b"valid"))
        assert worker._dispatcher is not None
        for delivery in (void, valid):
            worker._dispatcher.deliver(delivery)
        await settle_loop()

        assert gate.finished == ["valid"]
        assert (void.settled, valid.settled) == (None, "acked")
