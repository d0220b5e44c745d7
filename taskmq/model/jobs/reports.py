"""What a worker reports of a job of the store, and what follows from it. Pure.

    invitation (id, attempt, token)  ->  the worker runs the task  ->  report (id, token, kind, ...)

A report counts only with the job's present token, which is new with every dispatch: one that is late, doubled, or of
a run that was given up is superseded, and harmless. Where a store was restored it may not remember the dispatch: then
an end counts by its proof (`taskmq.model.jobs.proofs`), and one with a made-up token does not. Reports travel as
lists, JSON, at most `LONGEST` bytes a message: part of the wire format, which docs/wire.md describes for workers in
other languages.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from taskmq.errors import EncodeError, MalformedMessage
from taskmq.model.envelope import LAST_INSTANT, MSGPACK, Invitation, Token
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState

__all__ = [
    "INTERRUPTED",
    "LONGEST",
    "LONGEST_DELAY",
    "MOST_UNHEEDED",
    "PREEMPTED",
    "UNHEEDED",
    "Interruption",
    "Report",
    "ReportKind",
    "UnreadReport",
    "after_report",
    "decode_reports",
    "encode_reports",
    "goes_on",
    "interruption_of",
    "invite",
    "kept_error",
    "ran_again",
    "read_reports",
    "restart_note",
    "with_readable_result",
]

LONGEST: Final = 262_144
"""Bytes of one message with reports; a single report that is larger has a message of its own."""
LONGEST_DELAY: Final = 365_000 * 86_400_000
"""Milliseconds: a job that is to run again later than that runs then."""
UNHEEDED: Final = frozenset({"superseded", "unknown_attempt"})
"""The events of a job of which a report with another token than its present one has changed nothing."""
MOST_UNHEEDED: Final = 10
"""So many of these events are kept for a job. Further reports are only counted: no forger makes its history grow."""

ReportKind = Literal[
    "started", "succeeded", "failed", "retry", "snoozed", "expired", "cancelled", "refused", "interrupted",
    "detached", "alive",
]  # fmt: skip
"""What a worker says:

- `started`: it still runs after a quarter of a second, or is acknowledged before its run;
- `succeeded`: with its result;
- `failed`: no further attempt is to follow, with the error;
- `retry`: the attempt has failed, and another is to follow after `delay`: the task's own policy says so;
- `snoozed`: it is to run again after `delay`, and the attempt does not count; if an outage has interrupted its run,
  the message of the error says so;
- `expired`, `cancelled`: it did not start, or was stopped;
- `refused`: this worker cannot read it or does not know its task; after `delay` another one may;
- `interrupted`: it is to run again at once, and the attempt does not count; the message of the error says why its
  run was stopped: its worker stops, or it has given way to others;
- `detached`: it runs on without its message, which is acknowledged now: no broker gives it to another worker;
- `alive`: so it does still. Sent every ten seconds; the scheduler keeps it in mind, and does not write it down.
"""

PREEMPTED: Final = "Preempted"
"""The type of the error with which a run is reported that has given way to others."""
INTERRUPTED: Final = "Interrupted"
"""The same of a run that an outage, or the end of its worker, has interrupted."""

_Instant = Annotated[int, msgspec.Meta(ge=0, le=LAST_INSTANT)]
_Span = Annotated[int, msgspec.Meta(ge=0, le=LAST_INSTANT)]

_AFTER: Final[dict[ReportKind, JobState]] = {
    "started": JobState.RUNNING,
    "succeeded": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "retry": JobState.RETRYING,
    "snoozed": JobState.SCHEDULED,
    "expired": JobState.EXPIRED,
    "cancelled": JobState.CANCELLED,
    "refused": JobState.SCHEDULED,
    "interrupted": JobState.QUEUED,
    "detached": JobState.RUNNING,
    "alive": JobState.RUNNING,
}
_RUNS_AGAIN: Final = frozenset({JobState.RETRYING, JobState.SCHEDULED, JobState.QUEUED})


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one attempt. Times are ms since the epoch by the worker's clock, spans are ms.

    Attributes:
        id: the store's id of the job.
        token: of the invitation.
        proof: of the invitation: by it a store that has forgotten the dispatch knows its token for its own.
        attempt: its number, from 1.
        worker: who ran it.
        started: when its run began; None where it had none.
        ran: how long it ran.
        delay: when it is to run again, from now on; `LONGEST_DELAY` at most counts.
        limited: it was snoozed because a limit of its task is used up.
        content_type, result: the encoded return value of a success.
        error: of a failure; of other ends `message` is the reason.
    """

    id: str
    token: Token
    kind: ReportKind
    proof: str = ""
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    worker: str = ""
    started: _Instant | None = None
    ran: _Span = 0
    delay: Annotated[int, msgspec.Meta(ge=0)] = 0
    limited: bool = False
    content_type: str = ""
    result: bytes = b""
    error: ErrorRecord | None = None


class UnreadReport(NamedTuple):
    """What should be a report, as it came, and why it is none."""

    body: bytes
    reason: str


