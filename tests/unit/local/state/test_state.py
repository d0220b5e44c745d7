import asyncio
import sqlite3
import threading
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from taskmq.client.plugins import open_broker, open_state
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import ResultRecord, State
from taskmq.errors import ResultExpired, StateUnavailable
from taskmq.model.states import JobState
from taskmq.testing.fake_clock import FakeClock
from taskmq_local import forget_memory
from tests.unit.local.kit import run, settle_loop

pytestmark = pytest.mark.real_time


@pytest.fixture(params=["memory", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield f"local://{tmp_path}/state"
        return
    name = uuid.uuid4().hex
    yield f"memory://{name}"
    forget_memory(name)


@asynccontextmanager
async def open_local(url: str, clock: FakeClock) -> AsyncGenerator[State, None]:
    state = open_state(url, BrokerOptions(clock=clock))
    try:
        yield state
    finally:
        await state.aclose()


def record(job_id: str = "job", state: JobState = JobState.SUCCEEDED, attempt: int = 1) -> ResultRecord:
    return ResultRecord(job_id=job_id, task="test", state=state, attempt=attempt, finished=1)


async def test_a_result_expires_after_its_ttl(url: str) -> None:
    clock = FakeClock()
    async with open_local(url, clock) as state:
        await state.results.put(record(), ttl=10)

        clock.advance(9.999)
        assert await state.results.get("job") == record()
        clock.advance(0.001)
        assert await state.results.get("job") is None
        with pytest.raises(ResultExpired):
            await state.results.wait("job", timeout=0)


async def test_an_expired_success_can_be_replaced_by_another_result(url: str) -> None:
    clock = FakeClock()
    async with open_local(url, clock) as state:
        await state.results.put(record(), ttl=10)
        clock.advance(10)

        await state.results.put(record(attempt=2), ttl=10)

        assert await state.results.get("job") == record(attempt=2)


async def test_a_success_is_never_overwritten_and_a_failure_is(url: str) -> None:
    async with open_local(url, FakeClock()) as state:
        await state.results.put(record(state=JobState.FAILED), ttl=10)
        await state.results.put(record(), ttl=10)

        await state.results.put(record(state=JobState.FAILED, attempt=3), ttl=10)

        assert await state.results.get("job") == record()


async def test_a_success_wins_over_concurrent_puts(url: str) -> None:
    async with open_local(url, FakeClock()) as state:
        records = [record(state=JobState.FAILED), record(), record(state=JobState.CANCELLED)]

        await asyncio.gather(*(state.results.put(one, ttl=10) for one in records))

        assert await state.results.get("job") == record()


def test_a_put_on_the_loop_of_another_thread_wakes_a_waiter(url: str) -> None:
    async def put() -> None:
        async with open_local(url, FakeClock()) as state:
            await state.results.put(record(), ttl=10)

    async def main() -> None:
        async with open_local(url, FakeClock()) as state:
            waiting = asyncio.create_task(state.results.wait("job", timeout=10))
            await settle_loop()
            thread = threading.Thread(target=asyncio.run, args=(put(),))
            thread.start()

            assert await waiting == record()
            thread.join()

    run(main())


async def test_no_put_is_missed_between_reading_and_listening(url: str) -> None:
    async with open_local(url, FakeClock()) as putting, open_local(url, FakeClock()) as state:
        for number in range(100):
            name = f"job{number}"
            waiting = asyncio.create_task(state.results.wait(name, timeout=0.9))
            for _ in range(number % 7):
                await asyncio.sleep(0)
            await putting.results.put(record(name), ttl=10)
            assert await waiting == record(name)


async def test_closing_ends_all_waits(url: str) -> None:
    async with open_local(url, FakeClock()) as state:
        waiting = asyncio.create_task(state.results.wait("job", timeout=None))
        await settle_loop()

        await state.aclose()

        with pytest.raises(StateUnavailable, match="closed"):
            await waiting


async def test_expired_results_do_not_fill_the_file(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_local(f"local://{tmp_path}", clock) as state:
        for generation in range(5):
            names = [f"{generation}-{number}" for number in range(100)]
            await asyncio.gather(*(state.results.put(record(name), ttl=100) for name in names))
            await asyncio.gather(*(state.starts.begin(name, ttl=100) for name in names))
            clock.advance(100)

    connection = sqlite3.connect(tmp_path / "taskmq.db")
    # Stored results, and those remembered for the same time again.
    assert connection.execute("SELECT count(*) FROM results").fetchone()[0] <= 200
    assert connection.execute("SELECT count(*) FROM results WHERE state <> 'expired'").fetchone()[0] <= 100
    assert connection.execute("SELECT count(*) FROM starts").fetchone()[0] <= 100
    connection.close()


async def test_results_share_the_transactions_of_the_broker_and_outlive_it(tmp_path: Path) -> None:
    url, options = f"local://{tmp_path}", BrokerOptions()
    broker, state = open_broker(url, options), open_state(url, options)
    await broker.connect(timeout=10)
    await asyncio.gather(*(state.results.put(record(f"a{number}"), ttl=60) for number in range(20)))
    put = asyncio.create_task(state.results.put(record("while it closes"), ttl=60))
    await asyncio.sleep(0)
    await broker.aclose()
    await put
    await state.results.put(record("after"), ttl=60)
    for name in ("a0", "a19", "while it closes", "after"):
        assert await state.results.get(name) == record(name)
    await state.aclose()


async def test_an_expired_result_is_remembered_for_the_same_time_again(url: str) -> None:
    clock = FakeClock()
    async with open_local(url, clock) as state:
        await state.results.put(record(), ttl=100)
        for step in (100, 50, 49):
            clock.advance(step)
            await state.results.put(record("other"), ttl=10)
            assert await state.results.has_expired("job")
        clock.advance(1)
        assert not await state.results.has_expired("job")
        await state.results.put(record("other"), ttl=10)
        assert await state.results.wait("job", timeout=0) is None
