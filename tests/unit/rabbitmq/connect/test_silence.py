"""Silence on a connection, in virtual time."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from taskmq_rabbitmq.connect.silence import SilenceDetector


class Line:
    """A connection that counts bytes."""

    def __init__(self) -> None:
        self.received = 0
        self.silent_at: float | None = None

    def found_silent(self) -> None:
        self.silent_at = asyncio.get_running_loop().time()


def watch(line: Line, heartbeat: float) -> SilenceDetector:
    return SilenceDetector(heartbeat, lambda: line.received, line.found_silent, loop=asyncio.get_running_loop())


@given(st.floats(0.5, 600), st.floats(0, 30))
async def test_silence_is_detected_after_one_and_a_half_to_two_heartbeats(heartbeat: float, talks: float) -> None:
    loop, line = asyncio.get_running_loop(), Line()
    silence = watch(line, heartbeat)
    last = loop.time()
    while loop.time() - last < 1 and line.received < talks:
        await asyncio.sleep(heartbeat / 3)
        line.received += 1
        last = loop.time()
    await asyncio.sleep(3 * heartbeat)

    assert line.silent_at is not None
    assert 1.5 * heartbeat - 1e-3 <= line.silent_at - last <= 1.75 * heartbeat + 1e-2
    silence.stop()


async def test_a_connection_that_sends_once_per_heartbeat_is_alive() -> None:
    line = Line()
    silence = watch(line, 30)
    for _ in range(100):
        await asyncio.sleep(30)
        line.received += 8
    assert line.silent_at is None
    silence.stop()


async def test_without_heartbeats_nothing_is_watched() -> None:
    line = Line()
    watch(line, 0)
    await asyncio.sleep(10_000)
    assert line.silent_at is None


async def test_a_stopped_monitor_reports_nothing() -> None:
    line = Line()
    silence = watch(line, 1)
    await asyncio.sleep(1)
    silence.stop()
    silence.stop()
    await asyncio.sleep(100)
    assert line.silent_at is None
