"""From a call to a job that can be submitted, and back from a job to how it ended."""

import hashlib
import os
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.client.large_values import REFERENCE, read_reference
from taskmq.contracts.jobs import JobDetail, JobRecord, NewJob
from taskmq.contracts.stores import ResultRecord
from taskmq.errors import InvalidOption
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import VERSION, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.jobs.changes import RetryMode, retry_mode
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.uniqueness import UniqueKey
from taskmq.model.keys import check_reachable, is_derived_id, tenant_key
from taskmq.model.nodes import JobNeeds
from taskmq.model.resources import Amounts
from taskmq.model.telemetry.plain_text import check_line
from taskmq.model.topology import WorkQueue
from taskmq.options.uniqueness import UniqueCall
from taskmq.tasks.job_options import check_text

__all__ = ["cloned", "mode_of", "name_of", "new_job", "result_of", "resumed_body", "under_derived_id"]

_MIDDLE: Final = 4
# `/jobs/count` and `/jobs/counts` are paths of their own.
_RESERVED: Final = frozenset({"count", "counts"})


def new_job(
    sending: Sending,
    queue: WorkQueue,
    *,
    now: int,
    resources: Amounts | None = None,
) -> NewJob:
    """The job of a call.

    Args:
        queue: that the call is for.
        now: ms since the epoch.
        resources: what the task says that its runs take.

    Raises:
        InvalidOption: an id or a tenant that cannot be; a queue that is ordered; a job that needs a node, in a queue
            whose jobs are not placed.
    """
    envelope = sending.envelope
    if queue.ordered is not None:
        raise InvalidOption(
            f"task {envelope.task}: queue {queue.name!r} is ordered, and a job that waits in the store would let "
            "others pass: send it instead"
        )
    told = sending.submission or Submission()
    detail = _placed(told.detail, queue, resources)
    key = None if told.job_id is None else _key(told.job_id)
    asked = [queue.name, told.asked, told.held, detail]
    compared = envelope
    if told.compared is not None:
        compared = replace(envelope, args=told.compared[0], kwargs=told.compared[1])
    asked_for = told.asked_for
    if asked_for is not None and detail is not None:
        asked_for += msgspec.json.encode(detail.depends_on)
    elif key is not None and is_derived_id(key):
        # Made of the same facts again it is the same job, if the call is the same.
        asked_for = msgspec.json.encode([compared.task, compared.args, compared.kwargs])
    return _job(
        envelope,
        id=envelope.id if key is None else new_job_id(now, os.urandom(10)),
        queue=queue.name,
        key=key,
        fingerprint=b"" if key is None else _digest(asked_for) or _fingerprint(compared, asked),
        due=now if envelope.eta is None else envelope.eta,
        detail=detail,
        held=told.held,
        unique=None if sending.unique is None else _unique_key(sending.unique),
    )


def under_derived_id(sending: Sending, job_id: str) -> None:
    """Give a call that goes to the store the id that follows from what it is for, in place of one that is chosen.

    The store has one job of that id: a second one with the same task and arguments is the first, another one is a
    `JobConflict`.
    """
    sending.envelope = replace(sending.envelope, id=tenant_key(sending.envelope.tenant, job_id))
    sending.submission = replace(sending.submission or Submission(), job_id=job_id)


def cloned(
    record: JobRecord,
    *,
    job_id: str | None,
    now: int,
    due: int,
    owner: str | None = None,
    call: tuple[msgspec.Raw, msgspec.Raw] | None = None,
    priority: int | None = None,
    depends_on: tuple[JobDependency, ...] = (),
) -> NewJob:
    """Another job of the same task, which knows whose repetition it is.

    It neither expires, nor takes a unique key, nor waits for others than those that are given.

    Args:
        now, due: ms since the epoch.
        owner: default: that of the first one.
        call: arguments by place and by name, encoded; default: those of the first one.
        priority: default: that of the first one.

    Raises:
        InvalidOption: an id or an owner that cannot be.
    """
    detail = replace(record.detail or JobDetail(), retry_of=record.id, depends_on=depends_on)
    fresh = new_job_id(now, os.urandom(10))
    key = None if job_id is None else _key(job_id)
    name = fresh if key is None else tenant_key(record.tenant or None, key)
    envelope = replace(decode_envelope(record.body), id=name, enqueued=now, expires=None, earlier=0)
    if call is not None:
        envelope = replace(envelope, v=VERSION, args=call[0], kwargs=call[1], blob=None)
    if priority is not None:
        envelope = replace(envelope, priority=priority)
    return _job(
        envelope,
        id=fresh,
        queue=record.queue,
        key=key,
        fingerprint=b"" if key is None else _fingerprint(envelope, [record.queue, "clone", record.id]),
        due=due,
        detail=detail if owner is None else replace(detail, owner=check_text("owner", owner, 255)),
        held=False,
    )


