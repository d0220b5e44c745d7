"""Reads from a replica of the store: only where the caller accepts their age, so that nothing decides on old data."""

import contextlib
import math
from collections.abc import Generator
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

import msgspec


class AcceptedAge(msgspec.Struct):
    """The age of answers that a caller accepts, and the age of those that it got.

    Attributes:
        limit: the largest accepted age in seconds.
        age: seconds by which the oldest answer so far may be out of date; 0.0 if all are current.
    """

    limit: float
    age: float = 0.0

    def note(self, age: float) -> None:
        """Note the age of one more answer, in seconds."""
        self.age = max(self.age, age)


_accepted: ContextVar[AcceptedAge | None] = ContextVar("taskmq_accepted_age", default=None)


@contextlib.contextmanager
def accept_age(limit: float = math.inf) -> Generator[AcceptedAge]:
    """Accept lists and counts that are up to `limit` seconds old within this block.

    They may then come from the store's replica, if it has one. Other reads, and all changes, never do.
    """
    accepted = AcceptedAge(limit)
    token = _accepted.set(accepted)
    try:
        yield accepted
    finally:
        _accepted.reset(token)


def accepted_age() -> AcceptedAge | None:
    """Return the age that the caller accepts; None if it needs current data."""
    return _accepted.get()


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The replica of a store.

    Attributes:
        address: its URL without the password.
        age: seconds by which it may be behind the primary; None if unknown.
        problem: why it is not read at the moment; "" if it is.
        is_promoted: whether it accepts writes, and so is another store by now.
        conflicts: reads that the replica cancelled in this process, as they hindered its recovery.
    """

    address: str
    age: float | None
    problem: str = ""
    is_promoted: bool = False
    conflicts: int = 0


@runtime_checkable
class Replicated(Protocol):
    """A job store that can read lists and counts from a replica, within `accept_age`.

    An answer of the replica notes its age, which is never less than the true one. If the replica cannot answer, or is
    too old, the primary does.
    """

    def use_replica(self, url: str, *, max_age: float) -> None:
        """Read from the replica at `url` while it is at most `max_age` seconds behind.

        Raises:
            InvalidSetting: the URL is malformed.
        """
        ...

    async def replica_status(self) -> ReplicaStatus | None:
        """Examine the replica; None if the store has none. Raises nothing if the replica does not answer."""
        ...
