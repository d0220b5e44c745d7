"""What all replicas know about one schedule: how far it is, what is being emitted, what runs, and what has happened.

The record changes by compare-and-set only, so each writer has seen all that was decided before:

- Every nominal instant up to `mark` has been decided on: emitted, claimed, buffered, put into a backlog, or missed.
- A claim is made together with the step of `mark` over its instant. It stays in `claims` until the broker has
  confirmed the message; a beat that finds it there after its `until` publishes the same message again.
"""

import uuid
from typing import Final

import msgspec

from taskmq.contracts.stores import KeptRecord
from taskmq.errors import LimitReached, StateUnavailable

__all__ = [
    "HISTORY",
    "PENDING_MS",
    "ActiveRun",
    "Counts",
    "Emitted",
    "MissedSpan",
    "OccurrenceClaim",
    "ScheduleRecord",
    "decode_record",
    "encode_record",
    "new_version",
]

HISTORY: Final = 20
"""So many occurrences are remembered in a record."""
PENDING_MS: Final = 3_600_000
"""A message that no worker has begun after so long holds no place any more: it may have been purged."""

_MOST_BACKFILLS: Final = 10


class OccurrenceClaim(msgspec.Struct, frozen=True, array_like=True):
    """An occurrence that a beat is about to publish.

    Attributes:
        run: tells it from another emission of the same instant; "" for the ordinary one.
        until: when others take it over, ms.
        kind: why it is emitted: `due`, `catchup`, `buffered`, `backfill`.
    """

    instant: int
    run: str
    owner: str
    until: int
    kind: str


class ActiveRun(msgspec.Struct, array_like=True):
    """An occurrence that waits in its queue or runs; kept where the schedule limits how many do.

    Attributes:
        until: when it is taken for lost unless a worker reports that it is not, ms.
        is_running: whether a worker has begun it.
    """

    job_id: str
    until: int
    is_running: bool = False


class MissedSpan(msgspec.Struct, array_like=True):
    """Occurrences of the past that are emitted a few at a time.

    Attributes:
        run: of their claims; "" for what was missed.
        after: up to here it is done.
        until: the last instant that may be one.
        next: not before, ms.
    """

    kind: str
    run: str
    after: int
    until: int
    next: int


class Emitted(msgspec.Struct, frozen=True, array_like=True):
    """One occurrence in the history. Instants are ms; `at` is when the broker had confirmed it."""

    instant: int
    at: int
    kind: str


class Counts(msgspec.Struct, array_like=True):
    """Since the schedule is known."""

    fired: int = 0
    late: int = 0
    missed: int = 0
    skipped: int = 0
    failed: int = 0
    coalesced: int = 0


class ScheduleRecord(msgspec.Struct, array_like=True):
    """What is known about one schedule.

    Attributes:
        mark: see above; None: no beat has seen the schedule yet.
        rule: tells the trigger that `mark` was made by from others.
        paused: since when, ms; None: it is not.
        buffered: instants that wait for earlier occurrences to end.
        history: the last ones that were emitted, the newest last.
        resumed: from when to when it was paused, if no beat has dealt with that yet.
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

    def remember(self, emitted: Emitted) -> None:
        """Add to the history, which keeps the last ones."""
        self.history = [*self.history[1 - HISTORY :], emitted]

    def begin_backfill(self, span: MissedSpan, *, name: str) -> None:
        """Add a backfill to the backlogs of the schedule.

        Raises:
            LimitReached: ten are under way.
        """
        if sum(each.kind == span.kind for each in self.backlogs) >= _MOST_BACKFILLS:
            raise LimitReached(
                f"schedule {name!r} has {_MOST_BACKFILLS} backfills under way: wait until one has ended",
                most=_MOST_BACKFILLS,
            )
        self.backlogs = [*self.backlogs, span]

    def live(self, now: int) -> list[ActiveRun]:
        """The runs that are not taken for lost."""
        return [run for run in self.active if run.until > now]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ScheduleRecord)


def encode_record(record: ScheduleRecord) -> bytes:
    """The record as it is kept."""
    return _encode(record)


def decode_record(kept: KeptRecord | None, *, name: str) -> ScheduleRecord:
    """The record that is kept; an empty one where there is none.

    Raises:
        StateUnavailable: the state has something else there.
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
    """A version that was never used."""
    return uuid.uuid4().hex[:16]
