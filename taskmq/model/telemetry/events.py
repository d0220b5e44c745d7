"""What happens to jobs and workers, as others hear of it: facts in batches, version 1. Pure.

A batch is one message of JSON. All of its events are of one topic, so that a listener chooses at the broker:

    job.EVENT.QUEUE    started, succeeded, answered, retried, snoozed, dead, cancelled, interrupted, parked
    worker.EVENT       online, beat, draining, offline
    failure.QUEUE      the `dead` event of a job that is not of the store once more, with the words of its error

QUEUE is the queue as people name it; one with dots in its name makes more words. Events of `job` and `worker` are
facts: ids, names, times, durations and the type of an error. Arguments, results and the words of an error are never
in them. The words are in those of `failure` alone, redacted, for the history of runs.

An event may be lost, and nothing waits for one. Each worker numbers its events, and says how many it has dropped.
Fields and events may be added; readers ignore what they do not know. docs/events.md is for other languages.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from taskmq.errors import MalformedMessage
from taskmq.model.telemetry.worker_status import WorkerStatus

__all__ = [
    "ALL_EVENTS",
    "EXPIRED_REASON",
    "FAILURE_EVENTS",
    "JOB_EVENTS",
    "LONGEST_MESSAGE",
    "LONGEST_TRACEBACK",
    "WORKER_EVENTS",
    "Event",
    "EventBatch",
    "FailureEvent",
    "JobEvent",
    "JobEventName",
    "WorkerEvent",
    "WorkerEventName",
    "decode_batch",
    "encode_batch",
    "failure_topic",
    "job_topic",
    "worker_topic",
]

VERSION: Final = 1
JOB_EVENTS: Final = "job.#"
"""The topics of all events of jobs."""
WORKER_EVENTS: Final = "worker.*"
"""The topics of all events of workers."""
ALL_EVENTS: Final = (JOB_EVENTS, WORKER_EVENTS)
FAILURE_EVENTS: Final = "failure.#"
"""The topics of words of errors; not among `ALL_EVENTS`."""
EXPIRED_REASON: Final = "expired"
"""The reason of `cancelled` where the job's time was over before it started."""
LONGEST_MESSAGE: Final = 1_000
LONGEST_TRACEBACK: Final = 8_000
"""Characters of an error's message, and of the end of its traceback."""
_JOB: Final = "job."
_FAILURE: Final = "failure."
_WORKER: Final = "worker."
_TOPIC_BYTES: Final = 255


JobEventName = Literal[
    "started",
    "succeeded",
    "answered",
    "retried",
    "snoozed",
    "dead",
    "cancelled",
    "interrupted",
    "parked",
]
"""What happens to attempts; all but `started` are ends, whose outcome is about to be settled:

- `started`: an attempt begins;
- `succeeded`: the task has returned;
- `answered`: an earlier run had done the work: the function was not called;
- `retried`: the attempt failed, and another one follows after `delay`;
- `snoozed`: the task runs later, after `delay`; no attempt is counted;
- `dead`: the job is a dead letter, for `reason`;
- `cancelled`: the job ends here, neither done nor failed;
- `interrupted`: the job goes back to its queue, after `delay` if an outage has ended its run; no attempt is counted;
- `parked`: no worker can run the message, which goes to `taskmq.parking`.
"""

