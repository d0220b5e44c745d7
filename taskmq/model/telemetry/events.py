"""Events of jobs and workers: facts in batches, version 1. Pure.

A batch is one JSON message. All of its events have one topic, so that a listener chooses at the broker:

    job.EVENT.QUEUE    started, succeeded, answered, retried, snoozed, dead, cancelled, interrupted, parked
    worker.EVENT       online, beat, draining, offline
    failure.QUEUE      the `dead` event of a job that is not stored, repeated with its error message

QUEUE is the queue's public name; dots in it make more words. Events of `job` and `worker` are facts: ids, names,
times, durations and the type of an error. They never contain arguments, results or error messages. Only `failure`
events contain error messages, redacted, for the history of runs.

An event may be lost; delivery is never awaited. Each worker numbers its events, and reports how many it dropped.
Fields and events may be added; readers ignore those that they do not know. docs/events.md describes them for other
languages.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from taskmq.errors import MalformedMessage
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.units import InstantMs

VERSION: Final = 1
JOB_EVENTS: Final = "job.#"
"""Topic pattern of all job events."""
WORKER_EVENTS: Final = "worker.*"
"""Topic pattern of all worker events."""
ALL_EVENTS: Final = (JOB_EVENTS, WORKER_EVENTS)
FAILURE_EVENTS: Final = "failure.#"
"""Topic pattern of error messages; not among `ALL_EVENTS`."""
EXPIRED_REASON: Final = "expired"
"""Reason of `cancelled` for a job that expired."""
LONGEST_MESSAGE: Final = 1_000
LONGEST_TRACEBACK: Final = 8_000
"""Maximum characters of an error message, and of the end of its traceback."""
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
"""Events of attempts; all but `started` are ends, whose outcome is about to be settled:

- `started`: an attempt begins;
- `succeeded`: the task returned;
- `answered`: an earlier run had done the work, so the function was not called;
- `retried`: the attempt failed, and another one follows after `delay`;
- `snoozed`: the task runs later, after `delay`; no attempt is counted;
- `dead`: the job is a dead letter, for `reason`;
- `cancelled`: the job ends here, neither done nor failed;
- `interrupted`: the job returns to its queue, after `delay` if an outage ended its run; no attempt is counted;
- `parked`: no worker can run the message, which goes to `taskmq.parking`.
"""

WorkerEventName = Literal["online", "beat", "draining", "offline"]
"""Events of worker processes:

- `online`: it consumes;
- `beat`: a heartbeat, every 10 s and when a program begins to listen for jobs;
- `draining`: it accepts no new jobs;
- `offline`: it stops in order. A killed worker sends nothing: its heartbeats stop.
"""


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event of one attempt of a job.

    Attributes:
        event: the kind of event, a `JobEventName`.
        worker: the name of the worker process.
        number: the event's number at its worker, from 1; increases by one with each event.
        job_id: the job's id.
        task: the task's name.
        queue: the public name of the job's queue.
        attempt: the attempt's number, from 1; absent for the first.
        tenant: the job's tenant; "" (absent) without one.
        at: the time of the event, in ms since the epoch; for an end, when the function ended, before the outcome was
            settled.
        waited: `started`, first attempt: seconds since the job was due.
        seconds: an end: the duration of the attempt.
        processor: an end: processor seconds of the attempt; absent if unknown, as of coroutines.
        delay: `retried`, `snoozed`, and `interrupted` by an outage: seconds until the next run.
        error: `retried`, `dead`, and `interrupted` by an outage: the name of the exception's type.
        reason: `dead`: a `DeadReason`; `cancelled`: `expired` if the job expired before it started.
        is_stored: true for a stored job: the store records its end itself.
    """

    event: str
    worker: str = ""
    number: int
    at: InstantMs
    job_id: str
    task: str
    queue: str
    attempt: int = 1
    tenant: str = ""
    waited: float | None = None
    seconds: float | None = None
    processor: float | None = None
    delay: float | None = None
    error: str | None = None
    reason: str | None = None
    is_stored: bool = False


class FailureEvent(JobEvent, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The `dead` event of the same number, with the error message.

    Attributes:
        message: the error message, redacted; "" if the worker does not publish it.
        traceback: the end of the traceback, redacted; "" likewise.
    """

    message: str = ""
    traceback: str = ""


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a worker process, with its status at that time.

    Attributes:
        event: the kind of event, a `WorkerEventName`.
        worker: the name of the worker process.
        number: the event's number at its worker; events of jobs and of the worker share one count.
        at: the time of the event, in ms since the epoch.
        status: the status at that time, a `WorkerStatus`.
    """

    event: str
    worker: str = ""
    number: int
    at: InstantMs
    status: WorkerStatus


Event = JobEvent | WorkerEvent


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A message of events, all of one worker and one topic.

    Attributes:
        v: version of the format: 1; another number is another format.
        worker: the name of the worker process that published the events.
        dropped: number of events that the worker dropped since it started.
        events: the events, in order.
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
    """Return the topic of events of this kind for jobs of this queue."""
    return _short(f"{_JOB}{event}.{queue}")


def failure_topic(queue: str) -> str:
    """Return the topic of error messages of jobs of this queue."""
    return _short(f"{_FAILURE}{queue}")


def worker_topic(event: str) -> str:
    """Return the topic of a worker event."""
    return f"{_WORKER}{event}"


def encode_batch(worker: str, events: Sequence[Event], *, dropped: int) -> bytes:
    """Encode events of one topic as a message."""
    return _encoder.encode(EventBatch(v=VERSION, worker=worker, dropped=dropped, events=events))


def decode_batch(topic: str, body: bytes) -> EventBatch:
    """Decode the events in a message of this topic.

    Raises:
        MalformedMessage: the body is not a batch of events, or has a later version.
    """
    try:
        batch = _decoder_of(topic).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"not a batch of events: {error}") from error
    if batch.v != VERSION:
        raise MalformedMessage(f"a batch of events of version {batch.v}; this taskmq reads version {VERSION}")
    for event in batch.events:
        # The decoder has just made them: setting a field costs less than another object.
        msgspec.structs.force_setattr(event, "worker", batch.worker)
    return EventBatch(v=batch.v, worker=batch.worker, dropped=batch.dropped, events=batch.events)


def _decoder_of(
    topic: str,
) -> "msgspec.json.Decoder[_WorkerBatch] | msgspec.json.Decoder[_FailureBatch] | msgspec.json.Decoder[_JobBatch]":
    if topic.startswith(_WORKER):
        return _worker_batches
    return _failure_batches if topic.startswith(_FAILURE) else _job_batches


def _short(topic: str) -> str:
    return topic if len(topic) <= 63 else topic.encode()[:_TOPIC_BYTES].decode(errors="ignore")
