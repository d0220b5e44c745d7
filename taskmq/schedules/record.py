"""Shared record of one schedule: progress, claims, active runs and history.

The record changes only by compare-and-set, so each writer has seen all earlier decisions:

- Every nominal instant up to `mark` has been decided on: emitted, claimed, buffered, put into a backlog, or missed.
- A claim is made in the same change that moves `mark` over its instant. It stays in `claims` until the broker has
  confirmed the message; a beat that finds it after its `until` publishes the same message again.
"""

import uuid
from typing import Final

import msgspec

from taskmq.contracts.stores import KeptRecord
from taskmq.errors import LimitReached, StateUnavailable

HISTORY: Final = 20
"""Number of occurrences in the history of a record."""
PENDING_MS: Final = 3_600_000
"""Time after which a message that no worker has started no longer counts as active: it may have been purged."""

_MOST_BACKFILLS: Final = 10


class OccurrenceClaim(msgspec.Struct, frozen=True, array_like=True):
    """An occurrence that a beat is about to publish.

    Attributes:
        run: distinguishes another emission of the same instant; "" for the regular one.
        until: when other beats take it over, ms.
        kind: why it is emitted: `due`, `catchup`, `buffered`, `backfill`.
        refusals: how often its start was refused.
        refused: the last reason.
    """

    instant: int
    run: str
    owner: str
    until: int
    kind: str
    refusals: int = 0
    refused: str = ""


class ActiveRun(msgspec.Struct, array_like=True):
    """An occurrence that waits in its queue or runs; tracked if the schedule limits concurrency.

    Attributes:
        until: when it counts as lost unless a worker reports it, ms.
        is_running: whether a worker has started it.
    """

    job_id: str
    until: int
    is_running: bool = False


class MissedSpan(msgspec.Struct, array_like=True):
    """Past occurrences that are emitted a few at a time.

    Attributes:
        run: run of their claims; "" for missed ones.
        after: the instant up to which they are done.
        until: the last possible instant.
        next: earliest time of the next emission, ms.
    """

    kind: str
    run: str
    after: int
    until: int
    next: int


class Emitted(msgspec.Struct, frozen=True, array_like=True):
    """An occurrence in the history. Instants are ms; `at` is when the broker confirmed it."""

    instant: int
    at: int
    kind: str


class Counts(msgspec.Struct, array_like=True):
    """Counters since the schedule was first seen."""

    fired: int = 0
    late: int = 0
    missed: int = 0
    skipped: int = 0
    failed: int = 0
    coalesced: int = 0


class ScheduleRecord(msgspec.Struct, array_like=True):
    """Everything known about one schedule.

    Attributes:
        mark: see above; None if no beat has seen the schedule yet.
        rule: identifies the trigger for which `mark` was made.
        paused: since when it is paused, ms; None if it is not.
        buffered: instants that wait for earlier occurrences to end.
        history: the latest emitted occurrences, newest last.
        resumed: start and end of a pause that no beat has handled yet.
        failures: how many turns in succession failed.
        failure: the last reason; "" if the last turn did not fail.
    """

    mark: int | None = None
    rule: str = ""
    paused: int | None = None
    claims: list[OccurrenceClaim] = []
    active: list[ActiveRun] = []
    buffered: list[int] = []
    backlogs: list[MissedSpan] = []
    counts: Counts = msgspec.field(default_factory=Counts)
    history: list[Emitted] = []
    resumed: int | None = None
    note: str = ""
    failures: int = 0
    failure: str = ""

    def remember(self, emitted: Emitted) -> None:
        """Append to the history, which keeps the latest occurrences."""
        self.history = [*self.history[1 - HISTORY :], emitted]

    def begin_backfill(self, span: MissedSpan, *, name: str) -> None:
        """Add a backfill to the schedule's backlogs.

        Raises:
            LimitReached: ten backfills are in progress.
        """
        if sum(each.kind == span.kind for each in self.backlogs) >= _MOST_BACKFILLS:
            raise LimitReached(
                f"schedule {name!r} has {_MOST_BACKFILLS} backfills in progress: wait until one has ended",
                most=_MOST_BACKFILLS,
            )
        self.backlogs = [*self.backlogs, span]

    def live(self, now: int) -> list[ActiveRun]:
        """Return the active runs that do not count as lost."""
        return [run for run in self.active if run.until > now]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ScheduleRecord)


def encode_record(record: ScheduleRecord) -> bytes:
    """Encode a record for storage."""
    return _encode(record)


def decode_record(kept: KeptRecord | None, *, name: str) -> ScheduleRecord:
    """Decode a record; return an empty one if none is stored.

    Raises:
        StateUnavailable: the stored value is not a record.
    """
    if kept is None:
        return ScheduleRecord()
    try:
        return _decoder.decode(kept.value)
    except msgspec.MsgspecError as error:
        raise StateUnavailable(
            f"the record of schedule {name!r} cannot be read: {error}; was it written by a newer taskmq?"
        ) from error


def new_version() -> str:
    """Return a unique version."""
    return uuid.uuid4().hex[:16]
