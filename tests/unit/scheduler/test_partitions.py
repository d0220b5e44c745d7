"""Partitions held by a scheduler, as it knows them."""

import asyncio
import logging
import re
from collections.abc import Callable

import pytest

from taskmq.contracts.jobs import JobStore, partition_key
from taskmq.contracts.stores import Lease
from taskmq.scheduler.partitions import HeldLease, PartitionLeases
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play, play_one, until


@run_by(play)
async def test_a_late_end_of_the_work_on_a_partition_does_not_affect_its_next_holder(stage: Stage, /) -> None:
    store, taken, lost = stage.store, list[HeldLease](), list[HeldLease]()
    leases = _leases(store, on_acquire=taken.append, on_lose=lost.append)
    running = asyncio.create_task(leases.run())
    await until(lambda: len(leases.held) == 8)
    store.is_reachable = False
    await until(lambda: len(lost) == 8)
    store.is_reachable = True
    await until(lambda: len(leases.held) == 8)

    for lease in lost:
        await leases.release(lease)
    await stage.pass_by(20)

    assert (len(leases.held), len(taken), len(lost)) == (8, 16, 8)
    leases.stop()
    await running
    await leases.aclose()


@run_by(play_one)
async def test_a_partition_acquired_while_its_scheduler_stops_is_released(stage: Stage, /) -> None:
    store, taken = stage.store, list[HeldLease]()
    leases = _leases(store, on_acquire=taken.append)
    acquire = store.dispatching.leases.acquire

    async def stop_meanwhile(key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        if key == partition_key(0):
            leases.stop()
        return await acquire(key, owner=owner, seconds=seconds, note=note)

    vars(store.dispatching.leases)["acquire"] = stop_meanwhile
    await leases.run()
    await leases.aclose()

    assert taken == []
    assert stage.holders() == set()


@run_by(play_one)
async def test_a_store_that_does_not_answer_delays_the_end_of_the_leases_by_two_seconds(stage: Stage, /) -> None:
    store = stage.store
    leases = _leases(store, on_acquire=lambda _: leases.stop())
    await leases.run()
    vars(store.dispatching.leases)["release"] = _hang
    began = stage.clock.monotonic()

    await leases.aclose()

    assert stage.clock.since(began) == pytest.approx(2)


@run_by(play_one)
async def test_a_store_that_does_not_answer_delays_a_release_until_the_lease_expires(stage: Stage, /) -> None:
    store, taken = stage.store, list[HeldLease]()
    leases = _leases(store, on_acquire=taken.append)
    running = asyncio.create_task(leases.run())
    await until(lambda: len(taken) > 0)
    leases.stop()
    await running
    vars(store.dispatching.leases)["release"] = _hang

    async with asyncio.timeout(60):
        await leases.release(taken[0])

    assert asyncio.get_running_loop().time() == pytest.approx(taken[0].until)
    await leases.aclose()


async def _hang(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


def _leases(
    store: JobStore,
    *,
    on_acquire: Callable[[HeldLease], None],
    on_lose: Callable[[HeldLease], None] = lambda _: None,
) -> PartitionLeases:
    return PartitionLeases(
        store.dispatching,
        address="memory://",
        me="scheduler",
        on_acquire=on_acquire,
        on_give=lambda _: None,
        on_lose=on_lose,
        on_free=lambda: None,
        on_refuse=lambda _: None,
    )


@run_by(play)
async def test_leases_from_a_clock_ahead_delay_no_scheduler(stage: Stage, /) -> None:
    # Killed while the store's clock was two hours ahead: its leases outlive it by these.
    leases = stage.store.dispatching.leases
    keys = [*map(partition_key, range(8)), "audit", "duties"]
    for key in keys:
        await leases.acquire(key, owner="killed", seconds=7205)

    process = stage.start()
    await until(lambda: stage.holds_all(process))

    await stage.pass_by(65)
    holders = {key: await leases.find(key) for key in keys}
    assert "killed" not in {lease.owner for lease in holders.values() if lease is not None}


@run_by(play)
async def test_the_partition_of_a_living_scheduler_is_left_to_it(stage: Stage, /) -> None:
    for partition in range(8):
        await stage.store.dispatching.leases.acquire(partition_key(partition), owner="alive", seconds=60)
    process = stage.start()

    await stage.pass_by(30)

    assert process.scheduler.status().partitions == []


def test_partitions_acquired_or_released_together_are_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "partitions" in record.getMessage()]

    async def test(stage: Stage) -> None:
        first = stage.start()
        await until(lambda: stage.holds_all(first))
        await stage.pass_by(3)
        (line,) = lines()
        assert re.fullmatch(r"acquired partitions 0 \(epoch \d+\)(, [1-7] \(epoch \d+\)){7}", line)

        second = stage.start()
        await until(lambda: len(second.scheduler.status().partitions) == 4)
        await stage.pass_by(3)
        _, given, *_ = lines()
        assert given == "releasing partitions 4, 5, 6, 7, as other schedulers have less than their share"

    with caplog.at_level(logging.INFO, "taskmq.scheduler"):
        play(test)
