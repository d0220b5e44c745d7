"""Data that beats share about schedules: a record for each, and the definitions made at run time."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec


class KeptRecord(msgspec.Struct, frozen=True):
    """The record of one schedule.

    Attributes:
        version: 16 hexadecimal digits, new with every change.
    """

    version: str
    value: bytes


class RecordChange(msgspec.Struct, frozen=True):
    """A record that replaces another one.

    Attributes:
        before: version of that one; "" if there must be none.
    """

    name: str
    before: str
    after: KeptRecord


class ChangedSchedule(msgspec.Struct, frozen=True):
    """A schedule that was defined, removed, or changed otherwise.

    Attributes:
        cursor: increases with each change in a scope.
        definition: None if there is none: it was removed, or is defined elsewhere.
    """

    name: str
    cursor: int
    definition: bytes | None


class ScheduleStore(Protocol):
    """A record per schedule, changed by compare-and-set, and the definitions made at run time.

    Names of records are unique among all apps of a state, names of definitions within a scope. Writes may be repeated
    if an answer was lost. Every method except `listen` raises `StateUnavailable` if the store cannot be reached; the
    operation may have happened all the same.
    """

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        """Return the records of these names, in order; None for each that does not exist."""
        ...

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:
        """Replace each record by the one derived from it, for `ttl` seconds; each independently.

        Returns the present records, in the order of the changes: the change's own `after` if it was applied, now or
        by an earlier call whose answer was lost; otherwise the conflicting record, and None if there is none any
        more. The names of one call must differ.
        """
        ...

    async def define(self, scope: str, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        """Replace a definition by another one; None means no definition.

        Returns False, and changes nothing, if neither of the two is stored. It has no time to live.
        """
        ...

    async def tell(self, scope: str, names: Sequence[str]) -> None:
        """Mark schedules as changed for all readers."""
        ...

    async def list_changed(self, scope: str, cursor: int, *, limit: int) -> list[ChangedSchedule]:
        """Return up to `limit` schedules that changed after `cursor`, in the order of their last change.

        After 0 that is every definition. A removal is listed for a day.
        """
        ...

    def listen(self, scope: str, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` on this loop when something in the scope changed; return the function that ends it.

        There may be calls without a reason, and calls may be missed while the store cannot be reached: poll once a
        second, too.
        """
        ...
