import pytest

from taskmq.contracts.jobs import JobStore, Lane, NewJob, Pick, partition_key
from taskmq.errors import StateUnavailable, StoreUnavailable, UnsupportedFeature
from taskmq.model.envelope import new_job_id
from taskmq.model.states import JobState
from taskmq.testing import FakeClock, MemoryJobStore

pytestmark = pytest.mark.real_time


def _job(clock: FakeClock, *, due: int = 0, number: int = 0) -> NewJob:
    return NewJob(id=new_job_id(clock.now_ms(), number.to_bytes(10)), task="t", queue="q", due=due, body=b"{}")


async def test_time_is_what_the_tests_clock_says() -> None:
    clock = FakeClock()
    store: JobStore = MemoryJobStore(clock=clock)
    job = _job(clock, due=clock.now_ms() + 5_000)
    await store.submit([job])
    schedulers = store.dispatching
    partition = (int(job.id[-2:], 16) & 63) % schedulers.partitions
    epoch = await schedulers.leases.acquire(partition_key(partition), owner="s", seconds=10)
    assert isinstance(epoch, int)

    assert await schedulers.due(partition, until=await store.now_ms() + 1, limit=1) == []
    clock.advance("5s")
    (due,) = await schedulers.due(partition, until=await store.now_ms() + 1, limit=1)
    assert await schedulers.fire(partition, epoch, [due]) == {Lane("q", job.priority, "")}
    clock.advance("5s")
    assert await schedulers.leases.find(partition_key(partition)) is None


async def test_a_time_that_goes_back_is_not_seen() -> None:
    late, early = FakeClock(2_000), FakeClock(1_000)
    store = MemoryJobStore(clock=late)

    assert await store.now_ms() == 2_000
    assert await MemoryJobStore(store.model, clock=early).now_ms() == 2_000


async def test_an_outage_is_what_a_test_says_and_loses_nothing() -> None:
    clock = FakeClock()
    store = MemoryJobStore(clock=clock)
    other = MemoryJobStore(store.model, clock=clock)
    job = _job(clock)
    await store.submit([job])

    store.is_reachable = False
    with pytest.raises(StoreUnavailable, match="not reachable"):
        await store.get(job.id)
    with pytest.raises(StateUnavailable, match="not reachable"):
        await store.dispatching.leases.find("partition:0")
    assert await other.get(job.id) is not None
    store.is_reachable = True
    found = await store.get(job.id)
    assert found is not None
    assert found.state is JobState.QUEUED


async def test_a_connection_of_the_callers_own_is_refused_by_name() -> None:
    clock = FakeClock()
    with pytest.raises(UnsupportedFeature, match="connection="):
        await MemoryJobStore(clock=clock).submit([_job(clock)], connection=object())


async def test_the_lanes_of_a_queue_are_in_its_partition() -> None:
    clock = FakeClock()
    store = MemoryJobStore(clock=clock)
    await store.submit([_job(clock, number=1), _job(clock, number=2)])
    partition = store.dispatching.partition_of("q")
    epoch = await store.dispatching.leases.acquire(partition_key(partition), owner="s", seconds=10)
    assert isinstance(epoch, int)

    (lane,) = await store.dispatching.lanes(partition)
    batch = await store.dispatching.dispatch(partition, epoch, [Pick(lane, 1)])

    assert batch is not None
    assert len(batch.jobs) == 1
