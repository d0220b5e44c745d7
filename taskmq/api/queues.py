"""Queues, and requests that pause, resume, move and purge."""

from typing import Annotated

import msgspec

from taskmq.api.values import Note, ShortText


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """A RabbitMQ queue and its message counts.

    Attributes:
        ready: messages that wait for a worker.
        in_hand: unacknowledged messages; None if unknown.
        delayed: scheduled jobs and retries; None if the broker does not count them per queue.
        is_paused: whether workers start no jobs of the queue; None if unknown.
        paused: when, by whom and why it was paused; None if it is not paused.
    """

    queue: str
    ready: int
    in_hand: int | None
    delayed: int | None
    consumers: int
    is_paused: bool | None
    paused: "QueuePauseView | None"


class QueueGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of the app and the RabbitMQ queues it consists of.

    Attributes:
        ready, in_hand, delayed, is_paused: totals of its RabbitMQ queues that hold jobs.
        consumers: a worker counts once.
        dead: its dead letters; for the two queues of lost messages, all their messages.
        stored: due jobs of the store that are not dispatched yet, at most 100,000; None if unknown.
        is_exact: False if there may be more than `stored`.
        oldest: when the first of those became due.
        entered, left: jobs a second that entered and left it in the last five minutes; None if not sampled.
        empty_in: seconds until its waiting jobs have started at these rates; None if they do not become fewer.
        advice: what to do if it grows.
        parts: its RabbitMQ queues: lanes, priority classes, stored jobs, dead letters.
    """

    queue: str
    ready: int
    in_hand: int | None
    delayed: int | None
    consumers: int
    is_paused: bool | None
    dead: int
    stored: int | None
    is_exact: bool
    oldest: str | None
    entered: float | None
    left: float | None
    empty_in: float | None
    advice: str
    parts: list[str]


class QueueLines(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, and the total number of scheduled jobs and retries; None if unknown.

    Attributes:
        items: all RabbitMQ queues.
        queues: the app's queues.
    """

    items: list[QueueLine]
    delayed: int | None
    queues: list[QueueGroup]


class DemandView(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue that need a slot of a worker now, for programs that start and stop workers.

    Attributes:
        demand: their number: `stored`, `ready` and `in_hand` together.
        stored: due jobs of the store that are not dispatched yet, at most 100,000; None if the app has no store.
        is_exact: False if there may be more than `demand` and `stored`.
        ready: messages at the broker that wait for a worker.
        in_hand: messages that workers hold.
        oldest: when the first of the stored jobs became due.
    """

    queue: str
    demand: int
    stored: int | None
    is_exact: bool
    ready: int
    in_hand: int
    oldest: str | None


class QueuePauseView(msgspec.Struct, frozen=True, kw_only=True):
    """A pause of a queue.

    Attributes:
        note: the reason.
        by: who paused it; "" if unknown.
    """

    since: str | None
    note: str
    by: str = ""


class BacklogPart(msgspec.Struct, frozen=True, kw_only=True):
    """Ready jobs of a queue that share a tenant or a priority.

    Attributes:
        name: the tenant, "" for none, or the priority.
    """

    name: str
    jobs: int


class MoreWorkersView(msgspec.Struct, frozen=True, kw_only=True):
    """Workers to add to a queue, and when its waiting jobs would have started.

    Attributes:
        workers: number of them; each runs as many jobs as the present ones do.
        empty_in: seconds; None if the waiting jobs do not become fewer.
    """

    workers: int
    empty_in: float | None


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """The details of one queue.

    Attributes:
        kind: quorum or classic.
        priorities: `classes` or `native`; None for a queue with ordering or lanes.
        ordered: the number of shards by order key; `lanes`: the number of lanes by tenant. None if not used.
        max_length, max_bytes, delivery_limit: the limits in RabbitMQ; None if the app sets none.
        delayed: scheduled jobs and retries; None if the broker does not count them per queue.
        dead: dead letters; None if the queue does not exist yet.
        stored: due jobs of the store that are not dispatched yet, at most 100,000; None if unknown.
        is_exact: False if there may be more than `stored`, `tenants` and the counts of both divisions.
        oldest: when the first of those became due.
        entered, left: jobs a second that entered and left it in the last five minutes; None if not sampled.
        empty_in: seconds until its waiting jobs have started at these rates; None if they do not become fewer.
        advice: what to do if it grows.
        more_workers: if its waiting jobs take over an hour, workers to add: as many as keep up with the jobs that
            enter, and as many as empty it within an hour. Empty if the present ones run no jobs.
        by_tenant, by_priority: ready jobs of the store, at most 100,000: of the 50 tenants with the most jobs, and of
            each priority, the highest first. Jobs that wait for a limit of their task are not counted.
        tenants: the number of tenants with such jobs; jobs without a tenant count as one.
        parts: its existing RabbitMQ queues.
    """

    queue: str
    kind: str
    priorities: str | None
    ordered: int | None
    lanes: int | None
    max_length: int | None
    max_bytes: int | None
    delivery_limit: int | None
    ready: int
    in_hand: int
    delayed: int | None
    dead: int | None
    stored: int | None
    is_exact: bool
    oldest: str | None
    entered: float | None
    left: float | None
    empty_in: float | None
    advice: str
    more_workers: list[MoreWorkersView]
    by_tenant: list[BacklogPart]
    by_priority: list[BacklogPart]
    tenants: int
    consumers: int
    paused: QueuePauseView | None
    tasks: list[str]
    workers: list[str]
    parts: list[QueueLine]


class PauseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for a pause, shown to others."""

    note: Note = ""


class PurgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue's name as confirmation. Purged messages cannot be recovered."""

    name: ShortText


class PurgedView(msgspec.Struct, frozen=True, kw_only=True):
    """The number of deleted messages."""

    purged: int


class MoveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages to move, and the target queue.

    Attributes:
        name: the source queue's name as confirmation.
        to: the target queue.
        count: the maximum number of messages. Default: all that are ready now.
        task: only messages of matching tasks, with `*` and `?`.
    """

    name: ShortText
    to: ShortText
    count: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    task: ShortText | None = None


class MovedView(msgspec.Struct, frozen=True, kw_only=True):
    """The number of messages moved, and of matching ones that the target queue cannot take."""

    moved: int
    stayed: int


class ResumedView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the queue was paused before."""

    was_paused: bool
