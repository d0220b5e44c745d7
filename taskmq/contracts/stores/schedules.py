"""What beats share about schedules: how far each one is, and those that were made at run time."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

__all__ = ["ChangedSchedule", "KeptRecord", "RecordChange", "ScheduleStore"]


class KeptRecord(msgspec.Struct, frozen=True):
    """What is known about one schedule.

    Attributes:
        version: 16 hexadecimal digits: new with every change.
    """

    version: str
    value: bytes


class RecordChange(msgspec.Struct, frozen=True):
    """A record that is to take the place of another one.

    Attributes:
        before: the version of that one; "" where there is to be none.
    """

    name: str
    before: str
    after: KeptRecord


class ChangedSchedule(msgspec.Struct, frozen=True):
    """A schedule that was defined or removed, or that has changed otherwise.

    Attributes:
        place: grows with each change in a scope; where to go on reading.
        definition: None where there is none: it was removed, or is defined elsewhere.
    """

    name: str
    place: int
    definition: bytes | None


class ScheduleStore(Protocol):
    """One record per schedule, changed by compare-and-set, and the definitions of those that were made at run time.

    Names are unique among all apps of a state for records, and within a scope for definitions. What is written may
    be written again when an answer was lost. Every method but `listen` raises `StateUnavailable` when the store
    cannot be reached; then it may have been done all the same.
    """

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        """The records of these names, in their order; None for each that is not there."""
        ...

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:
        """Put each record in the place of the one that it was made from, for `ttl` seconds; each for itself.

        What is there now, in the order of the changes: the change's own `after` where it was made, now or by an
        earlier call whose answer was lost; otherwise what is in the way, and None where nothing is there any more.
        The names of one call are all different.
        """
        ...

    async def define(self, scope: str, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        """Put a definition in the place of another one; None means no definition.

        False, and nothing is changed, where neither the one nor the other is there. It has no time to live.
        """
        ...

    async def tell(self, scope: str, names: Sequence[str]) -> None:
        """Have these be seen as changed by everybody who looks."""
        ...

    async def changed(self, scope: str, place: int, *, limit: int) -> list[ChangedSchedule]:
        """Up to `limit` schedules that have changed after `place`, in the order of their last change.

        After 0 that is everything that is defined. A removal is listed for a day.
        """
        ...

    def listen(self, scope: str, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` on this loop when something in the scope has changed; the function that ends it.

        May call for nothing, and may miss a call while the store cannot be reached: look once a second as well.
        """
        ...
