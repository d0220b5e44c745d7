"""Resource pool: a worker's resources beyond slots, and the attempts that wait for them.

A delivery that does not fit stays in hand, unsettled, until it fits; others that fit pass it. It counts for the
prefetch, so a worker full of such deliveries receives no more of that queue, and deliveries do not bounce in a loop.
Once an attempt has waited for `patience` seconds, no other attempt gets any of the resources that it needs until it
fits, so small jobs do not starve large ones.

A task's `worker_concurrency` is a separate resource, of which each run needs one unit, and so are the processes for
`executor="process"`. A run that waits for one has not started, so the end of its worker does not count against it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.broker import Delivery
from taskmq.model.resources import GPU, Amounts, Grant
from taskmq.worker.attempt import Attempt

# Sums of fractions of a processor are not exact.
_TINY: Final = 1e-9


class ResourcePool:
    """Free amounts, and attempts that wait for some. Instants are of a monotonic clock, in seconds.

    Args:
        capacity: the total amounts.
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
        """Return the number of waiting attempts."""
        return len(self._waiting)

    def lacks(self, needs: Amounts) -> dict[str, float]:
        """Return those of `needs` that exceed the capacity, each with the capacity."""
        return {
            name: self._capacity.get(name, 0.0)
            for name, amount in needs.items()
            if amount > self._capacity.get(name, 0.0) + _TINY
        }

    def take(self, needs: Amounts, *, now: float) -> Grant | None:
        """Acquire what is needed; None if it is not free, or reserved for an attempt that has waited too long."""
        return None if self._is_kept(needs, now) else self._take(needs)

    def give_back(self, grant: Grant) -> None:
        """Release the grant of an ended run."""
        for name, amount in grant.amounts.items():
            self._free[name] = min(self._free[name] + amount, self._capacity[name])
        self._devices.extend(grant.devices)
        self._devices.sort()

    def wait(self, attempt: Attempt, needs: Amounts, *, now: float) -> None:
        """Queue an attempt until its needs are free."""
        self._waiting.append((attempt, needs, now))

    def next(self, *, now: float) -> tuple[Attempt, Grant] | None:
        """Return the first waiting attempt that fits, and its grant; None if there is none."""
        kept: set[str] = set()
        for place, (attempt, needs, since) in enumerate(self._waiting):
            if kept.isdisjoint(needs) and (grant := self._take(needs)) is not None:
                del self._waiting[place]
                return attempt, grant
            if now - since > self._patience:
                kept.update(needs)
        return None

    def attempts(self) -> list[Attempt]:
        """Return all waiting attempts, in order."""
        return [attempt for attempt, _, _ in self._waiting]

    def has(self, delivery: Delivery) -> bool:
        """Return whether the attempt of this delivery waits."""
        return any(attempt.delivery is delivery for attempt, _, _ in self._waiting)

    def remove(self, job_id: str) -> Attempt | None:
        """Remove and return the waiting attempt of a job; None if there is none."""
        for place, (attempt, _, _) in enumerate(self._waiting):
            if attempt.job_id == job_id:
                del self._waiting[place]
                return attempt
        return None

    def clear(self) -> list[Attempt]:
        """Remove and return all waiting attempts, in order."""
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
