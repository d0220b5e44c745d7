"""Queues that are paused for a while, because the broker refuses their messages."""

from typing import Final, NamedTuple

from taskmq.model.backoff import Backoff

_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


class _Pause(NamedTuple):
    """A pause that ends at `until`, in seconds of the caller's clock."""

    until: float
    reason: str
    backoff: Backoff


class RefusedQueues:
    """Pauses of one partition's queues; each refusal in a row lasts longer. Pure: times are seconds."""

    def __init__(self) -> None:
        self._pauses: dict[str, _Pause] = {}

    def __len__(self) -> int:
        """Return the number of queues whose last message was refused."""
        return len(self._pauses)

    def is_paused(self, queue: str, *, now: float) -> bool:
        """Whether the queue is paused; for placed jobs the queue of their node counts."""
        found = self._pauses.get(queue)
        return found is not None and found.until > now

    def reasons(self, *, now: float) -> dict[str, str]:
        """Return the reasons of the current pauses, by queue."""
        return {queue: each.reason for queue, each in self._pauses.items() if each.until > now}

    def refuse(self, queue: str, reason: str, *, now: float) -> float | None:
        """Pause the queue. Returns the seconds of the pause; None if it is already paused."""
        before = self._pauses.get(queue)
        if before is not None and before.until > now:
            # A refusal of a batch that was sent before the pause began.
            return None
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE) if before is None else before.backoff
        seconds = backoff.next()
        self._pauses[queue] = _Pause(now + seconds, reason, backoff)
        return seconds

    def accept(self, queue: str) -> None:
        """End the queue's pause, because the broker has accepted a job."""
        self._pauses.pop(queue, None)
