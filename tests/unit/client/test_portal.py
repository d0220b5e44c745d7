import asyncio
import concurrent.futures
import os
import sys
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from taskmq.client.portal import Portal, current_portal
from tests.servers.waiting import eventually


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.stop()


async def _thread_name() -> str:
    return threading.current_thread().name


def test_a_process_has_one_portal() -> None:
    with ThreadPoolExecutor(8) as threads:
        portals = {*threads.map(lambda _: current_portal(), range(64))}

    assert len(portals) == 1


def test_a_call_runs_on_the_portal_s_own_thread_and_loop(portal: Portal) -> None:
    async def where() -> tuple[str, bool]:
        return threading.current_thread().name, asyncio.get_running_loop() is portal.loop

    assert portal.call(where) == ("taskmq-io", True)


def test_a_call_may_give_a_future_or_any_other_awaitable(portal: Portal) -> None:
    def done() -> "asyncio.Future[int]":
        future: asyncio.Future[int] = portal.loop.create_future()
        portal.loop.call_soon(future.set_result, 7)
        return future

    class Awaitable:
        def __await__(self) -> Generator[Any, None, str]:
            yield from asyncio.sleep(0).__await__()
            return "awaited"

    assert portal.call(done) == 7
    assert portal.call(lambda: portal.loop.create_task(_thread_name())) == "taskmq-io"
    assert portal.call(Awaitable) == "awaited"


def test_what_a_call_raises_comes_through_as_it_is(portal: Portal) -> None:
    error = LookupError("no")

    async def later() -> None:
        raise error

    def at_once() -> "asyncio.Future[None]":
        raise error

    for start in (later, at_once):
        with pytest.raises(LookupError) as caught:
            portal.call(start)
        assert caught.value is error
    assert portal.call(_thread_name) == "taskmq-io"


def test_a_call_that_is_cancelled_inside_is_cancelled_for_its_caller(portal: Portal) -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(concurrent.futures.CancelledError):
        portal.call(main)


def test_many_threads_share_the_loop_and_each_gets_its_own_answer(portal: Portal) -> None:
    start = threading.Barrier(16)

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    def ask(number: int) -> list[int]:
        start.wait(timeout=30)
        return [portal.call(lambda i=i: double(number * 100 + i)) for i in range(100)]  # type: ignore[misc]

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, range(16)))

    assert answers == [[(number * 100 + i) * 2 for i in range(100)] for number in range(16)]


def test_calls_overlap(portal: Portal) -> None:
    met = asyncio.Event()

    async def wait() -> str:
        async with asyncio.timeout(30):
            await met.wait()
        return "met"

    async def meet() -> None:
        met.set()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(portal.call, wait)
        portal.call(meet)

        assert waiting.result(timeout=30) == "met"


def test_only_the_portal_s_own_thread_is_current(portal: Portal) -> None:
    async def is_current() -> bool:
        return portal.is_current

    assert not portal.is_current
    assert portal.call(is_current)


def test_stopping_cancels_what_is_pending_and_may_be_done_twice() -> None:
    portal = Portal()
    started = threading.Semaphore(0)

    async def task() -> None:
        started.release()
        await asyncio.Event().wait()

    def future() -> "asyncio.Future[None]":
        started.release()
        return portal.loop.create_future()

    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(portal.call, task), threads.submit(portal.call, future)]
        for _ in calls:
            assert started.acquire(timeout=30)
        portal.stop()
        portal.stop()

        for call in calls:
            with pytest.raises(concurrent.futures.CancelledError):
                call.result(timeout=30)


def test_a_call_that_waits_for_its_turn_when_the_portal_is_stopped_is_cancelled_too() -> None:
    portal = Portal()
    is_busy, go_on = threading.Event(), threading.Event()

    async def busy() -> str:
        is_busy.set()
        go_on.wait(timeout=30)
        return "done"

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(portal.call, busy)
        assert is_busy.wait(timeout=30)
        late = threads.submit(portal.call, _thread_name)
        eventually(lambda: portal._queue)
        stops = [threads.submit(portal.stop) for _ in range(2)]
        eventually(lambda: portal._is_stopped)
        go_on.set()

        assert [stop.result(timeout=30) for stop in stops] == [None, None]
        assert first.result(timeout=30) == "done"
        with pytest.raises(concurrent.futures.CancelledError):
            late.result(timeout=30)


def test_a_stopped_portal_refuses_calls() -> None:
    portal = Portal()
    portal.stop()

    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"the portal was stopped"):
            portal.call(_thread_name)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_a_portal_of_its_own() -> None:
    parents = current_portal()
    assert parents.call(_thread_name) == "taskmq-io"

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            childs = current_portal()
            is_fresh = childs is not parents and childs is current_portal()
            code = 0 if is_fresh and childs.call(_thread_name) == "taskmq-io" else 2
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert current_portal() is parents
    assert parents.call(_thread_name) == "taskmq-io"
