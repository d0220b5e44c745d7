"""What schedulers and operators do with the schedules of a job store.

A schedule is one row: its definition, and the record of what has become of its occurrences; both are bytes to the
store. `next` says when a scheduler has to look at it again. Each change of a row compares its version, and a
scheduler that fires compares the epoch of the partition as well, so what was decided on an older row has no effect.
"""

import builtins
import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from taskmq.contracts.jobs.records import NewJob
from taskmq.model.keys import split_tenant_key

__all__ = [
    "SCHEDULE_SHARDS",
    "DueSchedule",
    "FiredOccurrence",
    "JobScheduleStore",
    "OccurrenceJob",
    "ScheduleChange",
    "ScheduleFiring",
    "StoredSchedule",
    "schedule_shard",
]

SCHEDULE_SHARDS: Final = 256
"""Into so many shards schedules are divided; shard `n` belongs to the partition `n % partitions`."""


def schedule_shard(app: str, name: str) -> int:
    """The shard of a schedule: follows from its name, so it never moves."""
    return hashlib.sha256(f"{app}/{name}".encode(errors="backslashreplace")).digest()[0]


class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the store has it.

    Attributes:
        id: the store's own; never given again, also where the name is.
        app: that it belongs to.
        name: its own among the app's; one of a tenant begins with the tenant, see `taskmq.model.keys.tenant_key`.
        version: grows by 1 with every change.
        is_code: the app's code defines it.
        definition: what it starts, and when.
        record: what has become of its occurrences; empty where no scheduler has looked at it yet.
        next: when it is looked at again, ms since the epoch; None: not before something changes.
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
        """The tenant; "" without one."""
        return split_tenant_key(self.name)[0]


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that is to be made, changed or removed.

    Attributes:
        before: the row that this was decided on; None: there is none.
        is_removed: it is to go, with its place among what is due; its occurrences stay.
        is_code, definition, record, next: as they are to be.
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
    """A schedule that a scheduler has to look at: when, ms since the epoch."""

    due: int
    id: int
    shard: int


class OccurrenceJob(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence, and the job that it is.

    Attributes:
        instant: its nominal instant, ms since the epoch.
        run: tells it from another emission of the same instant; "" for the ordinary one.
        kind: why it is emitted.
        job: None where something else than a job is started.
    """

    instant: int
    run: str
    kind: str
    job: NewJob | None


class ScheduleFiring(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one schedule.

    Attributes:
        before: the row that it was decided on.
        record, next: as they are to be.
        occurrences: those that are let through.
    """

    before: StoredSchedule
    record: bytes
    next: int | None
    occurrences: list[OccurrenceJob] = []


class FiredOccurrence(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence of the past. Instants are ms since the epoch.

    Attributes:
        at: when it was let through.
        job: the id of its job.
    """

    instant: int
    run: str
    at: int
    kind: str
    job: str | None


class JobScheduleStore(Protocol):
    """Schedules, what is due of them, and their occurrences.

    Every method raises `StoreUnavailable` when the store cannot be reached.
    """

    async def find(self, app: str, names: Sequence[str]) -> list[StoredSchedule | None]:
        """The schedules of these names, in their order; None for each that is not there."""
        ...

    async def list(
        self, app: str, *, after: str = "", limit: int, prefix: str = "", only_code: bool = False
    ) -> list[StoredSchedule]:
        """Up to `limit` schedules of the app whose names come after `after`, in the order of their code points.

        Args:
            prefix: printable text that their names begin with; those are found among any number of others.
            only_code: those that the app's code defines; these are, too.
        """
        ...

    async def write(self, changes: Sequence[ScheduleChange]) -> builtins.list[bool]:
        """Make each change that finds its `before`, all of them in one transaction; which were made, in their order.

        The names of one call are all different.
        """
        ...

    async def due(self, partition: int, *, until: int, limit: int) -> builtins.list[DueSchedule]:
        """Up to `limit` schedules of the partition's shards whose `next` is before `until` (ms), the first first."""
        ...

    async def load(self, ids: Sequence[int]) -> builtins.list[StoredSchedule]:
        """Those of these schedules that are there, in any order."""
        ...

    async def alive(self, jobs: Sequence[str]) -> set[str]:
        """Which of these jobs have not ended."""
        ...

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        """Make each change that finds its `before`, with the occurrences and their jobs; the ids of those schedules.

        All of it in one transaction, fenced: None, and nothing is changed, where the lease of the partition has
        passed on. An occurrence that is there already gets no second job; nor does one whose job's key was submitted
        before with the same fingerprint.

        Raises:
            OccurrenceConflict: keys of some were submitted before with another fingerprint.
        """
        ...

    async def occurrences(
        self, schedule: int, *, before: int | None = None, limit: int
    ) -> builtins.list[FiredOccurrence]:
        """Up to `limit` occurrences of the schedule of that id, of instants before `before`, the latest first.

        Those of one instant come by their runs, the last in the alphabet first: in the same order each time.
        """
        ...
