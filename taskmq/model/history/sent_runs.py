"""Runs of sent jobs in queues with `record="all"`: reports of workers, and the records that a job store keeps. Pure.

    run -> RunReport -> up to 256 KiB of them in one message -> reports queue of partition 0 -> scheduler -> store

The broker delivers a report at least once, in any order. Job, attempt, start and worker identify a run, so a repeated
report changes nothing, and every order of the same reports leads to the same job. docs/wire.md describes the message
for workers in other languages.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from taskmq.errors import MalformedMessage
from taskmq.model.envelope import Envelope, new_job_id, submitted_at
from taskmq.model.keys import split_tenant_key
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.model.units import InstantMs

RUNS_TASK: Final = "taskmq.runs"
"""Task name of messages that carry runs of sent jobs."""
MOST_EARLIER: Final = 100
"""Number of runs before the last one that are kept of a job."""
_LONGEST_MESSAGE: Final = 262_144
_MIDDLE_PRIORITY: Final = 4
_TIME_ORDERED: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

_STATES: Final = frozenset(
    {
        JobState.RUNNING,
        JobState.QUEUED,
        JobState.SCHEDULED,
        JobState.RETRYING,
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.EXPIRED,
    }
)

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Name = Annotated[str, msgspec.Meta(max_length=1_024)]


class SentJobFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of a sent job that each of its messages has.

    Attributes:
        name: its id in messages, with the prefix of its tenant if the sender chose the id.
        sent: when it was sent, ms since the epoch.
    """

    name: _Name
    task: _Name
    queue: _Name
    tenant: _Name = ""
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = _MIDDLE_PRIORITY
    sent: InstantMs


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of a sent job. Times are ms since the epoch by its worker's clock.

    Attributes:
        worker: "" if an operator ended the job while no worker had it.
        ended: None while it runs, as far as is known.
        state: the job's state since then: running, an end, or `queued`, `scheduled` or `retrying` for another run.
        due: when the next run is due; None: without one, or at once.
        processor_ms: processor time of the run; None: unknown.
    """

    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    worker: _Name = ""
    started: InstantMs
    ended: InstantMs | None = None
    state: JobState = JobState.RUNNING
    due: InstantMs | None = None
    error: ErrorRecord | None = None
    processor_ms: _Count | None = None


class RunReport(msgspec.Struct, frozen=True):
    """A run with its job."""

    job: SentJobFacts
    run: RecordedRun


class RecordedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A sent job with its runs.

    Attributes:
        id: `record_id` of the job.
        key: the id that its sender chose, within the tenant; None if the sender chose none.
        version: grows with every run and every end of a run that becomes known.
        last: its last run, which determines its state.
        earlier: the runs before it, the earliest first, at most `MOST_EARLIER`.
    """

    id: str
    key: str | None
    job: SentJobFacts
    version: int = 1
    last: RecordedRun
    earlier: tuple[RecordedRun, ...] = ()


class _RunBatch(msgspec.Struct, frozen=True):
    runs: list[RunReport]


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_RunBatch)


def facts_of(envelope: Envelope, *, name: str, queue: str, started: int) -> SentJobFacts:
    """Return the facts of a message's job.

    Args:
        name: the job's id.
        queue: public name of the queue.
        started: start of a run, the time of the job if neither the message nor the id has one.
    """
    sent = envelope.enqueued
    if sent is None:
        sent = submitted_at(name) if _TIME_ORDERED.fullmatch(name) else started
    return SentJobFacts(
        name=name,
        task=envelope.task,
        queue=queue,
        tenant=envelope.tenant or "",
        priority=_MIDDLE_PRIORITY if envelope.priority is None else envelope.priority,
        sent=sent,
    )


def record_id(job: SentJobFacts) -> str:
    """Return the store's id of a sent job: its own if that is a UUID of version 7, else one derived from its name.

    Ids sort by the time of sending. A name that is sent again at another time is another job.
    """
    if _TIME_ORDERED.fullmatch(job.name):
        return job.name
    return new_job_id(job.sent, hashlib.sha256(job.name.encode(errors="backslashreplace")).digest())


def first_record(report: RunReport) -> RecordedJob:
    """Return the record of a job of which one run is known."""
    found = record_id(report.job)
    key = None if found == report.job.name else split_tenant_key(report.job.name)[1]
    return RecordedJob(id=found, key=key, job=report.job, last=report.run)


def add_run(record: RecordedJob, report: RunReport) -> RecordedJob:
    """Return the record with a run of the job; the same record if that is known, or is another tenant's."""
    if report.job.tenant != record.job.tenant:
        return record
    runs = {_identify(run): run for run in (*record.earlier, record.last)}
    known = runs.get(_identify(report.run))
    if known is not None and (known.ended is not None or report.run.ended is None):
        return record
    runs[_identify(report.run)] = report.run
    *earlier, last = (runs[key] for key in sorted(runs))
    kept = tuple(earlier[-MOST_EARLIER:])
    if (kept, last) == (record.earlier, record.last):
        return record
    return msgspec.structs.replace(record, version=record.version + 1, last=last, earlier=kept)


def _identify(run: RecordedRun) -> tuple[int, int, str]:
    return run.attempt, run.started, run.worker


def encode_batches(field: str, items: Sequence[msgspec.Struct]) -> Iterator[tuple[int, bytes]]:
    """Yield message bodies with these items in this field, in order, each with the number of its items.

    A body has at most 256 KiB, or one item.
    """
    parts: list[bytes] = []
    size = 0
    for item in items:
        part = _encoder.encode(item)
        if parts and size + len(part) > _LONGEST_MESSAGE:
            yield len(parts), _message(field, parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield len(parts), _message(field, parts)


def encode_runs(reports: Sequence[RunReport]) -> Iterator[tuple[int, bytes]]:
    """Yield message bodies with these runs, see `encode_batches`."""
    return encode_batches("runs", reports)


def decode_runs(body: bytes) -> list[RunReport]:
    """Decode the runs of one message.

    Raises:
        MalformedMessage: it has none, or cannot be read.
    """
    try:
        runs = _decoder.decode(body).runs
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"cannot decode the runs: {type(error).__name__}: {error}") from error
    if unknown := {report.run.state for report in runs} - _STATES:
        raise MalformedMessage(f"cannot decode the runs: no run of a sent job leads to state {min(unknown)!r}")
    return runs


def _message(field: str, parts: Sequence[bytes]) -> bytes:
    return b'{"%s":[%s]}' % (field.encode(), b",".join(parts))
