"""Operations of schedulers and operators on the schedules of a job store.

A schedule is one row: its definition, and the record of its occurrences; both are bytes to the store. `next` is when
a scheduler must process it again. Each change of a row compares its version, and a scheduler that fires compares the
epoch of the partition as well, so decisions on an older row have no effect.
"""

import builtins
import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from taskmq.contracts.jobs.records import NewJob
from taskmq.model.keys import split_tenant_key

SCHEDULE_SHARDS: Final = 256
"""Number of shards of schedules; shard `n` belongs to the partition `n % partitions`."""


def schedule_shard(app: str, name: str) -> int:
    """Return the shard of a schedule: it follows from its name, so it never moves."""
    return hashlib.sha256(f"{app}/{name}".encode(errors="backslashreplace")).digest()[0]


class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the store keeps it.

    Attributes:
        id: assigned by the store; never reused, even if the name is.
        app: the app that it belongs to.
        name: unique within the app; a tenant's begins with the tenant, see `taskmq.model.keys.tenant_key`.
        version: increases by 1 with every change.
        is_code: whether the app's code defines it.
        definition: what it starts, and when.
        record: state of its occurrences; empty until a scheduler processes it.
        next: when it is processed next, ms since the epoch; None: not before a change.
    """

    id: int
    app: str
    name: str
    version: int
    is_code: bool
    definition: bytes
    record: bytes
    next: int | None

    @property
    def tenant(self) -> str:
        """The tenant; "" if there is none."""
        return split_tenant_key(self.name)[0]


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to create, change or remove.

    Attributes:
        before: the row that this was decided on; None: there is none.
        is_removed: whether to remove it, with its timer; its occurrences stay.
        is_code, definition, record, next: the new values.
    """

    app: str
    name: str
    before: StoredSchedule | None
    is_removed: bool = False
    is_code: bool = False
    definition: bytes = b""
    record: bytes = b""
    next: int | None = None


class DueSchedule(msgspec.Struct, frozen=True, order=True):
    """The timer of a schedule, ms since the epoch."""

    due: int
    id: int
    shard: int


class OccurrenceJob(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence and its job.

    Attributes:
        instant: its nominal instant, ms since the epoch.
        run: distinguishes emissions of the same instant; "" for the ordinary one.
        kind: the reason for the emission.
        job: None if the schedule starts something other than a job.
    """

    instant: int
    run: str
    kind: str
    job: NewJob | None


class ScheduleFiring(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about one schedule.

    Attributes:
        before: the row that it was decided on.
        record, next: the new values.
        occurrences: occurrences to emit.
    """

    before: StoredSchedule
    record: bytes
    next: int | None
    occurrences: list[OccurrenceJob] = []


class FiredOccurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A past occurrence. Instants are ms since the epoch.

    Attributes:
        at: when it was emitted.
        job: the id of its job.
    """

    instant: int
    run: str
    at: int
    kind: str
    job: str | None


class JobScheduleStore(Protocol):
    """Schedules, their timers, and their occurrences.

    Every method raises `StoreUnavailable` when the store cannot be reached.
    """

    async def find(self, app: str, names: Sequence[str]) -> list[StoredSchedule | None]:
        """Return the schedules of these names, in order; None for each that does not exist."""
        ...

    async def list(
        self, app: str, *, after: str = "", limit: int, prefix: str = "", only_code: bool = False
    ) -> list[StoredSchedule]:
        """Return up to `limit` schedules of the app with names after `after`, in code point order.

        Args:
            prefix: printable prefix of their names; served efficiently among any number of schedules.
            only_code: only schedules that the app's code defines; also efficient.
        """
        ...

    async def write(self, changes: Sequence[ScheduleChange]) -> builtins.list[bool]:
        """Apply each change that finds its `before`, in one transaction; return which were applied, in order.

        The names of one call must differ.
        """
        ...

    async def due(self, partition: int, *, until: int, limit: int) -> builtins.list[DueSchedule]:
        """Return up to `limit` schedules of the partition's shards with `next` before `until` (ms), in order."""
        ...

    async def load(self, ids: Sequence[int]) -> builtins.list[StoredSchedule]:
        """Return those of these schedules that exist, in any order."""
        ...

    async def alive(self, jobs: Sequence[str]) -> set[str]:
        """Return those of these jobs that have not ended."""
        ...

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        """Apply each change that finds its `before`, with occurrences and jobs; return the ids of those schedules.

        This is one fenced transaction: it returns None and changes nothing if the partition's lease has another
        holder. An occurrence that exists already gets no second job; nor does one whose job's key was submitted
        before with the same fingerprint.

        Raises:
            OccurrenceConflict: keys of some were submitted before with another fingerprint.
        """
        ...

    async def occurrences(
        self, schedule: int, *, before: int | None = None, limit: int
    ) -> builtins.list[FiredOccurrence]:
        """Return up to `limit` occurrences of the schedule with instants before `before`, the latest first.

        Occurrences of one instant are ordered by their runs, the last in the alphabet first, so the order is stable.
        """
        ...