def after_report(kind: ReportKind, *, cancel_requested: bool) -> JobState:
    """The state of a job whose report counts.

    Args:
        cancel_requested: an operator has asked for its end meanwhile. What would run again ends; what has ended has.
    """
    state = _AFTER[kind]
    return JobState.CANCELLED if cancel_requested and state in _RUNS_AGAIN else state


def goes_on(kind: ReportKind) -> bool:
    """Whether the attempt that is reported goes on."""
    return _AFTER[kind] is JobState.RUNNING


class Interruption(NamedTuple):
    """The end of a run that says nothing about its task.

    Attributes:
        kind: of the event in the job's history.
        reason: for people.
    """

    kind: Literal["interrupted", "preempted"]
    reason: str
    is_outage: bool


def interruption_of(report: Report) -> Interruption | None:
    """Why the run that is reported was interrupted; None: it was not, or had not begun."""
    if report.error is None:
        return None
    is_named = report.error.type_name == INTERRUPTED
    if report.kind == "interrupted":
        return Interruption("interrupted" if is_named else "preempted", report.error.message, is_outage=False)
    if report.kind == "snoozed" and is_named:
        return Interruption("interrupted", report.error.message, is_outage=True)
    return None


def kept_error(report: Report) -> ErrorRecord | None:
    """Return the error that the job has from this report: the reason of an interruption is none."""
    return None if interruption_of(report) is not None else report.error


def ran_again(report: Report, started: int | None) -> bool:
    """Whether the report is of a later run than the one that began at `started`, of which no end was reported.

    The broker gave the message to a second worker: the first one has stopped, was killed, or has lost its connection.

    Args:
        started: when the dispatch's run began that the store knows of, ms since the epoch; None: it knows of none.
    """
    return report.started is not None and started is not None and report.started > started


def restart_note(report: Report) -> str:
    """Write the note of the event that a run had no end, and that the job ran again."""
    return f"no end of this run was reported; the job ran again at {report.worker or 'another worker'}"


def with_readable_result(report: Report) -> Report:
    """The report; a success whose result is neither JSON nor MessagePack has failed, as one whose value has no form.

    Else the job would have a result for good that no page can show. A success may have none at all: its task returned
    nothing, or keeps no results.
    """
    if report.kind != "succeeded" or not report.result:
        return report
    try:
        (_any_msgpack if report.content_type == MSGPACK else _any_json).decode(report.result)
    except _UNREADABLE as error:
        why = f"its worker reported a result that is no {report.content_type or 'JSON'}: {error}"
        failure = ErrorRecord(type_name="EncodeError", message=why, traceback="")
        return msgspec.structs.replace(report, kind="failed", content_type="", result=b"", error=failure)
    return report


_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Report])
_decoder_of_one = msgspec.json.Decoder(Report)
_parts = msgspec.json.Decoder(list[msgspec.Raw])
_any_json = msgspec.json.Decoder()
_any_msgpack = msgspec.msgpack.Decoder()


def encode_reports(reports: Iterable[Report]) -> Iterator[bytes]:
    """The bodies of the messages with these reports, in their order.

    Raises:
        EncodeError: a text has no form in UTF-8.
    """
    parts: list[bytes] = []
    # Each part has a comma behind it, or the closing bracket.
    size = 1
    for report in reports:
        try:
            part = _encoder.encode(report)
        except UnicodeEncodeError as error:
            raise EncodeError(f"the report of job {report.id} has no form on the wire: {error}") from error
        if parts and size + len(part) + 1 > LONGEST:
            yield b"[%s]" % b",".join(parts)
            parts, size = [], 1
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield b"[%s]" % b",".join(parts)


def decode_reports(body: bytes) -> list[Report]:
    """The reports in one message.

    Raises:
        MalformedMessage: it has none.
    """
    try:
        return [_within_time(report) for report in _decoder.decode(body)]
    except _UNREADABLE as error:
        raise MalformedMessage(f"the message has no reports: {type(error).__name__}: {error}") from error


def read_reports(body: bytes) -> tuple[list[Report], list[UnreadReport]]:
    """The reports in one message, and what of it is none: a worker sends those of several jobs together.

    Raises:
        MalformedMessage: it has none.
    """
    try:
        return decode_reports(body), []
    except MalformedMessage:
        try:
            parts = _parts.decode(body)
        except _UNREADABLE:
            parts = []
        reports: list[Report] = []
        unread: list[UnreadReport] = []
        for part in parts:
            try:
                reports.append(_within_time(_decoder_of_one.decode(part)))
            except _UNREADABLE as error:
                unread.append(UnreadReport(bytes(part), f"it is no report: {type(error).__name__}: {error}"))
        if not reports:
            raise
        return reports, unread


def _within_time(report: Report) -> Report:
    return report if report.delay <= LONGEST_DELAY else msgspec.structs.replace(report, delay=LONGEST_DELAY)


def invite(body: bytes, *, attempt: int, invitation: Invitation) -> bytes:
    """The body of the message of one dispatch.

    Args:
        body: an envelope in JSON without `attempt` and `store`, as the store keeps it.
        attempt: its number, from 1.
    """
    # What the store keeps is a whole object that has a task: two more fields fit before its end.
    return b'%s,"attempt":%d,"store":%s}' % (body[:-1], attempt, _encoder.encode(invitation))
