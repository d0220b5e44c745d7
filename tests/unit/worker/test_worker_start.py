"""Start and burst, on `memory://`."""

import asyncio

import pytest

from taskmq import Context, RetryPolicy, TaskMQ
from taskmq.client.lanes import lane_pair
from taskmq.errors import BrokerUnavailable, InvalidOption, QueueMissing, UnsupportedFeature
from taskmq.model.topology import WorkQueue
from taskmq.worker import Worker, WorkerConfig
from tests.coroutines import run_by
from tests.unit.app_kit import new_url
from tests.unit.worker.gate import Gate, ids, play, send, working
from tests.unit.worker.staged import Fault, StagedApp, open_staged, settle_loop


@run_by(play)
async def test_a_worker_waits_for_an_unavailable_broker_and_starts_once_it_answers(
    app: StagedApp, gate: Gate, /
) -> None:
    app.points.plan = [Fault.REFUSED, Fault.HANGS, Fault.NONE, Fault.REFUSED]
    app.flaky.fail_calls("consume", 1, QueueMissing("work"))
    app.flaky.fail_calls("consume", 1, BrokerUnavailable("gone again"))
    await send(app, "a")
    gate.open.set()

    async with working(app):
        assert gate.finished == ["a"]


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.HANGS])
@run_by(play)
async def test_a_worker_stopped_before_the_broker_answers_ends_at_once(
    app: StagedApp, gate: Gate, /, fault: Fault
) -> None:
    app.points.rest = fault
    worker = Worker(app, WorkerConfig())
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(25.3)
    assert not worker.is_ready.is_set()
    before = asyncio.get_running_loop().time()

    worker.drain()
    await running

    assert asyncio.get_running_loop().time() - before < 0.1
    assert asyncio.all_tasks() == {asyncio.current_task()}


@run_by(play)
async def test_a_worker_cancelled_before_the_broker_answers_leaves_no_task_behind(
    app: StagedApp, gate: Gate, /
) -> None:
    app.points.rest = Fault.HANGS
    running = asyncio.create_task(Worker(app, WorkerConfig()).run())
    await asyncio.sleep(1)

    running.cancel()
    await asyncio.wait((running,))

    assert running.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@run_by(play)
