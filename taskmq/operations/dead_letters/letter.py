"""A dead letter, read from its message. Whatever a foreign sender put there is shown, and nothing of it trusted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from taskmq.contracts.broker import Delivery
from taskmq.errors import MalformedMessage
from taskmq.model import headers as header
from taskmq.model.envelope import decode_envelope
from taskmq.model.topology import PARKING, UNROUTABLE, logical_queue
from taskmq.model.units import milliseconds_in
from taskmq.operations.dead_letters.fingerprint import fingerprint

__all__ = ["DeadLetter", "JobsOfLetters", "OfJob", "read_letter"]

_TYPE_NAME: Final = re.compile(r"[\w.<>]+(?=:|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead job, or a message that no worker can run. Times are ms since the epoch; None where unknown.

    Attributes:
        tenant: whose job it is, as its sender wrote into the message; "" where it says none.
        queue: the physical queue it came from; "" when unknown.
        attempt: the one that was its last; 0 where the message is no task.
        reason: why it is dead: `error`, `rejected`, `invalid_arguments`, `timeout`, `memory`, `worker_lost` or
            `result` as a worker saw it; `delivery_limit`, `rejected`, `expired` or `maxlen` where the broker put it
            aside; `unroutable` where its queue had gone; of a parked message, what is wrong with it.
        error: type and message of the last error.
        error_type: its qualified name.
        enqueued: when the job was first sent.
        started: when its last attempt was.
        died: when it became a letter.
        worker: who ran it last.
        starts: of a job whose worker ended each time: how often it was started.
        priority: the broker's, in a queue that leaves the order to it.
        replayed: how often it was sent again before.
        is_stored: whether it is of a job of the store, which ends there, whatever becomes of its message.
        headers: as they came, without the broker's own.
    """

    job_id: str
    task: str
    tenant: str
    queue: str
    attempt: int
    reason: str
    error: str
    error_type: str
    traceback: str
    enqueued: int | None
    started: int | None
    died: int | None
    worker: str
    starts: int | None
    priority: int | None
    replayed: int
    root: str | None
    is_stored: bool
    headers: Mapping[str, object]
    body: bytes
    content_type: str | None

    @property
    def job(self) -> tuple[str, str]:
        """Which job it is of: its task and id."""
        return self.task, self.job_id

    @property
    def fingerprint(self) -> str:
        """The same for letters of the same failure; see `taskmq.operations.dead_letters.fingerprint`."""
        return fingerprint(
            task=self.task,
            reason=self.reason,
            error_type=self.error_type,
            message=self.error.removeprefix(self.error_type),
            traceback=self.traceback,
        )


class OfJob(Protocol):
    """A letter, as it is or as the API shows it."""

    @property
    def task(self) -> str: ...

    @property
    def job_id(self) -> str: ...


class JobsOfLetters:
    """The jobs of the letters that were seen. A letter without an id counts as one job.

    Attributes:
        letters: how many were seen.
        jobs: how many jobs they are of.
    """

    def __init__(self) -> None:
        self.letters = 0
        self.jobs = 0
        self._seen: set[tuple[str, str]] = set()

    def is_first(self, letter: OfJob) -> bool:
        """Count the letter; whether its job has had none before."""
        self.letters += 1
        job = letter.task, letter.job_id
        is_first = not letter.job_id or job not in self._seen
        self.jobs += is_first
        self._seen.add(job)
        return is_first

    def __str__(self) -> str:
        letters = "1 letter" if self.letters == 1 else f"{self.letters} letters"
        jobs = "1 job" if self.jobs == 1 else f"{self.jobs} jobs"
        return letters if self.letters == self.jobs else f"{letters} of {jobs}"


def read_letter(delivery: Delivery) -> DeadLetter:
    """The letter in a message of a dead-letter queue, or of one of the two shared queues of lost messages."""
    headers = delivery.headers

    def text(name: str) -> str:
        value = headers.get(name)
        return value if isinstance(value, str) else ""

    def number(name: str) -> int | None:
        value = headers.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def instant(name: str) -> int | None:
        # Letters of versions before have the milliseconds.
        value = headers.get(name)
        return milliseconds_in(value) if isinstance(value, str) else number(name)

    try:
        envelope = decode_envelope(delivery.body, delivery.content_type)
    except MalformedMessage:
        envelope = None
    is_shared = delivery.queue in (PARKING, UNROUTABLE)
    error = text(header.ERROR)
    return DeadLetter(
        job_id=(envelope.id if envelope else "") or delivery.message_id or "",
        task=envelope.task if envelope else delivery.task or "",
        tenant=(envelope.tenant if envelope else None) or "",
        # An embedded broker says in a separate header where an unroutable message was to go.
        queue=text(header.ORIGIN) or text(header.QUEUE) or ("" if is_shared else logical_queue(delivery.queue)),
        attempt=envelope.attempt if envelope else 0,
        reason=text(header.REASON) or ("unroutable" if delivery.queue == UNROUTABLE else ""),
        error=error,
        error_type=text(header.ERROR_TYPE) or _type_of(error),
        traceback=text(header.TRACEBACK),
        enqueued=envelope.enqueued if envelope else None,
        started=instant(header.STARTED),
        died=instant(header.DIED),
        worker=text(header.WORKER),
        starts=number(header.STARTS),
        priority=number(header.PRIORITY),
        replayed=max(number(header.REPLAYED) or 0, 0),
        root=envelope.root if envelope else None,
        is_stored=envelope is not None and envelope.store is not None,
        headers=headers,
        body=delivery.body,
        content_type=delivery.content_type,
    )


def _type_of(error: str) -> str:
    """The type's name in "module.Type: message"."""
    found = _TYPE_NAME.match(error)
    return found[0] if found else ""
