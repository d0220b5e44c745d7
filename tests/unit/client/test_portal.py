import asyncio
import concurrent.futures
import logging
import os
import sys
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from taskmq.client.portal import Portal, current_portal, is_portal_thread
from taskmq.errors import BrokerUnavailable, PublishUnknown
from tests.servers.waiting import eventually, until


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


def test_a_call_runs_on_the_thread_and_loop_of_the_portal(portal: Portal) -> None:
    async def where() -> tuple[str, bool]:
        return threading.current_thread().name, asyncio.get_running_loop() is portal.loop

    assert portal.call(where) == ("taskmq-io", True)


def test_a_call_may_return_a_future_or_any_other_awaitable(portal: Portal) -> None:
    def done_future() -> "asyncio.Future[int]":
        future: asyncio.Future[int] = portal.loop.create_future()
        portal.loop.call_soon(future.set_result, 7)
        return future

    class Awaitable:
        def __await__(self) -> Generator[Any, None, str]:
            yield from asyncio.sleep(0).__await__()
            return "awaited"

    assert portal.call(done_future) == 7
    assert portal.call(lambda: portal.loop.create_task(_thread_name())) == "taskmq-io"
    assert portal.call(Awaitable) == "awaited"


def test_an_exception_of_a_call_is_raised_unchanged(portal: Portal) -> None:
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


def test_a_call_cancelled_inside_is_cancelled_for_its_caller(portal: Portal) -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(concurrent.futures.CancelledError):
        portal.call(main)


def test_threads_share_the_loop_and_each_gets_its_own_answer(portal: Portal) -> None:
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


def test_calls_run_concurrently(portal: Portal) -> None:
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


def test_only_the_portal_thread_is_current(portal: Portal) -> None:
    async def is_current() -> bool:
        return portal.is_current

    assert not portal.is_current
    assert portal.call(is_current)


def test_stopping_cancels_pending_calls_and_may_be_repeated() -> None:
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


def test_stopping_the_portal_cancels_a_queued_call_too() -> None:
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
        eventually(lambda: portal._calls)
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
def test_a_forked_child_has_its_own_portal() -> None:
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


class Gate:
    """Code that runs in the portal's thread until the test opens the gate."""

    def __init__(self) -> None:
        self.is_reached, self.go_on = threading.Event(), threading.Event()

    async def pass_through(self) -> str:
        self.is_reached.set()
        self.go_on.wait(timeout=30)
        return "passed"


def test_a_call_not_yet_begun_by_a_stuck_thread_is_withdrawn(portal: Portal) -> None:
    gate, begun = Gate(), threading.Event()

    async def begin() -> None:
        begun.set()

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(portal.call, gate.pass_through)
        assert gate.is_reached.wait(timeout=30)
        with pytest.raises(BrokerUnavailable, match=r"has not answered for 0.2 s: .* Nothing was sent"):
            portal.call(begin, patience=0.2)
        gate.go_on.set()

        assert first.result(timeout=30) == "passed"
    assert portal.call(_thread_name) == "taskmq-io"
    assert not begun.is_set()


def test_a_call_in_which_the_thread_is_stuck_has_an_unknown_outcome(portal: Portal) -> None:
    gate = Gate()

    with pytest.raises(PublishUnknown, match=r"has not answered for 0.2 s"):
        portal.call(gate.pass_through, patience=0.2)
    gate.go_on.set()

    assert portal.call(_thread_name) == "taskmq-io"


def test_a_call_may_exceed_its_patience_while_the_loop_still_runs(portal: Portal) -> None:
    async def take_long() -> str:
        end = portal.loop.time() + 2.5
        await until(lambda: portal.loop.time() > end, "more than the patience")
        return "done"

    # On a busy machine a loop may need a second until it runs.
    assert portal.call(take_long, patience=2) == "done"


def test_a_timeout_inside_a_call_is_raised_as_an_error_of_the_call(portal: Portal) -> None:
    async def time_out() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        portal.call(time_out, patience=0.05)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError], ids=lambda error: error.__name__)
def test_a_raising_callback_does_not_end_the_thread(
    portal: Portal, error: type[BaseException], capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error("from a callback")

    portal.loop.call_soon_threadsafe(fail)

    assert portal.call(_thread_name) == "taskmq-io"


def test_a_raising_log_handler_does_not_end_the_thread(
    portal: Portal, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Chat(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionError("the chat is down")

    def fail() -> None:
        raise RuntimeError("from a callback")

    logger = logging.getLogger("asyncio")
    # The first app of a process makes it a logger that catches the error itself.
    monkeypatch.setattr(logger, "__class__", logging.Logger)
    monkeypatch.setattr(logger, "handlers", [Chat()])
    portal.loop.call_soon_threadsafe(fail)

    assert portal.call(_thread_name) == "taskmq-io"
    assert "the chat is down" in capfd.readouterr().err


def test_blocking_code_in_the_portal_thread_gets_a_spare_portal() -> None:
    async def call_again() -> bool:
        spare = current_portal()
        return spare is not main and spare.call(_is_portal_thread) and current_portal() is spare

    async def _is_portal_thread() -> bool:
        return is_portal_thread()

    main = current_portal()

    assert main.call(call_again)
    assert current_portal() is main
    assert not is_portal_thread()


def test_portals_that_wait_for_each_other_time_out() -> None:
    async def call_back(depth: int, patience: float) -> str:
        if depth == 0:
            return "answered"
        return current_portal().call(lambda: call_back(depth - 1, patience), patience=patience)

    assert current_portal().call(lambda: call_back(1, patience=30)) == "answered"
    with pytest.raises((BrokerUnavailable, PublishUnknown)):
        current_portal().call(lambda: call_back(2, patience=0.3), patience=0.6)
    assert current_portal().call(_thread_name) == "taskmq-io"


def test_a_call_has_the_context_variables_of_its_caller(portal: Portal) -> None:
    variable = ContextVar("variable", default="")

    async def read() -> str:
        return variable.get()

    def call(value: str) -> str:
        variable.set(value)
        return portal.call(read)

    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(call, "abcdefgh")] == [*"abcdefgh"]
    assert portal.call(read) == ""
