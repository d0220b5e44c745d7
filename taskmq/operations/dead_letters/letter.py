"""Dead letters, read from their messages. Content from foreign senders is shown but never trusted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from taskmq.contracts.broker import Delivery
from taskmq.errors import MalformedMessage
from taskmq.model import headers as header
from taskmq.model.envelope import decode_envelope
from taskmq.model.topology import PARKING, UNROUTABLE, logical_queue
from taskmq.model.units import count_text, milliseconds_in
from taskmq.operations.dead_letters.fingerprint import fingerprint

_TYPE_NAME: Final = re.compile(r"[\w.<>]+(?=:|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead job, or a message that no worker can run. Times are ms since the epoch; None where unknown.

    Attributes:
        tenant: tenant that the sender wrote into the message; "" if none.
        queue: physical queue it came from; "" if unknown.
        attempt: number of the last attempt; 0 if the message is no task.
        reason: why the job died. Workers report `error`, `rejected`, `invalid_arguments`, `timeout`, `memory`,
            `worker_lost` or `result`. The broker reports `delivery_limit`, `rejected`, `expired` or `maxlen`.
            `unroutable` means that its queue was gone. For a parked message, the defect of the message.
        error: type and message of the last error.
        error_type: qualified name of that type.
        enqueued: when the job was first published.
        started: when its last attempt started.
        died: when it became a dead letter.
        worker: the worker that ran it last.
        starts: how often the job was started, if its worker died each time.
        priority: native priority, in a queue that orders by it.
        replayed: how often it was replayed before.
        is_stored: whether it belongs to a stored job. Such a job ends in the store, independently of its message.
        headers: the original headers, without the broker's.
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
        """Task and id of its job."""
        return self.task, self.job_id

    @property
    def fingerprint(self) -> str:
        """Fingerprint of its failure; see `taskmq.operations.dead_letters.fingerprint`."""
        return fingerprint(
            task=self.task,
            reason=self.reason,
            error_type=self.error_type,
            message=self.error.removeprefix(self.error_type),
            traceback=self.traceback,
        )


class LetterLike(Protocol):
    """A dead letter, or its representation in the API."""

    @property
    def task(self) -> str: ...

    @property
    def job_id(self) -> str: ...


class JobsOfLetters:
    """Counter of letters and of their jobs. A letter without an id counts as one job.

    Attributes:
        letters: letters counted so far.
        jobs: jobs that they belong to.
    """

    def __init__(self) -> None:
        self.letters = 0
        self.jobs = 0
        self._seen: set[tuple[str, str]] = set()

    def is_first(self, letter: LetterLike) -> bool:
        """Count the letter. Returns whether it is the first of its job."""
        self.letters += 1
        job = letter.task, letter.job_id
        is_first = not letter.job_id or job not in self._seen
        self.jobs += is_first
        self._seen.add(job)
        return is_first

    def __str__(self) -> str:
        letters = count_text(self.letters, "letter")
        return letters if self.letters == self.jobs else f"{letters} of {count_text(self.jobs, 'job')}"


def read_letter(delivery: Delivery) -> DeadLetter:
    """Read a dead letter from a message of a dead-letter queue, `taskmq.parking` or `taskmq.unroutable`."""
    headers = delivery.headers

    def text(name: str) -> str:
        value = headers.get(name)
        return value if isinstance(value, str) else ""

    def number(name: str) -> int | None:
        value = headers.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def instant(name: str) -> int | None:
        # Earlier versions wrote milliseconds.
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
        # The embedded broker names the destination of an unroutable message in a separate header.
        queue=text(header.ORIGIN) or text(header.QUEUE) or ("" if is_shared else logical_queue(delivery.queue)),
        attempt=envelope.attempt if envelope else 0,
        reason=text(header.REASON) or ("unroutable" if delivery.queue == UNROUTABLE else ""),
        error=error,
        error_type=text(header.ERROR_TYPE) or _parse_type(error),
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


def _parse_type(error: str) -> str:
    """Return the type's name from "module.Type: message"."""
    found = _TYPE_NAME.match(error)
    return found[0] if found else ""
