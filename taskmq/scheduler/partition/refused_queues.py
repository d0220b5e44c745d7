"""Queues that take no jobs for a while, because the broker refuses what is published to them."""

from typing import Final, NamedTuple

from taskmq.model.backoff import Backoff

__all__ = ["RefusedQueues"]

_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


class _Pause(NamedTuple):
    """A pause that ends at `until`, in seconds of the caller's clock."""

    until: float
    reason: str
    backoff: Backoff


class RefusedQueues:
    """The pauses of one partition's queues; each refusal in a row lasts longer. Pure: times are seconds."""

    def __init__(self) -> None:
        self._pauses: dict[str, _Pause] = {}

    def is_paused(self, queue: str, *, now: float) -> bool:
        """Whether the queue takes nothing for now; jobs that are placed go by the queue of their node."""
        found = self._pauses.get(queue)
        return found is not None and found.until > now

    def reasons(self, *, now: float) -> dict[str, str]:
        """Return why queues are paused, by their names."""
        return {queue: each.reason for queue, each in self._pauses.items() if each.until > now}

    def refuse(self, queue: str, reason: str, *, now: float) -> float | None:
        """Pause the queue and return for how many seconds; None where it is paused already."""
        before = self._pauses.get(queue)
        if before is not None and before.until > now:
            # Of batches that were under way when it began.
            return None
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE) if before is None else before.backoff
        seconds = backoff.next()
        self._pauses[queue] = _Pause(now + seconds, reason, backoff)
        return seconds

    def accept(self, queue: str) -> None:
        """End the queue's pause: the broker has taken a job."""
        self._pauses.pop(queue, None)
