"""Slots, start and drain, on `memory://`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from taskmq import Context, RetryPolicy
from taskmq.broker import Delivery, Outgoing
from taskmq.envelope import decode_envelope
from taskmq.errors import BrokerUnavailable, InvalidOption, QueueMissing, UnsupportedFeature
from taskmq.testing import Acked, Requeued
from taskmq.topology import WorkQueue
from taskmq.worker import Worker, WorkerConfig
from tests.unit.worker.staged import Fault, StagedApp, settle_loop, staged
from tests.unit.worker.virtual_time import run


class Gate:
    """A task that waits until it is let go, and what it has seen."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.started: list[str] = []
        self.finished: list[str] = []
        self.attempts: list[tuple[str, int, bool]] = []
        self.running = 0
        self.most = 0

    def define(self, app: StagedApp, **options: Any) -> None:
        @app.task(name="gated", queue="work", **options)
        async def gated(context: Context, label: str) -> str:
            self.started.append(label)
            self.attempts.append((label, context.attempt, context.redelivered))
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.open.wait()
            finally:
                self.running -= 1
            self.finished.append(label)
            return label


async def _send(app: StagedApp, *labels: str, queue: str = "work", task: str = "gated") -> None:
    for label in labels:
        body = b'{"task":"%s","id":"%s","args":["%s"]}' % (task.encode(), label.encode(), label.encode())
        await app.put(body, queue=queue, job_id=label, task=task)


@asynccontextmanager
async def _running(app: StagedApp, **config: Any) -> Any:
    """A worker that runs; drained at the end if it still does."""
    worker = Worker(app, WorkerConfig(name="w1", **config))
    running = asyncio.create_task(worker.run())
    try:
        waiting = asyncio.create_task(worker.is_ready.wait())
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await settle_loop()
        yield worker, running
    finally:
        worker.requeue_now()
        await asyncio.wait((running,))


def _play(test: Callable[[StagedApp, Gate], Awaitable[None]], *, with_state: bool = True, **options: Any) -> None:
    async def main() -> None:
        gate = Gate()
        with staged(with_state=with_state) as app:
            gate.define(app, **options)
            await test(app, gate)

    run(main())


def _ids(deliveries: list[Delivery]) -> list[str | None]:
    return [delivery.message_id for delivery in deliveries]


# Slots -------------------------------------------------------------------------------------------------


def test_tasks_run_their_results_are_stored_and_their_messages_acknowledged() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a", "b")
        gate.open.set()

        async with _running(app):
            assert gate.finished == ["a", "b"]
            assert sorted(app.story()) == ["acked work"] * 2 + ["stored succeeded"] * 2
            record = await app.record("a")
            assert record is not None
            assert record.worker == "w1"

    _play(test)


def test_no_more_tasks_run_at_a_time_than_there_are_slots() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        labels = [f"job-{number}" for number in range(20)]
        await _send(app, *labels)

        async with _running(app, concurrency=3):
            assert gate.started == labels[:3]
            gate.open.set()
            await settle_loop()
            while len(gate.finished) < 20:
                await asyncio.sleep(0)

        assert gate.most == 3
        assert gate.started == labels

    _play(test)


def test_the_worker_holds_no_more_deliveries_of_a_queue_than_the_prefetch() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, *map(str, range(20)))
        await _send(app, *(f"high {n}" for n in range(20)), queue="work.p.high")

        async with _running(app, concurrency=2, prefetch=5):
            for queue in ("work", "work.p.high"):
                stats = await app.stats(queue)
                assert (stats.unsettled, stats.ready) == (5, 15)

    _play(test)


@pytest.mark.parametrize(("concurrency", "prefetch"), [(1, 2), (32, 64), (200, 250), (1000, 1000)])
def test_without_a_prefetch_it_is_twice_the_slots_within_reason(concurrency: int, prefetch: int) -> None:
    assert WorkerConfig(concurrency=concurrency).effective_prefetch == prefetch
    assert WorkerConfig(concurrency=concurrency, prefetch=7).effective_prefetch == 7


def test_what_is_urgent_overtakes_what_has_not_started() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "running", "low 1", "low 2", queue="work.p.low")
        async with _running(app, concurrency=1):
            await _send(app, "default", queue="work")
            await _send(app, "high", queue="work.p.high")
            await settle_loop()
            gate.open.set()
            while len(gate.finished) < 5:
                await asyncio.sleep(0)

        assert gate.started == ["running", "high", "default", "low 1", "low 2"]

    _play(test)


