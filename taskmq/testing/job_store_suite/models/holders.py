"""Holders of partitions in a random history, in the store and in the model."""

import random

from taskmq.contracts.jobs import partition_key
from taskmq.contracts.stores import Lease
from taskmq.testing.job_store.model import JobModel
from taskmq.testing.job_store_suite.driver import LONG, JobDriver


class Holders:
    """The epochs of each partition's holders, earliest first."""

    def __init__(self, dice: random.Random, drivers: list[JobDriver], model: JobModel) -> None:
        self._dice = dice
        self._drivers = drivers
        self._model = model
        self._epochs: dict[int, list[tuple[int, int]]] = {}

    def partition_of(self, queue: str) -> int:
        """Return the partition that the store assigns, and assign it in the model."""
        partition = self._drivers[0].schedulers.partition_of(queue)
        self._model.placed[queue] = partition
        return partition

    async def hold(self, partition: int) -> None:
        """Acquire the partition unless it has a holder."""
        if partition not in self._epochs:
            await self.acquire(partition)

    async def pick(self, partition: int) -> tuple[int, int]:
        """Return the epochs of the holder in the store and the model; occasionally those of the first one."""
        await self.hold(partition)
        return self._epochs[partition][self._dice.choice((-1, -1, -1, 0))]

    async def pick_for(self, queue: str) -> tuple[int, int, int]:
        """Return the partition of a queue with the epochs of `pick`."""
        partition = self.partition_of(queue)
        return partition, *await self.pick(partition)

    def find_earlier(self, partition: int) -> int | None:
        """Return the first holder's epoch in the store; None if it still holds the partition."""
        first, *later = self._epochs[partition]
        return first[0] if later else None

    async def acquire(self, partition: int) -> tuple[int, int]:
        """Acquire the partition for another holder; return its epochs in the store and the model."""
        epoch = await self._dice.choice(self._drivers).next_epoch(partition)
        key, known = partition_key(partition), self._epochs.setdefault(partition, [])
        if known:
            self._model.leases.release(key, token=known[-1][1])
        taken = self._model.leases.acquire(key, owner="driver", seconds=LONG, now=self._model.now)
        assert not isinstance(taken, Lease)
        known.append((epoch, taken))
        return known[-1]
