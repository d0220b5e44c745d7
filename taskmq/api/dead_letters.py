"""Dead letters, the failures behind them, and which of them are meant."""

from typing import Annotated, TypedDict

import msgspec

from taskmq.api.values import ShortText

__all__ = [
    "LetterChoice",
    "LetterFilters",
    "LetterGroupView",
    "LetterGroups",
    "LetterList",
    "LetterQueues",
    "LetterView",
    "PlannedReplay",
    "PurgeLettersBody",
    "ReplayBody",
    "ReplayedView",
]


class LetterFilters(TypedDict, total=False):
    """Conditions on dead letters, as `LetterChoice` has them."""

    task: str | None
    error: str | None
    reason: str | None
    fingerprint: str | None
    job: str | None
    older_than: str | None
    newer_than: str | None
    depth: int | None


class LetterChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on dead letters; one that is left out does not matter.

    Attributes:
        task, error, reason: a name, a part of it, or a pattern with `*` and `?`.
        fingerprint: how it begins.
        job: the job's id.
        older_than, newer_than: how long ago it died, such as "1h".
        depth: one of the oldest so many. A server looks at 10,000 at most, but for deleting them.
    """

    task: ShortText | None = None
    error: ShortText | None = None
    reason: ShortText | None = None
    fingerprint: ShortText | None = None
    job: ShortText | None = None
    older_than: ShortText | None = None
    newer_than: ShortText | None = None
    depth: Annotated[int, msgspec.Meta(ge=1)] | None = None


class ReplayBody(LetterChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The letters that are sent again, and how.

    Attributes:
        to: the queue. Default: where each came from.
        limit: so many at most. Default: all that are looked at.
        rate: letters a second at most.
        keep_attempts: go on with the attempt that was the last; else from the first on.
        max_replays: letters that were replayed so often before stay; None: none does.
        duplicates: send all letters of a job; else one, and drop the others.
        dry_run: only say what would be sent.
    """

    to: ShortText | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    keep_attempts: bool = False
    max_replays: Annotated[int, msgspec.Meta(ge=1)] | None = 3
    duplicates: bool = False
    dry_run: bool = False


class PurgeLettersBody(LetterChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue's name for confirmation, and the letters to delete: all of them unless a filter is given.

    Attributes:
        limit: so many at most, the oldest.
        dry_run: only count them, among the oldest 10,000 letters of the queue.
    """

    name: ShortText
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    dry_run: bool = False


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: its job, and what became of that.

    Attributes:
        letter_of: the queue whose letter it is, as people name it; or taskmq.parking, taskmq.unroutable.
        queue: where the job came from, at the broker.
        starts: of a job whose worker ended each time: how often it was started.
        body: with `expand=body`, the message, as far as it is text; its arguments are in it, so only for callers who
            may read jobs.
    """

    letter_of: str
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
    started: str | None
    died: str | None
    worker: str
    starts: int | None
    replayed: int
    body: str | None


class LetterList(msgspec.Struct, frozen=True):
    """The oldest letters of a queue."""

    items: list[LetterView]


class LetterGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """The letters of one failure.

    Attributes:
        letter_of: the queue whose letters they are.
        jobs: how many jobs they are of.
        tenants: whose they are, "" for those that name none.
        sample: the job of the first of them.
    """

    letter_of: str
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


class PlannedReplay(LetterView, frozen=True, kw_only=True):
    """A letter that a replay would send, and the queue at the broker that it would go to."""

    to: str


class ReplayedView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a replay, or with `dry_run` the expected one.

    Attributes:
        dropped: further letters of the same jobs, which were not sent.
        too_often, no_destination: letters that stayed.
        planned: with `dry_run`, the letters that would be sent, of a server the first 1,000.
    """

    replayed: int
    dropped: int
    too_often: int
    no_destination: int
    planned: list[PlannedReplay] | None = None