def test_a_retry_comes_after_its_delay_with_the_next_attempt() -> None:
    async def main() -> None:
        with staged() as app:
            seen: list[int] = []

            @app.task(name="flaky", queue="work", retry=RetryPolicy(max_attempts=3, jitter=False))
            async def flaky(context: Context, label: str) -> None:
                seen.append(context.attempt)
                raise ValueError("no")

            async with _running(app):
                await _send(app, "a", task="flaky")
                await settle_loop()
                for delay in (1, 2):
                    assert (await app.stats("work")).delayed == 1
                    app.fake_clock.advance(delay)
                    await settle_loop()

                assert seen == [1, 2, 3]
                assert _ids(await app.messages("work.dlq")) == ["a"]

    run(main())


def test_garbage_is_parked_and_the_worker_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await app.put(b"\xff", job_id="garbage")
        await app.put(b'{"task":"gated","args":[]}', job_id="misfit")
        await _send(app, "good")
        gate.open.set()

        async with _running(app):
            assert gate.finished == ["good"]
            assert _ids(await app.messages("taskmq.parking")) == ["garbage"]
            assert _ids(await app.messages("work.dlq")) == ["misfit"]

    _play(test)


def test_a_delivery_that_cannot_be_settled_goes_back_and_is_loudly_complained_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        app.points.bugs = {"put": 1}
        await _send(app, "a")
        gate.open.set()

        async with _running(app):
            assert app.story() == ["requeued work", "stored succeeded", "acked work"]

    with caplog.at_level(logging.CRITICAL):
        _play(test)
    assert "could not be settled" in caplog.text


def test_an_early_acknowledged_task_is_off_the_broker_while_it_runs() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a")
        async with _running(app):
            assert gate.started == ["a"]
            assert app.story() == ["acked work"]
            gate.open.set()
            await settle_loop()
            assert app.story() == ["acked work", "stored succeeded"]

    _play(test, ack="early")


def test_a_task_that_is_acknowledged_early_is_not_lost_before_it_starts() -> None:
    """It came before its time, and the broker does not take the copy: it stays where it is."""

    async def test(app: StagedApp, gate: Gate) -> None:
        app.points.plan = [Fault.NONE] * 2
        app.points.rest = Fault.REFUSED
        body = b'{"task":"gated","id":"a","args":["a"],"eta":%d}' % (app.fake_clock.now_ms() + 60_000)
        await app.put(body, job_id="a")

        async with _running(app) as (worker, running):
            await asyncio.sleep(30)
            worker.drain()
            await running

        assert "acked work" not in app.story()
        assert _ids(await app.messages("work")) == ["a"]

    _play(test, ack="early")


# Drain -------------------------------------------------------------------------------------------------


def test_a_draining_worker_gives_back_what_has_not_started_in_order_and_finishes_what_has() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a", "b", "c", "d", "e")

        async with _running(app, concurrency=2) as (worker, running):
            worker.drain()
            await settle_loop()

            left = await app.messages("work")
            assert _ids(left) == ["c", "d", "e"]
            assert all(decode_envelope(delivery.body).attempt == 1 for delivery in left)
            assert not running.done()

            gate.open.set()
            await running

        assert gate.finished == gate.started == ["a", "b"]
        assert app.story().count("acked work") == 2
        assert worker.left_behind == 0

    _play(test)


def test_a_draining_worker_takes_nothing_new() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a")
        async with _running(app) as (worker, running):
            worker.drain()
            await settle_loop()
            await _send(app, "b")
            await settle_loop()
            gate.open.set()
            await running

        assert gate.started == ["a"]
        assert _ids(await app.messages("work")) == ["b"]

    _play(test)


def test_what_is_delivered_while_the_consumer_stops_is_given_back_once() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        async with _running(app) as (worker, running):
            twin = app.twin()
            for label in ("a", "b"):
                # A plain call: the worker gets it in the turn in which it is told to drain.
                twin.session().broker.publish(
                    Outgoing(queue="work", body=b"{}", content_type="", job_id=label, task="gated"), timeout=5
                )
            worker.drain()
            await running

        assert gate.started == []
        settles = [entry for entry in app.journal if isinstance(entry, Acked | Requeued)]
        assert [type(entry) for entry in settles] == [Requeued, Requeued]
        assert _ids(await app.messages("work")) == ["a", "b"]

    _play(test)


def test_running_tasks_get_their_grace() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a")
        async with _running(app, grace=30) as (worker, running):
            worker.drain()
            await asyncio.sleep(29)
            assert not running.done()
            gate.open.set()
            await running

        assert gate.finished == ["a"]
        assert app.story() == ["stored succeeded", "acked work"]

    _play(test)