WorkerEventName = Literal["online", "beat", "draining", "offline"]
"""What happens to worker processes:

- `online`: it consumes;
- `beat`: it still does: every 10 s, and when a program begins to listen for jobs;
- `draining`: it takes nothing new;
- `offline`: it ends in order. One that is killed says nothing: it misses its beats.
"""


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened to one attempt of a job.

    Attributes:
        event: the name of what happened, a `JobEventName`.
        worker: the name of the worker process.
        number: the event's number at its worker, from 1; grows by one with each.
        job_id: the job's id.
        task: the task's name.
        queue: where the job waited, as people name it.
        attempt: which attempt of the job, from 1; absent where it is the first.
        tenant: whose job it is; "" (absent) without a tenant.
        at: when it happened, in ms since the epoch; for an end, when the function had ended, before the outcome
            was settled.
        waited: `started`, first attempt: seconds from the instant when it was due.
        seconds: an end: how long the attempt ran.
        delay: `retried`, `snoozed`, and `interrupted` by an outage: seconds until it runs again.
        error: `retried`, `dead`, and `interrupted` by an outage: the name of the exception's type.
        reason: `dead`: why, a `DeadReason`; `cancelled`: `expired` where its time was over before it started.
        is_stored: true for a job of the store, which remembers its end itself.
    """

    event: str
    worker: str = ""
    number: int
    at: int
    job_id: str
    task: str
    queue: str
    attempt: int = 1
    tenant: str = ""
    waited: float | None = None
    seconds: float | None = None
    delay: float | None = None
    error: str | None = None
    reason: str | None = None
    is_stored: bool = False


class FailureEvent(JobEvent, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The `dead` event of the same number once more, with what the error said.

    Attributes:
        message: what the error says, redacted; "" where the worker keeps it to itself.
        traceback: its end, redacted; "" the same.
    """

    message: str = ""
    traceback: str = ""


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a worker process, and how it was then.

    Attributes:
        event: the name of what happened, a `WorkerEventName`.
        worker: the name of the worker process.
        number: the event's number at its worker; events of jobs and of the worker are counted together.
        at: when it happened, in ms since the epoch.
        status: how the worker was then, a `WorkerStatus`.
    """

    event: str
    worker: str = ""
    number: int
    at: int
    status: WorkerStatus


Event = JobEvent | WorkerEvent


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One message of events, all of one worker and one topic.

    Attributes:
        v: version of the format: 1; another number is another format.
        worker: the name of the worker process whose events these are.
        dropped: how many events the worker has dropped since it started.
        events: what happened, in that order.
    """

    v: int
    worker: str
    dropped: int
    events: Sequence[Event]


class _JobBatch(msgspec.Struct, frozen=True):
    v: int
    worker: str
    events: list[JobEvent]
    dropped: int = 0


class _FailureBatch(msgspec.Struct, frozen=True):
    v: int
    worker: str
    events: list[FailureEvent]
    dropped: int = 0


class _WorkerBatch(msgspec.Struct, frozen=True):
    v: int
    worker: str
    events: list[WorkerEvent]
    dropped: int = 0


_encoder = msgspec.json.Encoder()
_job_batches = msgspec.json.Decoder(_JobBatch)
_failure_batches = msgspec.json.Decoder(_FailureBatch)
_worker_batches = msgspec.json.Decoder(_WorkerBatch)


def job_topic(event: str, queue: str) -> str:
    """The topic of events of this kind about jobs of this queue."""
    return _short(f"{_JOB}{event}.{queue}")


def failure_topic(queue: str) -> str:
    """The topic of the words of errors of jobs of this queue."""
    return _short(f"{_FAILURE}{queue}")


def worker_topic(event: str) -> str:
    """The topic of events of workers."""
    return f"{_WORKER}{event}"


def encode_batch(worker: str, events: Sequence[Event], *, dropped: int) -> bytes:
    """The message for events of one topic."""
    return _encoder.encode(EventBatch(v=VERSION, worker=worker, dropped=dropped, events=events))


def decode_batch(topic: str, body: bytes) -> EventBatch:
    """Read the events in a message of this topic.

    Raises:
        MalformedMessage: it is no batch of events, or of a later version.
    """
    try:
        batch = _decoder_of(topic).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"no batch of events: {error}") from error
    if batch.v != VERSION:
        raise MalformedMessage(f"a batch of events of version {batch.v}; this taskmq reads version {VERSION}")
    events = [msgspec.structs.replace(event, worker=batch.worker) for event in batch.events]
    return EventBatch(v=batch.v, worker=batch.worker, dropped=batch.dropped, events=events)


def _decoder_of(
    topic: str,
) -> "msgspec.json.Decoder[_WorkerBatch] | msgspec.json.Decoder[_FailureBatch] | msgspec.json.Decoder[_JobBatch]":
    if topic.startswith(_WORKER):
        return _worker_batches
    return _failure_batches if topic.startswith(_FAILURE) else _job_batches


def _short(topic: str) -> str:
    return topic if len(topic) <= 63 else topic.encode()[:_TOPIC_BYTES].decode(errors="ignore")
