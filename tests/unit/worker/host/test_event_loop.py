import asyncio
import ctypes
import logging
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from taskmq.worker.host.event_loop import LoopMonitor, _Spell

LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
Loop = Callable[[], asyncio.AbstractEventLoop]


def _hold_up(until: Callable[[], bool]) -> None:
    while not until():
        time.sleep(0.01)


def _find(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [message for message in list(caplog.messages) if words in message]


def _find_blocks(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [message for message in _find(caplog, "event loop blocked") if words in message]


def _hold_up_until_reported(caplog: pytest.LogCaptureFixture, words: str, times: int = 1) -> None:
    before = len(_find_blocks(caplog, words))
    _hold_up(lambda: len(_find_blocks(caplog, words)) >= before + times)


async def _block_until_its_end_is_reported(caplog: pytest.LogCaptureFixture, words: str, times: int = 1) -> None:
    """Block the loop until there are reports with these words, and then until its end is reported.

    A report of a process that could not run, as on a busy machine, takes the place of that of an end.
    """
    while not _find(caplog, "event loop runs again"):
        _hold_up_until_reported(caplog, words, times)
        await asyncio.sleep(0.2)


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
            await _block_until_its_end_is_reported(caplog, "in _hold_up", times=2)
            assert watch.lag > 0.1

    _run(main, loop_factory)

    said = _find_blocks(caplog, "in _hold_up")[0]
    assert re.match(r"event loop blocked for \d+\.\d s: ", said)
    assert "running: shop.bill (job 1), shop.mail (job 2)" in said
    over = re.fullmatch(
        r"event loop runs again; it was blocked for (\d+\.\d) s", _find(caplog, "event loop runs again")[0]
    )
    assert over is not None
    assert float(over[1]) >= 0.1


def test_a_block_is_reported_again_at_twice_the_time_each() -> None:
    spell = _Spell(10.0, 0.1)

    assert [now for now in (10.05, 10.15, 10.25, 10.35, 10.6, 10.75) if spell.is_worth_words(now)] == [
        10.15,
        10.35,
        10.75,
    ]


def test_the_end_of_a_block_is_reported_even_if_the_worker_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with LoopMonitor(patience=0.5, running=list).watching():
            _hold_up_until_reported(caplog, "in _hold_up")

    _run(main)
    _hold_up(lambda: bool(_find(caplog, "event loop runs again")))
    assert _find(caplog, "event loop blocked")


def test_a_running_loop_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    blocks: list[float] = []

    async def main() -> None:
        async with LoopMonitor(patience=0.25, running=list).watching():
            for _ in range(30):
                began = time.monotonic()
                time.sleep(0.02)
                await asyncio.sleep(0)
                blocks.append(time.monotonic() - began)

    _run(main)
    # A busy machine may block the process itself for that long.
    assert caplog.messages == [] or max(blocks) > 0.2


def test_without_patience_nothing_is_watched(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watch = LoopMonitor(patience=0, running=list)
        async with watch.watching():
            time.sleep(0.3)
            await asyncio.sleep(0.05)
        assert watch.lag == 0

    _run(main)
    assert caplog.messages == []


def test_a_c_call_that_holds_the_interpreter_is_reported_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watch = LoopMonitor(patience=0.2, running=lambda: ["shop.bill (job 1)"])
        async with watch.watching():
            ctypes.PyDLL(None).usleep(600_000)
            while not _find(caplog, "no Python code"):
                await asyncio.sleep(0.05)

    _run(main)
    said = _find(caplog, "no Python code")[0]
    assert re.match(r"no Python code of this process could run for \d+\.\d s: a call into C held the GIL", said)
    assert "running: shop.bill (job 1); its threads are now at\nthread " in said
    assert "thread taskmq-watch" not in said


def test_the_holder_of_the_interpreter_is_reported_when_the_call_returns(caplog: pytest.LogCaptureFixture) -> None:
    def stuck_in_c() -> None:
        ctypes.PyDLL(None).usleep(600_000)
        # Until the watch, overdue by now, has run.
        while not _find(caplog, "no Python code"):
            pass

    async def main() -> None:
        async with LoopMonitor(patience=0.2, running=list).watching():
            await asyncio.to_thread(stuck_in_c)

    _run(main)
    assert (
        "in test_the_holder_of_the_interpreter_is_reported_when_the_call_returns.<locals>.stuck_in_c"
        in _find(caplog, "no Python code")[0]
    )


def test_a_change_during_listing_costs_the_names_and_not_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    def changes() -> list[str]:
        raise RuntimeError("dictionary changed size during iteration")

    async def main() -> None:
        async with LoopMonitor(patience=0.05, running=changes).watching():
            await _block_until_its_end_is_reported(caplog, "running: nothing")

    caplog.set_level(logging.INFO)
    _run(main)
    assert _find(caplog, "event loop runs again")