def test_after_the_grace_what_runs_is_interrupted_and_goes_back_with_no_attempt_counted() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a", "b")
        async with _running(app, grace=30) as (worker, running):
            before = asyncio.get_running_loop().time()
            worker.drain()
            await running
            assert 30 <= asyncio.get_running_loop().time() - before < 31

        assert gate.running == 0
        assert app.story() == ["requeued work"] * 2
        assert await app.record("a") is None

        gate.open.set()
        again = app.twin()
        gate.define(again)
        async with _running(again):
            assert sorted(gate.attempts[2:]) == [("a", 1, True), ("b", 1, True)]

    _play(test)


def test_a_second_signal_gives_back_what_runs_now() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a")
        async with _running(app, grace=3600) as (worker, running):
            worker.drain()
            await asyncio.sleep(5)
            before = asyncio.get_running_loop().time()

            worker.requeue_now()
            await running

            assert asyncio.get_running_loop().time() - before < 1
        assert app.story() == ["requeued work"]

    _play(test)


def test_a_run_that_is_over_when_the_grace_ends_is_settled_and_not_interrupted() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        # Its arguments do not fit, and its dead letter hangs.
        app.flaky.hang_publishes()
        await app.put(b'{"task":"gated","id":"a"}', job_id="a")
        async with _running(app, grace=0) as (worker, running):
            assert app.flaky.hanging == 1
            worker.drain()
            await asyncio.sleep(1)
            assert not running.done()

            app.flaky.release_publishes()
            await running

        assert app.story() == ["stored dead", "confirmed work.dlq", "acked work"]

    _play(test)


def test_a_stopping_worker_gives_back_what_it_cannot_store() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        app.points.plan = [Fault.NONE] * 2
        app.points.rest = Fault.REFUSED
        await _send(app, "a")
        gate.open.set()
        async with _running(app, grace=10) as (worker, running):
            worker.drain()
            await running

        assert app.story() == ["requeued work"]
        assert worker.left_behind == 0

    _play(test)


def test_a_coroutine_that_ignores_its_cancellation_is_left_behind_and_its_job_goes_back() -> None:
    async def main() -> None:
        with staged() as app:
            released = asyncio.Event()

            @app.task(name="stubborn", queue="work")
            async def stubborn(label: str) -> None:
                while not released.is_set():
                    try:
                        await released.wait()
                    except asyncio.CancelledError:
                        continue

            await _send(app, "a", task="stubborn")
            async with _running(app, grace=1) as (worker, running):
                worker.drain()
                await running

            assert worker.left_behind == 1
            assert app.story() == ["requeued work"]
            assert _ids(await app.messages("work")) == ["a"]
            released.set()
            await settle_loop()
            assert app.story()[0] == "requeued work"
            assert "acked work" not in app.story()

    run(main())


def test_a_cancelled_worker_gives_everything_back_and_leaves_no_task_behind() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        for moment in ("running", "draining"):
            await _send(app, *(f"{moment} {n}" for n in range(4)))
            twin = app.twin()
            gate.define(twin)
            async with _running(twin, concurrency=2) as (worker, running):
                if moment == "draining":
                    worker.drain()
                    await settle_loop()
                before = asyncio.get_running_loop().time()
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                assert asyncio.get_running_loop().time() - before < 1

            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert gate.running == 0
            assert _ids(await app.messages("work")) == [f"{moment} {n}" for n in range(4)]
            await _purge(app)

    _play(test)


async def _purge(app: StagedApp) -> None:
    for delivery in await app.messages("work"):
        assert delivery.message_id
    twin = app.twin()
    await twin.session().broker.purge("work")
    await twin.aclose()


# Start -------------------------------------------------------------------------------------------------


def test_a_worker_waits_for_a_broker_that_is_down_and_starts_when_it_comes() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        app.points.plan = [Fault.REFUSED, Fault.HANGS, Fault.NONE, Fault.REFUSED]
        app.flaky.fail_calls("consume", 1, QueueMissing("work"))
        app.flaky.fail_calls("consume", 1, BrokerUnavailable("gone again"))
        await _send(app, "a")
        gate.open.set()

        async with _running(app):
            assert gate.finished == ["a"]

    _play(test)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.HANGS])
def test_a_worker_that_is_stopped_before_the_broker_answers_ends_at_once(fault: Fault) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
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

    _play(test)


