"""The resources that a worker has for tasks that need more than a slot, and the attempts that wait for them.

A delivery that does not fit stays in the worker's hands, unsettled, until it does; others that fit pass it. Since it
counts for the prefetch, a worker that is full of such deliveries is sent no more of that queue, and nothing is taken
and given back in a loop. Once an attempt has waited for `patience` seconds, no other one gets any of the resources
that it needs until it fits, so small jobs do not starve large ones.

A task's `worker_concurrency` is a separate resource, of which each run needs one, and so are the processes for
`executor="process"`: a run that waits for one has not begun, so the end of its worker does not count against it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.broker import Delivery
from taskmq.model.resources import GPU, Amounts, Grant
from taskmq.worker.attempt import Attempt

__all__ = ["ResourcePool"]

# Sums of parts of a processor are not exact.
_TINY: Final = 1e-9


class ResourcePool:
    """Amounts that are free, and attempts that wait for some. Instants are of a monotonic clock, in seconds.

    Args:
        capacity: what there is.
        devices: ids of GPUs; as many as `capacity` has.
        patience: seconds.
    """

    def __init__(self, capacity: Amounts, *, devices: Sequence[str] = (), patience: float = 30.0) -> None:
        self._capacity = dict(capacity)
        self._free = dict(capacity)
        self._devices = list(devices)
        self._patience = patience
        self._waiting: deque[tuple[Attempt, Amounts, float]] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def lacks(self, needs: Amounts) -> dict[str, float]:
        """Which of `needs` exceed the capacity, each with the capacity."""
        return {
            name: self._capacity.get(name, 0.0)
            for name, amount in needs.items()
            if amount > self._capacity.get(name, 0.0) + _TINY
        }

    def take(self, needs: Amounts, *, now: float) -> Grant | None:
        """Take what is needed; None where it is not free, or kept for an attempt that has waited too long."""
        return None if self._is_kept(needs, now) else self._take(needs)

    def give_back(self, grant: Grant) -> None:
        """Give back what a run had, at its end."""
        for name, amount in grant.amounts.items():
            self._free[name] = min(self._free[name] + amount, self._capacity[name])
        self._devices.extend(grant.devices)
        self._devices.sort()

    def wait(self, attempt: Attempt, needs: Amounts, *, now: float) -> None:
        """Keep an attempt until its needs are free."""
        self._waiting.append((attempt, needs, now))

    def next(self, *, now: float) -> tuple[Attempt, Grant] | None:
        """The first that waits and fits, and what it gets; None when there is none."""
        kept: set[str] = set()
        for place, (attempt, needs, since) in enumerate(self._waiting):
            if kept.isdisjoint(needs) and (grant := self._take(needs)) is not None:
                del self._waiting[place]
                return attempt, grant
            if now - since > self._patience:
                kept.update(needs)
        return None

    def attempts(self) -> list[Attempt]:
        """All that wait, in their order."""
        return [attempt for attempt, _, _ in self._waiting]

    def has(self, delivery: Delivery) -> bool:
        """Whether the attempt of this delivery waits."""
        return any(attempt.delivery is delivery for attempt, _, _ in self._waiting)

    def remove(self, job_id: str) -> Attempt | None:
        """The attempt of a job, taken out; None where none waits."""
        for place, (attempt, _, _) in enumerate(self._waiting):
            if attempt.job_id == job_id:
                del self._waiting[place]
                return attempt
        return None

    def clear(self) -> list[Attempt]:
        """All that wait, taken out, in their order."""
        rest = [attempt for attempt, _, _ in self._waiting]
        self._waiting.clear()
        return rest

    def _is_kept(self, needs: Amounts, now: float) -> bool:
        return any(
            now - since > self._patience and not wanted.keys().isdisjoint(needs) for _, wanted, since in self._waiting
        )

    def _take(self, needs: Amounts) -> Grant | None:
        free = self._free
        if any(amount > free.get(name, 0.0) + _TINY for name, amount in needs.items()):
            return None
        for name, amount in needs.items():
            free[name] -= amount
        count = int(needs.get(GPU, 0))
        devices, self._devices = tuple(self._devices[:count]), self._devices[count:]
        return Grant(needs, devices)
