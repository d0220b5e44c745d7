"""Queues, and what empties, pauses and resumes them."""

from typing import Annotated

import msgspec

from taskmq.api.values import Note, ShortText

__all__ = [
    "MoveBody",
    "MovedView",
    "PauseBody",
    "PurgeBody",
    "PurgedView",
    "QueueGroup",
    "QueueLine",
    "QueueLines",
    "QueuePauseView",
    "QueueView",
    "ResumedView",
]


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at the broker.

    Attributes:
        ready: messages that wait for a worker.
        in_hand: messages in workers' hands; None where that is unknown.
        delayed: jobs and retries that wait for their time; None where the broker does not tell whose they are.
        is_paused: nothing of the queue is started; None where that is unknown.
        paused: since when, by whom and why; None where it is not.
    """

    queue: str
    ready: int
    in_hand: int | None
    delayed: int | None
    consumers: int
    is_paused: bool | None
    paused: "QueuePauseView | None"


class QueueGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as people name it, with all that it is made of at the broker.

    Attributes:
        ready, in_hand, delayed, consumers, is_paused: as of a queue at the broker, of all that have jobs together.
        dead: its dead letters, which no worker takes; of the two queues of lost messages all that is in them.
        parts: what it is made of: lanes, priority classes, jobs of the store, dead letters.
    """

    queue: str
    ready: int
    in_hand: int | None
    delayed: int | None
    consumers: int
    is_paused: bool | None
    dead: int
    parts: list[str]


class QueueLines(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, and how many jobs and retries wait for their time in all of them; None where that is not known.

    Attributes:
        items: each queue at the broker.
        queues: one for each queue that people name.
    """

    items: list[QueueLine]
    delayed: int | None
    queues: list[QueueGroup]


class QueuePauseView(msgspec.Struct, frozen=True, kw_only=True):
    """A pause of a queue.

    Attributes:
        note: why.
        by: who paused it; empty where that is unknown.
    """

    since: str | None
    note: str
    by: str = ""


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one queue.

    Attributes:
        kind: quorum or classic.
        priorities: `classes` or `native`; None where it is ordered, or has lanes.
        ordered: so many shards, by the jobs' order keys; `lanes`: so many, by tenants. None of a queue without.
        max_length, max_bytes, delivery_limit: its bounds at the broker; None where the app says none.
        delayed: jobs and retries that wait for their time; None where the broker does not tell whose they are.
        dead: dead letters; None where the queue does not exist yet.
        parts: its queues at the broker that exist.
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
    consumers: int
    paused: QueuePauseView | None
    tasks: list[str]
    workers: list[str]
    parts: list[QueueLine]


class PauseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a queue is paused, for others to see."""

    note: Note = ""


class PurgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of what is emptied, once more: what is purged is gone."""

    name: ShortText


class PurgedView(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were deleted."""

    purged: int


class MoveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages go where.

    Attributes:
        name: of the queue that they leave, once more.
        to: the queue that they go to.
        count: at most so many; default: all that wait now.
        task: only those of tasks of this name, with `*` and `?`.
    """

    name: ShortText
    to: ShortText
    count: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    task: ShortText | None = None


class MovedView(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were moved, and how many of those that were meant the other queue cannot take."""

    moved: int
    stayed: int


class ResumedView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the queue was paused before."""

    was_paused: bool
