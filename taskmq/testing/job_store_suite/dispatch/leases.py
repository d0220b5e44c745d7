"""Tests of partition leases: the cases of every coordinator, and those of partitions."""

import asyncio

from taskmq.contracts.jobs import partition_key
from taskmq.contracts.stores import Coordinator, Lease
from taskmq.testing.coordinator_suite import CoordinatorCases
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import LONG
from taskmq.testing.runner import case

_KEYS = (partition_key(0), partition_key(1), "duties")
_TAKERS = 50


class PartitionLeases(CoordinatorCases, JobStoreCase):
    """Every guarantee of `DispatchStore.leases`; leases of 0 seconds expire without waiting."""

    short = 0.0

    def coordinator(self) -> Coordinator:
        return self.store().dispatching.leases

    @case
    async def test_an_unheld_partition_has_no_lease(self) -> None:
        leases = self.coordinator()

        for key in _KEYS:
            assert await leases.find(key) is None
            assert not await leases.renew(key, token=1, seconds=LONG)
            await leases.release(key, token=1)
            assert await leases.find(key) is None

    @case
    async def test_only_one_of_many_concurrent_claims_gets_the_partition(self) -> None:
        stores = [self.coordinator() for _ in range(2)]

        for key in _KEYS:
            answers = await asyncio.gather(
                *(stores[number % 2].acquire(key, owner=f"{number}", seconds=LONG) for number in range(_TAKERS))
            )
            (epoch,) = [answer for answer in answers if isinstance(answer, int)]
            assert {answer.token for answer in answers if isinstance(answer, Lease)} == {epoch}

    @case
    async def test_maintenance_keeps_partition_epochs_and_held_leases(self) -> None:
        store = self.store()
        leases = store.dispatching.leases
        epochs = [await leases.acquire(key, owner="a", seconds=LONG) for key in _KEYS]
        epoch = epochs[0]
        assert isinstance(epoch, int)
        await leases.release(_KEYS[0], token=epoch)

        await store.dispatching.maintain()

        later = await leases.acquire(_KEYS[0], owner="b", seconds=LONG)
        assert isinstance(later, int)
        assert later > epoch
        held = [await leases.find(key) for key in _KEYS[1:]]
        assert [lease and lease.token for lease in held] == epochs[1:]

    @case
    async def test_a_lease_survives_its_store_closing(self) -> None:
        store, other = self.store(), self.coordinator()
        epoch = await store.dispatching.leases.acquire(partition_key(0), owner="a", seconds=LONG)

        await store.aclose()

        held = await other.find(partition_key(0))
        assert held is not None
        assert held.token == epoch
