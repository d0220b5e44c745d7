"""Events, as they are passed to the task of a reaction."""

from datetime import datetime

import msgspec


class JobEnded(msgspec.Struct, frozen=True, kw_only=True, tag="job", tag_field="kind"):
    """The end of a job.

    Attributes:
        job_id: id of the job; `app.job(job_id)` has its result, if one is kept.
        state: `succeeded`, `failed` or `cancelled`; of a stored job that no worker had also `expired`, `skipped` or
            `upstream_failed`.
        finished: when its last run ended.
    """

    job_id: str
    task: str
    state: str
    finished: datetime


class RunEnded(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """The end of a run of a workflow.

    Attributes:
        run_id: id of the run, for `app.runs.get(run_id)`.
        workflow: name of its workflow.
        state: `succeeded`, `failed` or `cancelled`.
        scheduled_for: instant of its occurrence in ISO 8601; "" if no schedule started it.
    """

    run_id: str
    workflow: str
    state: str
    finished: datetime
    scheduled_for: str = ""


class FileArrived(msgspec.Struct, frozen=True, kw_only=True, tag="file", tag_field="kind"):
    """The arrival of a complete file.

    Attributes:
        path: path of the file; absolute if the pattern of the condition is.
        size: size in bytes.
        modified: when it was last changed, by the clock of its file system.
    """

    path: str
    size: int
    modified: datetime


class MessageArrived(msgspec.Struct, frozen=True, kw_only=True, tag="message", tag_field="kind"):
    """The arrival of a message, over a topic exchange or in a queue of another system.

    Attributes:
        routing_key: routing key that it was published with.
        body: original body.
        message_id: id given by the publisher, if any.
        content_type: content type given by the publisher, if any.
    """

    routing_key: str
    body: bytes
    message_id: str | None = None
    content_type: str | None = None


class TimeCame(msgspec.Struct, frozen=True, kw_only=True, tag="time", tag_field="kind"):
    """A nominal instant of a schedule."""

    instant: datetime


ReactionEvent = JobEnded | RunEnded | FileArrived | MessageArrived | TimeCame
