"""Dead letters, their failure groups, and the filters that select them."""

from typing import Annotated, TypedDict

import msgspec

from taskmq.api.values import ShortText


class LetterFilters(TypedDict, total=False):
    """Dead letter filters, with the fields of `LetterChoice`."""

    task: str | None
    error: str | None
    reason: str | None
    fingerprint: str | None
    job: str | None
    older_than: str | None
    newer_than: str | None
    depth: int | None


class LetterChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on dead letters. Omitted filters match everything.

    Attributes:
        task, error, reason: a name, a part of one, or a pattern with `*` and `?`.
        fingerprint: the beginning of the fingerprint.
        job: the job's id.
        older_than, newer_than: the time since the job died, such as "1h".
        depth: examine only this number of the oldest letters. Except for deletion, a server examines at most 10,000.
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
    """The letters to replay, and how to replay them.

    Attributes:
        to: the target queue. Default: the queue each letter came from.
        limit: the maximum number of letters to replay. Default: all that were examined.
        rate: the maximum number of letters per second.
        keep_attempts: continue with the last attempt's number instead of the first.
        max_replays: skip letters that were already replayed this often; None for no limit.
        duplicates: replay all letters of a job instead of replaying one and dropping the others.
        dry_run: only report which letters would be replayed.
    """

    to: ShortText | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    keep_attempts: bool = False
    max_replays: Annotated[int, msgspec.Meta(ge=1)] | None = 3
    duplicates: bool = False
    dry_run: bool = False


class PurgeLettersBody(LetterChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue's name as confirmation, and the letters to delete. Without filters, all letters are deleted.

    Attributes:
        limit: delete at most this number, oldest first.
        dry_run: only count matches among the queue's oldest 10,000 letters.
    """

    name: ShortText
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    dry_run: bool = False


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter and its job.

    Attributes:
        letter_of: the name of the queue it belongs to; or taskmq.parking, taskmq.unroutable.
        queue: the RabbitMQ queue the job came from.
        starts: how often the job was started, if its worker died each time.
        body: with `expand=body`, the message as text. It contains the arguments, so only callers who may read jobs
            receive it.
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
        letter_of: the name of the queue they belong to.
        jobs: the number of distinct jobs.
        tenants: the jobs' tenants; "" for letters without one.
        sample: the id of the first letter's job.
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
    """The failures behind a queue's letters, most frequent first."""

    items: list[LetterGroupView]


class LetterQueues(msgspec.Struct, frozen=True):
    """Names of the queues that have letters."""

    items: list[str]


class PlannedReplay(LetterView, frozen=True, kw_only=True):
    """A letter that a replay would send, and the RabbitMQ queue it would go to."""

    to: str


class ReplayedView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a replay, or the expected result with `dry_run`.

    Attributes:
        dropped: further letters of the same jobs, which were not sent.
        too_often, no_destination: letters that stayed in the queue.
        planned: with `dry_run`, the letters to send; a server returns the first 1,000.
    """

    replayed: int
    dropped: int
    too_often: int
    no_destination: int
    planned: list[PlannedReplay] | None = None
