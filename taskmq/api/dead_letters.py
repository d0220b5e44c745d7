"""Dead letters, the failures behind them, and which of them are meant."""

from typing import Annotated

import msgspec

from taskmq.api.queues import PurgeBody
from taskmq.api.values import ShortText

__all__ = [
    "LetterChoice",
    "LetterGroupView",
    "LetterGroups",
    "LetterList",
    "LetterQueues",
    "LetterView",
    "PurgeLettersBody",
    "ReplayBody",
    "ReplayedView",
]


class LetterChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which letters are meant; what is left out does not matter.

    Attributes:
        task, error, reason: a name, a part of it, or a pattern with `*` and `?`.
        fingerprint: how it begins.
        job: the job's id.
        older_than, newer_than: how long ago it died, such as "1h".
    """

    task: ShortText | None = None
    error: ShortText | None = None
    reason: ShortText | None = None
    fingerprint: ShortText | None = None
    job: ShortText | None = None
    older_than: ShortText | None = None
    newer_than: ShortText | None = None


class ReplayBody(LetterChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which letters are sent again, and how.

    Attributes:
        to: the queue. Default: where each came from.
        limit: so many at most.
        rate: letters a second at most.
        keep_attempts: go on with the attempt that was the last; else from the first on.
    """

    to: ShortText | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    keep_attempts: bool = False


class PurgeLettersBody(PurgeBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue's name once more, and which of its letters are deleted: all where nothing is said."""

    task: ShortText | None = None
    error: ShortText | None = None
    fingerprint: ShortText | None = None
    job: ShortText | None = None


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter, without the job's arguments."""

    job_id: str
    task: str
    tenant: str
    queue: str
    attempt: int
    reason: str
    error_type: str
    error: str
    traceback: str
    fingerprint: str
    enqueued: str | None
    died: str | None
    worker: str
    replayed: int


class LetterList(msgspec.Struct, frozen=True):
    """The oldest letters of a queue."""

    items: list[LetterView]


class LetterGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """The letters of one failure.

    Attributes:
        jobs: how many jobs they are of.
        tenants: whose they are, "" for those that name none.
        sample: the job of the first of them.
    """

    fingerprint: str
    count: int
    jobs: int
    tenants: list[str]
    task: str
    reason: str
    error_type: str
    error: str
    first: str | None
    last: str | None
    sample: str


class LetterGroups(msgspec.Struct, frozen=True):
    """The failures behind a queue's letters, the most frequent first."""

    items: list[LetterGroupView]


class LetterQueues(msgspec.Struct, frozen=True):
    """Queues that have letters, as people name them."""

    items: list[str]


class ReplayedView(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did.

    Attributes:
        dropped: further letters of the same jobs, which were not sent.
        too_often, no_destination: letters that stayed.
    """

    replayed: int
    dropped: int
    too_often: int
    no_destination: int
