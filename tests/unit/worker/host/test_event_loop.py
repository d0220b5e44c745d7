import asyncio
import ctypes
import logging
import math
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from taskmq.worker.host.event_loop import LoopMonitor

LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
Loop = Callable[[], asyncio.AbstractEventLoop]


def _hold_up(seconds: float) -> None:
    time.sleep(seconds)


def _run(main: Callable[[], Coroutine[Any, Any, None]], loop_factory: Loop = asyncio.new_event_loop) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@LOOPS
def test_a_blocked_loop_is_reported_with_its_stack_and_runs_and_its_end(
    loop_factory: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        watch = LoopMonitor(patience=0.1, running=lambda: ["shop.bill (job 1)", "shop.mail (job 2)"])
        async with watch.watching():
            await asyncio.sleep(0.05)
            _hold_up(1.5)
            await asyncio.sleep(0.15)
            assert watch.lag > 0.5

    _run(main, loop_factory)

    said = [record.getMessage() for record in caplog.records if record.name == "taskmq.worker"]
    assert said[0].startswith("event loop blocked for 0.1")
    assert "running: shop.bill (job 1), shop.mail (job 2)" in said[0]
    assert "in _hold_up" in said[0]
    over = re.fullmatch(r"event loop runs again; it was blocked for (\d\.\d) s", said[-1])
    assert over is not None
    assert float(over[1]) >= 0.5
    # At 0.1, then at twice the time each.
    assert 2 <= len(said) - 1 <= 2 + math.log2(float(over[1]) / 0.1)


def test_the_end_of_a_block_is_reported_even_if_the_worker_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with LoopMonitor(patience=0.1, running=list).watching():
            await asyncio.sleep(0.05)
            _hold_up(0.4)

    _run(main)
    assert "event loop runs again" in caplog.messages[-1]


def test_a_running_loop_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watch = LoopMonitor(patience=0.5, running=list)
        async with watch.watching():
            for _ in range(20):
                _hold_up(0.02)
                await asyncio.sleep(0)

    _run(main)
    assert caplog.messages == []


def test_without_patience_nothing_is_watched(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watch = LoopMonitor(patience=0, running=list)
        async with watch.watching():
            _hold_up(0.3)
            await asyncio.sleep(0.05)
        assert watch.lag == 0

    _run(main)
    assert caplog.messages == []


def test_a_c_call_that_holds_the_interpreter_is_reported_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watch = LoopMonitor(patience=0.2, running=lambda: ["shop.bill (job 1)"])
        async with watch.watching():
            await asyncio.sleep(0.05)
            ctypes.PyDLL(None).usleep(600_000)
            await asyncio.sleep(0.2)

    _run(main)
    (said,) = caplog.messages
    assert re.match(r"no Python code of this process could run for 0\.[4-9] s: a call into C held the GIL", said)
    assert "running: shop.bill (job 1); its threads are now at\nthread " in said
    assert "thread taskmq-watch" not in said


def test_the_holder_of_the_interpreter_is_reported_when_the_call_returns(caplog: pytest.LogCaptureFixture) -> None:
    def stuck_in_c() -> None:
        ctypes.PyDLL(None).usleep(600_000)
        # Until the watch, overdue by now, has run.
        while not caplog.messages:
            pass

    async def main() -> None:
        async with LoopMonitor(patience=0.2, running=list).watching():
            await asyncio.sleep(0.05)
            await asyncio.to_thread(stuck_in_c)

    _run(main)
    assert (
        "in test_the_holder_of_the_interpreter_is_reported_when_the_call_returns.<locals>.stuck_in_c"
        in caplog.messages[0]
    )


def test_a_change_during_listing_costs_the_names_and_not_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    def changes() -> list[str]:
        raise RuntimeError("dictionary changed size during iteration")

    async def main() -> None:
        async with LoopMonitor(patience=0.05, running=changes).watching():
            await asyncio.sleep(0.02)
            _hold_up(0.3)
            await asyncio.sleep(0.1)

    caplog.set_level(logging.INFO)
    _run(main)
    # A busy machine may block the process as well, which is reported in between.
    assert any("running: nothing" in message for message in caplog.messages)
    assert any("runs again" in message for message in caplog.messages)