def mode_of(record: JobRecord) -> RetryMode:
    """Return the way in which a job that has ended is run again unless a mode is named."""
    return retry_mode(
        record.state,
        is_named=record.key is not None and not is_derived_id(record.key),
        was_asked_to_end=record.cancel_requested is not None,
    )


def resumed_body(record: JobRecord) -> bytes:
    """The message of a job that goes on: its attempts up to now do not count, and it does not expire."""
    earlier = record.attempt if record.dispatched is not None else record.attempt - 1
    return encode_envelope(replace(decode_envelope(record.body), earlier=earlier, expires=None))


def name_of(job: NewJob | JobRecord) -> str:
    """What the job is called by its handles and in its messages."""
    return job.id if job.key is None else tenant_key(job.tenant or None, job.key)


def result_of(record: JobRecord) -> ResultRecord | None:
    """How the job ended, as `Job.result` reads it; None where it has not. A large value is yet to be fetched."""
    if not record.state.is_final:
        return None
    content_type, value, blob = record.content_type, record.result, None
    if content_type == REFERENCE and (found := read_reference(value)) is not None:
        value, (content_type, blob) = b"", found
    return ResultRecord(
        job_id=record.id,
        task=record.task,
        state=record.state,
        attempt=record.attempt,
        content_type=content_type,
        value=value,
        blob=blob,
        error=record.error,
        started=record.started,
        finished=record.finished or record.submitted,
        worker=record.worker,
    )


def _job(
    envelope: Envelope,
    *,
    id: str,  # noqa: A002 - the field's name
    queue: str,
    key: str | None,
    fingerprint: bytes,
    due: int,
    detail: JobDetail | None,
    held: bool,
    unique: UniqueKey | None = None,
) -> NewJob:
    preemptible = None if detail is None else detail.preemptible
    return NewJob(
        id=id,
        tenant=check_text("tenant", envelope.tenant or "", 255),
        key=key,
        fingerprint=fingerprint,
        task=envelope.task,
        queue=queue,
        priority=_MIDDLE if envelope.priority is None else envelope.priority,
        due=due,
        expires=envelope.expires,
        held=held,
        body=encode_envelope(replace(envelope, attempt=1, eta=None, store=None, preemptible=preemptible)),
        detail=detail,
        unique=unique,
    )


def _placed(detail: JobDetail | None, queue: WorkQueue, resources: Amounts | None) -> JobDetail | None:
    """What is kept of a job that may be placed: what it needs, or else what its task does."""
    own = None if detail is None else detail.needs
    if not queue.placed:
        if own is not None:
            raise InvalidOption(
                f"queue {queue.name!r} goes to any of its workers, so resources= and place= of a job have no meaning "
                f"there: TaskMQ(queues=[WorkQueue({queue.name!r}, placed=True)])"
            )
        return detail
    needs = own or JobNeeds()
    if resources and not needs.resources:
        needs = replace(needs, resources=dict(resources))
    return replace(detail or JobDetail(), needs=needs)


def _unique_key(call: UniqueCall) -> UniqueKey:
    rule = call.rule
    return UniqueKey(
        name=call.name,
        until="over" if rule.policy == "throttle" else rule.until,
        replaces=rule.replaces,
        ttl=max(round(rule.ttl * 1000), 1),
    )


def _fingerprint(envelope: Envelope, asked: Sequence[object]) -> bytes:
    """Of what was asked for, without what differs from one submission of it to the next."""
    same = replace(envelope, id="", enqueued=None, eta=None, expires=None, trace=None, root=None, parent=None)
    facts = msgspec.json.encode([encode_envelope(same).decode(), *asked])
    return _digest(facts)


def _digest(facts: bytes | None) -> bytes:
    return b"" if facts is None else hashlib.blake2b(facts, digest_size=16).digest()


def _key(job_id: str) -> str:
    line = check_line("job_id", check_text("job_id", job_id, 255))
    return check_reachable(line, what="job_id", reserved=_RESERVED)