async def test_a_worker_stopped_before_it_runs_ends_at_once(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    worker = Worker(app, WorkerConfig())
    worker.drain()

    await worker.run()

    assert gate.started == []
    assert ids(await app.messages("work")) == ["a"]


@run_by(play)
async def test_a_worker_declares_and_consumes_the_configured_queues(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "not mine")
    gate.open.set()
    async with working(app, queues=("other", "other", "third"), force=True) as (worker, _):
        assert worker.queues == [WorkQueue("other"), WorkQueue("third")]
        await send(app, "mine", queue="other")
        await settle_loop()
        assert (await app.stats("third.p.low")).consumers == 1

    assert gate.finished == ["mine"]


def test_a_queue_without_a_task_is_refused_unless_that_is_intended() -> None:
    with open_staged() as app:

        @app.task(queue="images")
        def resize() -> None: ...

        with pytest.raises(InvalidOption, match=r"no task of the app uses queue 'imagse': did you mean 'images'\?"):
            Worker(app, WorkerConfig(queues=("images", "imagse")))

        worker = Worker(app, WorkerConfig(queues=("images", "imagse"), force=True))
        assert worker.queues == [WorkQueue("images"), WorkQueue("imagse")]


def test_a_worker_without_tasks_or_queues_is_refused() -> None:
    with open_staged() as app:
        with pytest.raises(InvalidOption, match="no tasks"):
            Worker(app, WorkerConfig())

        assert Worker(app, WorkerConfig(queues=("work",))).queues == [WorkQueue("work")]
        with pytest.raises(InvalidOption, match="queue name"):
            Worker(app, WorkerConfig(queues=("work.dlq",)))


@pytest.mark.parametrize("setting", [{"concurrency": 0}, {"prefetch": 0}, {"concurrency": -1, "prefetch": 5}])
def test_an_impossible_setting_is_refused(setting: dict[str, int]) -> None:
    with open_staged() as app, pytest.raises(InvalidOption, match="at least 1"):
        Worker(
            app,
            WorkerConfig(
                queues=("work",), concurrency=setting.get("concurrency", 1), prefetch=setting.get("prefetch")
            ),
        )


def test_a_task_that_requires_results_is_refused_without_a_state_and_by_name() -> None:
    with open_staged(with_state=False) as app:

        @app.task(name="insists", result=True)
        async def insists() -> int:
            return 1

        with pytest.raises(UnsupportedFeature, match="insists"):
            Worker(app, WorkerConfig())


async def test_a_process_task_is_refused_if_the_module_of_the_app_is_unknown() -> None:
    with open_staged() as app:

        @app.task(name="heavy", executor="process")
        def heavy() -> None: ...

        with pytest.raises(UnsupportedFeature, match="process"):
            await Worker(app, WorkerConfig()).run()


def _mail_app(url: str, lanes: int, seen: list[str]) -> tuple[TaskMQ, asyncio.Event]:
    """Build an app whose task fails at first, so that its job returns; the event is set after two successes."""
    app, over = TaskMQ(url, queues=[WorkQueue("mail", lanes=lanes)]), asyncio.Event()

    @app.task(name="post", queue="mail", retry=RetryPolicy(base="1ms", jitter=False))
    async def post(context: Context, label: str) -> None:
        if context.attempt == 1:
            raise ValueError("not yet")
        seen.append(label)
        if len(seen) == 2:
            over.set()

    return app, over


@pytest.mark.real_time
async def test_jobs_of_former_lanes_run_and_are_requeued_there() -> None:
    tenant = next(name for name in map(str, range(100)) if min(lane_pair(name, 16)) >= 8)

    url, seen = new_url(), list[str]()
    before, _ = _mail_app(url, 16, seen)
    async with before:
        await before.tasks["post"].options(tenant=tenant).asend("at once")
        await before.tasks["post"].options(tenant=tenant, delay="1ms").asend("later")
        after, over = _mail_app(url, 8, seen)
        worker = Worker(after, WorkerConfig())
        running = asyncio.create_task(worker.run())
        await over.wait()
        worker.drain()
        await running

        assert sorted(seen) == ["at once", "later"]
        assert [queue.lanes for queue in worker.queues] == [16]


async def test_a_worker_waits_for_a_broker_that_does_not_list_the_lanes() -> None:
    with open_staged(queues=[WorkQueue("work", lanes=2)]) as app:
        ran = asyncio.Event()

        @app.task(name="noop", queue="work")
        async def noop(label: str) -> None:
            ran.set()

        await app.sessions.current().broker.declare([WorkQueue("work", lanes=5)])
        app.flaky.fail_calls("stats", 2, BrokerUnavailable("away"))
        await send(app, "a", task="noop", queue="work.lane04")
        async with working(app):
            await ran.wait()


@run_by(play)
async def test_a_burst_ends_when_the_queues_stay_empty(app: StagedApp, gate: Gate, /) -> None:
    await send(app, *map(str, range(50)))
    gate.open.set()

    await Worker(app, WorkerConfig(burst=True, concurrency=4)).run()

    assert len(gate.finished) == 50
    assert app.story().count("acked work") == 50


@run_by(play)
async def test_a_burst_over_empty_queues_ends(app: StagedApp, gate: Gate, /) -> None:
    await Worker(app, WorkerConfig(burst=True)).run()

    assert app.story() == []


async def test_a_burst_waits_for_running_jobs_and_for_the_jobs_they_send() -> None:
    with open_staged() as app:
        seen: list[int] = []

        @app.task(name="chain", queue="work")
        async def chain(left: str) -> None:
            await asyncio.sleep(2)
            seen.append(int(left))
            if int(left):
                await chain.asend(str(int(left) - 1))

        await send(app, "3", task="chain")
        await Worker(app, WorkerConfig(burst=True)).run()

        assert seen == [3, 2, 1, 0]


async def test_a_burst_does_not_wait_for_delayed_jobs() -> None:
    with open_staged() as app:

        @app.task(name="fails", queue="work", retry=RetryPolicy(base="1h", jitter=False))
        async def fails(label: str) -> None:
            raise ValueError("no")

        await send(app, "a", task="fails")
        await Worker(app, WorkerConfig(burst=True)).run()

        assert (await app.stats("work")).delayed == 1


@run_by(play)
async def test_a_burst_can_be_stopped_and_outlasts_a_silent_broker(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    app.flaky.fail_calls("stats", 5, BrokerUnavailable("away"))
    async with working(app, burst=True) as (worker, running):
        await asyncio.sleep(60)
        assert not running.done()
        worker.requeue_now()
        await running

    assert app.story() == ["requeued work"]
