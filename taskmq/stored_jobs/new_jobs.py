"""Conversion of calls to jobs for submission, and of stored jobs to results."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchedJob, JobDetail, JobRecord, NewJob
from taskmq.contracts.stores import ResultRecord
from taskmq.errors import InvalidOption
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import Envelope, decode_envelope, encode_envelope
from taskmq.model.jobs.changes import RetryMode, retry_mode
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.uniqueness import UniqueKey
from taskmq.model.keys import check_reachable, is_derived_id, line_key, tenant_key
from taskmq.model.nodes import JobNeeds
from taskmq.model.resources import Amounts
from taskmq.model.telemetry.plain_text import check_line
from taskmq.model.topology import WorkQueue
from taskmq.model.values.light_values import REFERENCE, read_reference
from taskmq.options.uniqueness import UniqueCall
from taskmq.tasks.job_ids import JOB_IDS
from taskmq.tasks.job_options import check_text

_MIDDLE: Final = 4
# The API has its own paths `/jobs/count` and `/jobs/counts`.
_RESERVED: Final = frozenset({"count", "counts", "histogram"})


def new_job(
    sending: Sending,
    queue: WorkQueue,
    *,
    now: int,
    resources: Amounts | None = None,
) -> NewJob:
    """Build the job of a call.

    Args:
        now: current time (ms since the epoch).
        resources: resources that the task declares for its runs.

    Raises:
        InvalidOption: the id or tenant is invalid, the queue is ordered but the job has no order key or vice versa,
            or the job needs a node but the queue's jobs are not placed.
    """
    envelope = sending.envelope
    queue.check_order(envelope.order_key)
    submission = sending.submission or Submission()
    detail = _add_needs(submission.detail, queue, resources)
    key = None if submission.job_id is None else _check_key(submission.job_id)
    return _build_job(
        envelope,
        id=envelope.id if key is None else JOB_IDS.next(now),
        queue=queue.name,
        key=key,
        fingerprint=b"" if key is None else _identify_request(submission, envelope, key, detail, queue=queue.name),
        # Not `now`: if the clock here were ahead of the store's, the job would wait.
        due=envelope.eta or 0,
        detail=detail,
        held=submission.held,
        unique=None if sending.unique is None else _build_unique_key(sending.unique),
    )


def set_derived_id(sending: Sending, job_id: str) -> None:
    """Set a derived id on a call that goes to the store, instead of a chosen one.

    The store has one job of that id. Submitting the same task and arguments again returns it; anything else raises
    `JobConflict`.
    """
    sending.envelope = replace(sending.envelope, id=tenant_key(sending.envelope.tenant, job_id))
    sending.submission = replace(sending.submission or Submission(), job_id=job_id)


def clone_job(
    record: JobRecord,
    *,
    job_id: str | None,
    now: int,
    due: int,
    owner: str | None = None,
    call: Mapping[str, Any] | None = None,
    priority: int | None = None,
    depends_on: tuple[JobDependency, ...] = (),
) -> NewJob:
    """Build another job of the same task, linked to the original.

    It does not expire, takes no unique key, and has only the given dependencies. It is no step of the original's run.

    Args:
        now, due: ms since the epoch.
        owner: default: that of the original.
        call: fields of the envelope that other arguments change; default: none.
        priority: default: that of the original.

    Raises:
        InvalidOption: the id or the owner is invalid.
    """
    detail = replace(record.detail or JobDetail(), retry_of=record.id, step_of="", depends_on=depends_on)
    fresh = JOB_IDS.next(now)
    key = None if job_id is None else _check_key(job_id)
    name = fresh if key is None else tenant_key(record.tenant or None, key)
    envelope = replace(decode_envelope(record.body), id=name, enqueued=now, expires=None, earlier=0, step_of=None)
    if call is not None:
        envelope = replace(envelope, **call)
    if priority is not None:
        envelope = replace(envelope, priority=priority)
    return _build_job(
        envelope,
        id=fresh,
        queue=record.queue,
        key=key,
        fingerprint=b"" if key is None else _compute_fingerprint(envelope, [record.queue, "clone", record.id]),
        due=due,
        detail=detail if owner is None else replace(detail, owner=check_text("owner", owner, 255)),
        held=False,
    )


def default_mode(record: JobRecord) -> RetryMode:
    """Return the default mode in which an ended job runs again."""
    return retry_mode(
        record.state,
        is_named=record.key is not None and not is_derived_id(record.key),
        was_asked_to_end=record.cancel_requested is not None,
    )


def build_resumed_body(record: JobRecord) -> bytes:
    """Build the message of a resumed job: its earlier attempts do not count, and it does not expire."""
    earlier = record.attempt if record.dispatched is not None else record.attempt - 1
    return encode_envelope(replace(decode_envelope(record.body), earlier=earlier, expires=None))


def name_of(job: NewJob | JobRecord | DispatchedJob) -> str:
    """Return the job's name in handles and messages: the id that its submitter chose, or the store's."""
    return job.id if job.key is None else tenant_key(job.tenant or None, job.key)


def result_of(record: JobRecord) -> ResultRecord | None:
    """Build the result of an ended job for `Job.result`; None if it has not ended. Large values are not fetched."""
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


def _build_job(
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
    order_key = envelope.order_key
    # Most envelopes are like that already.
    if (envelope.attempt, envelope.eta, envelope.store, envelope.preemptible) != (1, None, None, preemptible):
        envelope = replace(envelope, attempt=1, eta=None, store=None, preemptible=preemptible)
    return NewJob(
        id=id,
        tenant=check_text("tenant", envelope.tenant, 255) if envelope.tenant else "",
        key=key,
        fingerprint=fingerprint,
        task=envelope.task,
        queue=queue,
        priority=_MIDDLE if envelope.priority is None else envelope.priority,
        due=due,
        expires=envelope.expires,
        held=held,
        body=encode_envelope(envelope),
        detail=detail,
        unique=unique,
        line=None if order_key is None else line_key(queue, order_key, tenant=envelope.tenant),
    )


def _add_needs(detail: JobDetail | None, queue: WorkQueue, resources: Amounts | None) -> JobDetail | None:
    """Add the needs of a placed job: its own, or those of its task.

    Raises:
        InvalidOption: the job has needs, but the queue's jobs are not placed.
    """
    own = None if detail is None else detail.needs
    if not queue.placed:
        if own is not None:
            raise InvalidOption(
                f"queue {queue.name!r} does not place its jobs, so resources= and place= have no effect: use "
                f"TaskMQ(queues=[WorkQueue({queue.name!r}, placed=True)])"
            )
        return detail
    needs = own or JobNeeds()
    if resources and not needs.resources:
        needs = replace(needs, resources=dict(resources))
    return replace(detail or JobDetail(), needs=needs)


def _build_unique_key(call: UniqueCall) -> UniqueKey:
    rule = call.rule
    return UniqueKey(
        name=call.name,
        until="over" if rule.policy == "throttle" else rule.until,
        replaces=rule.replaces,
        ttl=max(round(rule.ttl * 1000), 1),
    )


def _identify_request(
    submission: Submission, envelope: Envelope, key: str, detail: JobDetail | None, *, queue: str
) -> bytes:
    """Compute the fingerprint of a call whose submitter chose its id."""
    compared = envelope
    if submission.compared is not None:
        compared = replace(envelope, args=submission.compared[0], kwargs=submission.compared[1])
    requested = submission.asked_for
    if requested is not None and detail is not None:
        requested += msgspec.json.encode(detail.depends_on)
    elif is_derived_id(key):
        # A derived id identifies the job; the call must also be equal.
        requested = msgspec.json.encode([compared.task, compared.args, compared.kwargs])
    request = [queue, submission.asked, submission.held, detail]
    return _digest(requested) or _compute_fingerprint(compared, request)


def _compute_fingerprint(envelope: Envelope, request: Sequence[object]) -> bytes:
    """Compute a digest of a request, without the fields that differ between repeated submissions."""
    same = replace(
        envelope, id="", enqueued=None, eta=None, expires=None, trace=None, root=None, parent=None, limits=None
    )
    facts = msgspec.json.encode([encode_envelope(same).decode(), *request])
    return _digest(facts)


def _digest(facts: bytes | None) -> bytes:
    return b"" if facts is None else hashlib.blake2b(facts, digest_size=16).digest()


def _check_key(job_id: str) -> str:
    line = check_line("job_id", check_text("job_id", job_id, 255))
    return check_reachable(line, what="job_id", reserved=_RESERVED)
