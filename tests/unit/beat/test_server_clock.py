"""The clock that replicas share."""

import asyncio
import logging

import pytest

from taskmq.beat.server_clock import ServerClock, passed_ms
from taskmq.errors import StateUnavailable
from taskmq.testing import FakeClock

HOST = 1_700_000_000_000


class _Server:
    """The server of the state: its clock, and the delay of each direction in local time."""

    def __init__(self, ahead: int = 0) -> None:
        self.passed = 0.0
        self.ahead = ahead
        self.ways = (0.0, 0.0)
        self.is_away = False

    def passes(self) -> float:
        return self.passed

    async def server_now_ms(self) -> int:
        self.passed += self.ways[0]
        now = int(HOST + self.passed + self.ahead)
        self.passed += self.ways[1]
        if self.is_away:
            raise StateUnavailable("no state (staged)")
        return now


def _clock(server: _Server | None) -> ServerClock:
    return ServerClock(FakeClock(HOST), server, passed=server.passes if server else passed_ms)


def test_the_server_clock_advances_with_elapsed_time(caplog: pytest.LogCaptureFixture) -> None:
    server = _Server(ahead=30_000)
    clock = _clock(server)
    assert clock.now_ms() == HOST

    asyncio.run(clock.measure())

    assert clock.offset == 30_000
    server.passed += 5_000
    assert clock.now_ms() == HOST + 35_000
    assert "the clock of this host is off by -30000 ms" in caplog.text


@pytest.mark.parametrize("ahead", [-7_200_000, 3_600_000])
def test_changing_the_clock_of_the_host_has_no_effect(ahead: int) -> None:
    server = _Server()
    host = FakeClock(HOST)
    clock = ServerClock(host, server, passed=server.passes)
    asyncio.run(clock.measure())

    # As if an operator had set the clock.
    clock._clock = FakeClock(HOST + ahead)

    assert clock.now_ms() == HOST
    assert clock.offset == -ahead


def test_the_server_clock_allows_for_the_round_trip_and_distrusts_slow_answers() -> None:
    server = _Server(ahead=1_000)
    clock = _clock(server)
    server.ways = (5, 5)
    asyncio.run(clock.measure())
    assert clock.now_ms() == pytest.approx(HOST + server.passed + 1_000, abs=1)

    server.ways = (0, 400)
    asyncio.run(clock.measure())

    assert clock.now_ms() == pytest.approx(HOST + server.passed + 1_000, abs=1)


def test_a_slow_answer_is_better_than_an_outdated_one() -> None:
    server = _Server(ahead=1_000)
    clock = _clock(server)
    asyncio.run(clock.measure())
    server.ahead = 5_000
    server.ways = (50, 50)

    asyncio.run(clock.measure())
    assert clock.now_ms() == pytest.approx(HOST + server.passed + 1_000, abs=1)
    server.passed += 40_000
    asyncio.run(clock.measure())

    assert clock.now_ms() == pytest.approx(HOST + server.passed + 5_000, abs=1)


def test_a_failed_reading_of_the_server_clock_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    server = _Server(ahead=200)
    clock = _clock(server)
    asyncio.run(clock.measure())
    server.is_away = True
    server.passed += 10_000

    asyncio.run(clock.measure())

    assert clock.now_ms() == HOST + 10_200
    assert not caplog.records


@pytest.mark.real_time
async def test_the_host_clock_is_used_without_a_server() -> None:
    clock = _clock(None)
    await clock.measure()
    assert (clock.now_ms(), clock.offset) == (HOST, 0)
    await clock.sleep_until(HOST)


@pytest.mark.real_time
async def test_sleeping_ends_at_the_instant_of_the_server_clock() -> None:
    server = _Server(ahead=10_000)
    clock = ServerClock(FakeClock(HOST), server, passed=passed_ms)
    await clock.measure()
    instant = clock.now_ms() + 50

    await clock.sleep_until(instant)

    assert instant <= clock.now_ms() < instant + 1_000
