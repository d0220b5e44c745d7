"""Random operations on a `DelayStore`, compared with a model."""

import random
from dataclasses import dataclass, field

from taskmq.contracts.stores import DelayStore, TakenMessage, WaitingMessage
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase
from taskmq.testing.state_suite.delays import waiting

_RUNS = 8
_STEPS = 120
_JOBS = 12
_SPAN = 40


class DelaysByModel(StateCase):
    """Guarantees for any sequence of operations."""

    @case
    async def test_random_operations_match_the_model(self) -> None:
        stores = [self.state().delays for _ in range(3)]

        for seed in range(_RUNS):
            run = _Run(random.Random(seed), stores)
            for step in range(_STEPS):
                await run.step(f"seed {seed}, step {step}")
            await run.empty()


@dataclass
class _Kept:
    message: WaitingMessage
    version: int
    is_taken: bool = False


@dataclass
class _Run:
    dice: random.Random
    stores: list[DelayStore]
    model: dict[str, _Kept] = field(default_factory=dict[str, _Kept])
    taken: list[tuple[TakenMessage, int]] = field(default_factory=list[tuple[TakenMessage, int]])
    version: int = 0

    async def step(self, where: str) -> None:
        operation = self.dice.choices(
            (self._put, self._take, self._complete, self._give_back, self._cancel, self._swap),
            weights=(6, 3, 3, 1, 1, 2),
        )[0]
        where = f"{where}: {operation.__name__}"
        await operation(self.dice.choice(self.stores), where)
        await self._compare(self.dice.choice(self.stores), where)

    async def empty(self) -> None:
        for job in list(self.model):
            await self.stores[0].put(waiting(job, due=0))
        await self.stores[0].mark_done(await self.stores[0].take(now=0, limit=_JOBS, lease=LONG))
        assert await self.stores[0].count() == 0

    async def _put(self, store: DelayStore, _: str) -> None:
        message = waiting(self._job(), due=self._due(), body=str(self.dice.randrange(3)).encode())
        await store.put(message)
        self._keep(message)

    async def _take(self, store: DelayStore, where: str) -> None:
        now, limit = self._due(), self.dice.randrange(1, 5)
        taken = await store.take(now=now, limit=limit, lease=LONG)
        free = [kept for kept in self._free() if kept.message.due <= now]
        # The store may return two messages of one instant in either order.
        assert [one.message.due for one in taken] == [kept.message.due for kept in free[:limit]], where
        for one in taken:
            kept = self.model[one.message.job_id]
            assert not kept.is_taken, where
            assert kept.message == one.message, where
            kept.is_taken = True
            self.taken.append((one, kept.version))

    async def _complete(self, store: DelayStore, _: str) -> None:
        for one, version in self._drop_leased():
            await store.mark_done([one])
            kept = self.model.get(one.message.job_id)
            if kept is not None and kept.version == version:
                del self.model[one.message.job_id]

    async def _give_back(self, store: DelayStore, _: str) -> None:
        chosen = self._drop_leased()
        await store.give_back([one for one, _ in chosen])
        for one, version in chosen:
            kept = self.model.get(one.message.job_id)
            if kept is not None and kept.version == version:
                kept.is_taken = False

    async def _cancel(self, store: DelayStore, where: str) -> None:
        kept = self.model.get(job := self._job())
        can = kept is not None and not kept.is_taken
        assert await store.cancel(job) is can, where
        if can:
            del self.model[job]

    async def _swap(self, store: DelayStore, where: str) -> None:
        kept = self.model.get(job := self._job())
        found = kept.message if kept is not None and self.dice.random() < 0.8 else waiting(job, due=self._due())
        changed = waiting(job, due=self._due(), body=b"changed")
        can = kept is not None and not kept.is_taken and kept.message == found
        assert await store.swap(found, changed) is can, where
        if can:
            self._keep(changed)

    async def _compare(self, store: DelayStore, where: str) -> None:
        assert await store.next_due() == min((kept.message.due for kept in self._free()), default=None), where
        assert await store.count() == len(self.model), where
        listed = await store.list(limit=_JOBS)
        assert [message.due for message in listed] == sorted(kept.message.due for kept in self.model.values()), where
        assert {message.job_id: message for message in listed} == {
            job: kept.message for job, kept in self.model.items()
        }, where
        job = self._job()
        assert await store.find(job) == (self.model[job].message if job in self.model else None), where

    def _keep(self, message: WaitingMessage) -> None:
        self.version += 1
        self.model[message.job_id] = _Kept(message, self.version)

    def _free(self) -> list[_Kept]:
        free = [kept for kept in self.model.values() if not kept.is_taken]
        return sorted(free, key=lambda kept: kept.message.due)

    def _drop_leased(self) -> list[tuple[TakenMessage, int]]:
        chosen = self.dice.sample(self.taken, min(len(self.taken), self.dice.randrange(1, 4)))
        self.taken = [entry for entry in self.taken if entry not in chosen]
        return chosen

    def _job(self) -> str:
        return f"job {self.dice.randrange(_JOBS)}"

    def _due(self) -> int:
        return self.dice.randrange(_SPAN)
