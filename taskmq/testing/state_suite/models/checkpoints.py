"""Random operations on a `CheckpointStore`, compared with a model."""

import random
from dataclasses import dataclass, field

from taskmq.contracts.stores import CheckpointStore
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase, new

_RUNS = 8
_STEPS = 100


class CheckpointsByModel(StateCase):
    """Guarantees for any sequence of runs."""

    @case
    async def test_random_runs_save_the_checkpoints_of_the_model(self) -> None:
        stores = [self.state().checkpoints for _ in range(3)]

        for seed in range(_RUNS):
            run = _Run(random.Random(seed), stores, new("job"))
            for step in range(_STEPS):
                await run.step(f"seed {seed}, step {step}")


@dataclass
class _Run:
    dice: random.Random
    stores: list[CheckpointStore]
    job: str
    values: dict[str, bytes] = field(default_factory=dict[str, bytes])
    tokens: list[int] = field(default_factory=list[int])
    attempt: int = 0
    is_open: bool = False

    async def step(self, where: str) -> None:
        operation = self.dice.choices((self._begin, self._save, self._forget), weights=(4, 6, 1))[0]
        await operation(self.dice.choice(self.stores), f"{where}: {operation.__name__}")

    async def _begin(self, store: CheckpointStore, where: str) -> None:
        attempt = self.dice.randint(1, 5)
        begun = await store.begin(self.job, attempt=attempt, ttl=LONG)
        if 1 < attempt < self.attempt:
            assert begun is None, where
            return
        assert begun is not None, where
        assert begun.values == self.values, where
        assert not self.tokens or begun.token > self.tokens[-1], where
        self.tokens.append(begun.token)
        self.attempt, self.is_open = attempt, True

    async def _save(self, store: CheckpointStore, where: str) -> None:
        token, name, value = self._token(), self.dice.choice("abc"), self.dice.randbytes(3)
        saved = await store.save(self.job, name, value, token=token, ttl=LONG)
        assert saved is self._is_last(token), where
        if saved:
            self.values[name] = value

    async def _forget(self, store: CheckpointStore, where: str) -> None:  # noqa: ARG002 - all steps share one signature
        token = self._token()
        await store.forget(self.job, token=token)
        if self._is_last(token):
            self.attempt, self.is_open = 0, False
            self.values.clear()

    def _token(self) -> int:
        # The latest token is more likely than earlier ones.
        return self.dice.choice([*self.tokens, *self.tokens[-1:] * 3]) if self.tokens else 1

    def _is_last(self, token: int) -> bool:
        return self.is_open and token == self.tokens[-1]