def test_a_worker_that_is_cancelled_before_the_broker_answers_leaves_no_task_behind() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        app.points.rest = Fault.HANGS
        running = asyncio.create_task(Worker(app, WorkerConfig()).run())
        await asyncio.sleep(1)

        running.cancel()
        await asyncio.wait((running,))

        assert running.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    _play(test)


def test_a_worker_that_is_stopped_before_it_runs_ends_at_once() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a")
        worker = Worker(app, WorkerConfig())
        worker.drain()

        await worker.run()

        assert gate.started == []
        assert _ids(await app.messages("work")) == ["a"]

    _play(test)


def test_a_worker_consumes_the_queues_it_is_told_to_and_declares_them() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "not mine")
        gate.open.set()
        async with _running(app, queues=("other", "other", "third")) as (worker, _):
            assert worker.queues == [WorkQueue("other"), WorkQueue("third")]
            await _send(app, "mine", queue="other")
            await settle_loop()
            assert (await app.stats("third.p.low")).consumers == 1

        assert gate.finished == ["mine"]

    _play(test)


def test_a_worker_without_tasks_or_queues_is_refused() -> None:
    with staged() as app:
        with pytest.raises(InvalidOption, match="no tasks"):
            Worker(app, WorkerConfig())

        assert Worker(app, WorkerConfig(queues=("work",))).queues == [WorkQueue("work")]
        with pytest.raises(InvalidOption, match="queue name"):
            Worker(app, WorkerConfig(queues=("work.dlq",)))


@pytest.mark.parametrize("setting", [{"concurrency": 0}, {"prefetch": 0}, {"concurrency": -1, "prefetch": 5}])
def test_an_impossible_setting_is_refused(setting: dict[str, int]) -> None:
    with staged() as app, pytest.raises(InvalidOption, match="at least 1"):
        Worker(
            app,
            WorkerConfig(
                queues=("work",), concurrency=setting.get("concurrency", 1), prefetch=setting.get("prefetch")
            ),
        )


def test_a_task_that_insists_on_results_is_refused_without_a_state_and_by_name() -> None:
    with staged(with_state=False) as app:

        @app.task(name="insists", result=True)
        async def insists() -> int:
            return 1

        with pytest.raises(UnsupportedFeature, match="insists"):
            Worker(app, WorkerConfig())


def test_a_task_for_a_process_is_refused_where_nobody_knows_the_apps_module() -> None:
    async def main() -> None:
        with staged() as app:

            @app.task(name="heavy", executor="process")
            def heavy() -> None: ...

            with pytest.raises(UnsupportedFeature, match="process"):
                await Worker(app, WorkerConfig()).run()

    run(main())


# Burst -------------------------------------------------------------------------------------------------


def test_a_burst_ends_when_the_queues_stay_empty() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, *map(str, range(50)))
        gate.open.set()

        await Worker(app, WorkerConfig(burst=True, concurrency=4)).run()

        assert len(gate.finished) == 50
        assert app.story().count("acked work") == 50

    _play(test)


def test_a_burst_over_empty_queues_ends() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await Worker(app, WorkerConfig(burst=True)).run()

        assert app.story() == []

    _play(test)


def test_a_burst_waits_for_what_runs_and_for_what_that_sends() -> None:
    async def main() -> None:
        with staged() as app:
            seen: list[int] = []

            @app.task(name="chain", queue="work")
            async def chain(left: str) -> None:
                await asyncio.sleep(2)
                seen.append(int(left))
                if int(left):
                    await chain.asend(str(int(left) - 1))

            await _send(app, "3", task="chain")
            await Worker(app, WorkerConfig(burst=True)).run()

            assert seen == [3, 2, 1, 0]

    run(main())


def test_a_burst_does_not_wait_for_what_is_delayed() -> None:
    async def main() -> None:
        with staged() as app:

            @app.task(name="fails", queue="work", retry=RetryPolicy(base="1h", jitter=False))
            async def fails(label: str) -> None:
                raise ValueError("no")

            await _send(app, "a", task="fails")
            await Worker(app, WorkerConfig(burst=True)).run()

            assert (await app.stats("work")).delayed == 1

    run(main())


def test_a_burst_may_be_stopped_and_does_not_mind_a_broker_that_does_not_answer_for_a_while() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await _send(app, "a")
        app.flaky.fail_calls("stats", 5, BrokerUnavailable("away"))
        async with _running(app, burst=True) as (worker, running):
            await asyncio.sleep(60)
            assert not running.done()
            worker.requeue_now()
            await running

        assert app.story() == ["requeued work"]

    _play(test)
