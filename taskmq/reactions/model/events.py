"""What has happened, as the task that reacts is given it."""

from datetime import datetime

import msgspec

__all__ = ["FileArrived", "JobEnded", "MessageArrived", "ReactionEvent", "TimeCame"]


class JobEnded(msgspec.Struct, frozen=True, kw_only=True, tag="job", tag_field="kind"):
    """A job has ended.

    Attributes:
        job_id: `app.job(job_id)` gives its result, where it keeps one.
        state: `succeeded`, `failed` or `cancelled`.
        finished: when its last run had ended.
    """

    job_id: str
    task: str
    state: str
    finished: datetime


class FileArrived(msgspec.Struct, frozen=True, kw_only=True, tag="file", tag_field="kind"):
    """A file is there, and complete.

    Attributes:
        path: as the pattern of the condition makes it: absolute where that is.
        size: in bytes.
        modified: when it was last changed, by the clock of its file system.
    """

    path: str
    size: int
    modified: datetime


class MessageArrived(msgspec.Struct, frozen=True, kw_only=True, tag="message", tag_field="kind"):
    """A message has come, over a topic exchange or to a queue of another system's.

    Attributes:
        routing_key: what it was published with.
        body: as it was published.
        message_id: as its publisher has named it; None without a name.
        content_type: as its publisher has said it.
    """

    routing_key: str
    body: bytes
    message_id: str | None = None
    content_type: str | None = None


class TimeCame(msgspec.Struct, frozen=True, kw_only=True, tag="time", tag_field="kind"):
    """A nominal instant of a schedule has come."""

    instant: datetime


ReactionEvent = JobEnded | FileArrived | MessageArrived | TimeCame
