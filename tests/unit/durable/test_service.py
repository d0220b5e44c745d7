"""Services: required behaviour of each, and the group that owns them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import TaskMQ
from taskmq.durable.service import Service, ServiceGroup, pause, unless_set
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory
from tests.unit.worker.staged import settle_loop
from tests.virtual_time import run

WORKER_SERVICES = [
    "relay of delayed jobs",
    "guard of long runs",
    "event publisher",
    "announcer of tasks",
    "command service",
    "watch of cancellations",
    "watch of paused queues",
    "prefetch tuner",
]


def on_service(name: str, test: Callable[[Service], Coroutine[Any, Any, None]]) -> None:
    """Run a test with one of the services of a real worker on an embedded broker and state; nothing may be left."""

    async def main() -> None:
        before = asyncio.all_tasks()
        async with TaskMQ("memory://services", state="memory://services", delay="state") as app:

            @app.task(queue="work")
            async def work() -> None: ...

            worker = Worker(app, WorkerConfig())
            dispatcher = worker._new_dispatcher()
            consumer = await worker._start(dispatcher)
            services = {found: service for found, service, _ in worker._services(consumer, dispatcher)}
            assert list(services) == WORKER_SERVICES
            await test(services[name])
            await consumer.stop()
            await dispatcher.aclose()
        await settle_loop()
        assert asyncio.all_tasks() == before

    run(main())
    forget_memory("services")


@pytest.mark.parametrize("name", WORKER_SERVICES)
class TestEveryService:
    def test_a_service_runs_until_it_is_stopped_and_may_be_stopped_twice(self, name: str) -> None:
        async def test(service: Service) -> None:
            running = asyncio.create_task(service.run())
            await asyncio.sleep(100)
            assert not running.done()
            service.stop()
            service.stop()
            await asyncio.wait_for(running, 10)
            service.stop()

        on_service(name, test)

    def test_a_service_stopped_before_its_start_returns_at_once(self, name: str) -> None:
        async def test(service: Service) -> None:
            service.stop()
            await asyncio.wait_for(service.run(), 0.001)

        on_service(name, test)

    def test_a_cancelled_service_ends(self, name: str) -> None:
        async def test(service: Service) -> None:
            running = asyncio.create_task(service.run())
            await asyncio.sleep(1)
            running.cancel()
            await asyncio.wait((running,), timeout=10)
            assert running.cancelled()

        on_service(name, test)

    @given(st.lists(st.tuples(st.sampled_from(["run", "stop", "cancel"]), st.sampled_from([0, 0.001, 0.7, 30]))))
    def test_a_service_leaves_nothing_behind_however_it_is_started_and_stopped(
        self, name: str, steps: list[tuple[str, float]]
    ) -> None:
        async def test(service: Service) -> None:
            running: asyncio.Task[None] | None = None
            for step, seconds in steps:
                if step == "run" and (running is None or running.done()):
                    running = asyncio.create_task(service.run())
                elif step == "stop":
                    service.stop()
                elif running is not None:
                    running.cancel()
                await asyncio.sleep(seconds)
            service.stop()
            if running is not None:
                await asyncio.wait((running,), timeout=10)
                assert running.done()
                assert running.cancelled() or running.exception() is None

        on_service(name, test)


class Part:
    """A service that records its life cycle.

    Args:
        failures: number of times that `run` raises first.
        error: the exception raised then.
        ignores: `stop` does not end the service.
    """

    def __init__(
        self,
        name: str,
        story: list[str],
        *,
        failures: int = 0,
        error: BaseException | None = None,
        ignores: bool = False,
    ) -> None:
        self._name = name
        self._story = story
        self._failures = failures
        self._error = error or ZeroDivisionError()
        self._ignores = ignores
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._story.append(f"stop {self._name}")
        if not self._ignores:
            self._stopping.set()

    async def run(self) -> None:
        self._story.append(f"run {self._name}")
        if self._failures:
            self._failures -= 1
            raise self._error
        try:
            await self._stopping.wait()
            await asyncio.sleep(0.1)
            self._story.append(f"end {self._name}")
        except asyncio.CancelledError:
            self._story.append(f"cancelled {self._name}")
            raise


async def test_services_are_stopped_one_by_one_in_reverse_order() -> None:
    story: list[str] = []
    async with ServiceGroup() as services:
        await services.start(Part("a", story), "a")
        await services.start(Part("b", story), "b")
        story.append("body")

    assert story == ["run a", "run b", "body", "stop b", "end b", "stop a", "end a"]


async def test_a_service_that_does_not_stop_in_time_is_cancelled() -> None:
    story: list[str] = []
    loop = asyncio.get_running_loop()
    async with ServiceGroup() as services:
        await services.start(Part("a", story, ignores=True), "a", grace=3)
        began = loop.time()

    assert story == ["run a", "stop a", "cancelled a"]
    assert loop.time() - began == pytest.approx(3)


async def test_services_in_a_hurry_share_no_more_than_the_given_time_each() -> None:
    story: list[str] = []
    loop = asyncio.get_running_loop()
    async with ServiceGroup() as services:
        await services.start(Part("a", story, ignores=True), "a", grace=30)
        await services.start(Part("b", story, ignores=True), "b", grace=1)
        services.hurry(grace=2)
        began = loop.time()

    assert story == ["run a", "run b", "stop b", "cancelled b", "stop a", "cancelled a"]
    assert loop.time() - began == pytest.approx(3)


async def test_services_that_are_ending_can_be_hurried() -> None:
    story: list[str] = []
    loop = asyncio.get_running_loop()
    async with ServiceGroup() as services:
        await services.start(Part("a", story, ignores=True), "a", grace=30)
        await services.start(Part("b", story, ignores=True), "b", grace=30)
        began = loop.time()
        loop.call_later(5, lambda: services.hurry(grace=2))

    assert story == ["run a", "run b", "stop b", "cancelled b", "stop a", "cancelled a"]
    assert loop.time() - began == pytest.approx(5 + 2 + 2)


async def test_a_hurry_gives_no_service_more_time() -> None:
    story: list[str] = []
    loop = asyncio.get_running_loop()
    async with ServiceGroup() as services:
        await services.start(Part("a", story, ignores=True), "a", grace=3)
        began = loop.time()
        loop.call_later(2, lambda: services.hurry(grace=2))

    assert loop.time() - began == pytest.approx(3)


async def test_a_service_interrupted_by_a_foreign_cancellation_runs_again() -> None:
    class Waiting(Part):
        answer: asyncio.Future[None] | None = None

        async def run(self) -> None:
            if self.answer is None:
                self.answer = asyncio.get_running_loop().create_future()
                await self.answer
            await super().run()

    story: list[str] = []
    part = Waiting("a", story)
    async with ServiceGroup() as services:
        await services.start(part, "the part")
        assert part.answer is not None
        part.answer.cancel()
        await asyncio.sleep(10)
        assert story == ["run a"]

    assert story == ["run a", "stop a", "end a"]


async def test_a_failed_service_is_logged_and_restarted_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    story: list[str] = []
    async with ServiceGroup() as services:
        await services.start(Part("a", story, failures=2), "the part")
        await services.start(Part("b", story), "b")
        await asyncio.sleep(0.9)
        assert story == ["run a", "run b"]
        await asyncio.sleep(0.2)
        assert story == ["run a", "run b", "run a"]
        await asyncio.sleep(2)

    assert story == ["run a", "run b", "run a", "run a", "stop b", "end b", "stop a", "end a"]
    assert [record.getMessage() for record in caplog.records] == [
        "the part failed; restarting it in 1 s",
        "the part failed; restarting it in 2 s",
    ]


async def test_a_service_that_exits_is_restarted_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    story: list[str] = []
    async with ServiceGroup() as services:
        await services.start(Part("a", story, failures=1, error=SystemExit(3)), "the part")
        await services.start(Part("b", story), "b")
        await asyncio.sleep(2)
        assert story == ["run a", "run b", "run a"]

    assert story == ["run a", "run b", "run a", "stop b", "end b", "stop a", "end a"]
    assert [record.getMessage() for record in caplog.records] == ["the part failed; restarting it in 1 s"]


async def test_pauses_start_over_after_a_long_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Tired:
        def stop(self) -> None: ...

        async def run(self) -> None:
            await asyncio.sleep(100)
            raise ZeroDivisionError

    async with ServiceGroup() as services:
        await services.start(Tired(), "the part", grace=0.1)
        await asyncio.sleep(350)
    assert [record.getMessage() for record in caplog.records] == ["the part failed; restarting it in 1 s"] * 3


async def test_a_service_waiting_for_its_restart_does_not_delay_shutdown() -> None:
    story: list[str] = []
    loop = asyncio.get_running_loop()
    async with ServiceGroup() as services:
        await services.start(Part("a", story, failures=1), "a", grace=100)
        began = loop.time()

    assert story == ["run a", "stop a"]
    assert loop.time() - began < 0.01


async def test_an_error_of_the_block_is_raised_once_the_services_have_ended() -> None:
    story: list[str] = []
    with pytest.raises(KeyError):  # noqa: PT012 - what the block raises is what this is about
        async with ServiceGroup() as services:
            await services.start(Part("a", story), "a")
            raise KeyError

    assert story == ["run a", "stop a", "end a"]


async def test_cancelling_a_block_that_is_stopping_cancels_its_services() -> None:
    story: list[str] = []

    async def body() -> None:
        async with ServiceGroup() as services:
            await services.start(Part("a", story, ignores=True), "a", grace=1000)
            await services.start(Part("b", story, ignores=True), "b", grace=1000)

    task = asyncio.create_task(body())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait((task,))

    assert task.cancelled()
    assert sorted(story) == ["cancelled a", "cancelled b", "run a", "run b", "stop b"]


async def test_stopping_ends_a_pause_early() -> None:
    stop = asyncio.Event()
    assert not await pause(stop, 5)
    asyncio.get_running_loop().call_later(1, stop.set)
    assert await pause(stop, 5)
    assert await pause(stop, 5)


def test_a_call_runs_unless_an_event_is_set_first_or_its_time_is_over() -> None:
    async def later(story: list[str]) -> str:
        try:
            await asyncio.sleep(5)
        finally:
            story.append("over")
        return "done"

    async def main() -> None:
        loop, event, story = asyncio.get_running_loop(), asyncio.Event(), list[str]()
        assert await unless_set(event, later(story)) == "done"
        assert await unless_set(event, later(story), timeout=1) is None
        loop.call_later(1, event.set)
        assert await unless_set(event, later(story)) is None
        assert story == ["over"] * 3

    run(main())


async def test_an_error_of_the_call_is_raised() -> None:
    async def broken() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await unless_set(asyncio.Event(), broken())
