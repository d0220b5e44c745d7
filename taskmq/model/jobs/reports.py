"""Reports of workers on stored jobs, and the transitions that follow. Pure.

    invitation (id, attempt, token)  ->  the worker runs the task  ->  report (id, token, kind, ...)

A report counts only with the job's present token, which is new with every dispatch. A late, duplicate or abandoned
run's report is superseded, and harmless. A store that was restored may have lost the record of the dispatch. Then an
end counts if its proof is genuine (`taskmq.model.jobs.proofs`), and a forged token does not. Reports travel as JSON
lists, at most `LONGEST` bytes a message. They are part of the wire format, which docs/wire.md describes for workers
in other languages.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from taskmq.errors import EncodeError, MalformedMessage
from taskmq.model.envelope import MSGPACK, Invitation, Token
from taskmq.model.history.journals import RunProgress, SavedValues, SaveRequest
from taskmq.model.history.suspensions import ARGUMENTS, NewArguments, decode_arguments
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import TERMINAL, JobState
from taskmq.model.units import LAST_INSTANT, InstantMs

LONGEST: Final = 262_144
"""Maximum bytes of one message with reports; a single larger report has its own message."""
LONGEST_DELAY: Final = 365_000 * 86_400_000
"""Upper bound of the delay of another run, in milliseconds; longer delays are cut to it."""
UNHEEDED: Final = frozenset({"superseded", "unknown_attempt"})
"""Events of a job for reports whose token was not its present one; such reports changed nothing."""
MOST_UNHEEDED: Final = 10
"""Maximum of these events kept for a job. Further reports are only counted, so a forger cannot grow its history."""

ReportKind = Literal[
    "started", "succeeded", "failed", "retry", "snoozed", "expired", "cancelled", "refused", "interrupted",
    "detached", "alive", "progress", "saving", "held",
]  # fmt: skip
"""Kinds of reports:

- `started`: the run continues after a quarter of a second, or is acknowledged before it starts;
- `succeeded`: with its result;
- `failed`: no further attempt follows; with the error;
- `retry`: the attempt failed, and by the task's policy another follows after `delay`;
- `snoozed`: the job runs again after `delay`, and the attempt does not count; if an outage interrupted the run, or a
  call of the task suspended it, the message of the error says so;
- `expired`, `cancelled`: it did not start, or was stopped;
- `refused`: this worker cannot read the message or does not know the task; another one may after `delay`;
- `interrupted`: the job runs again immediately, and the attempt does not count; the message of the error says why the
  run was stopped: its worker stops, or it was preempted;
- `detached`: the run continues without its message, which is acknowledged now, so the broker redelivers it to no one;
- `alive`: the run still continues. Sent every ten seconds; the scheduler keeps it in memory only;
- `progress`: the last progress of the run. It comes before the report of the run's end;
- `saving`: the run saves a value, or is about to save values, and waits for the scheduler's answer;
- `held`: an operator has to release the job before it runs again, and the attempt does not count; the message of the
  error is the reason.
"""

REPORTS_TASK: Final = "taskmq.reports"
"""Task name of messages with reports."""
PREEMPTED: Final = "Preempted"
"""Error type of a run that was preempted."""
INTERRUPTED: Final = "Interrupted"
"""Error type of a run that was interrupted by an outage, or by the end of its worker."""

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
    "progress": JobState.RUNNING,
    "saving": JobState.RUNNING,
    "held": JobState.HELD,
}
ENDS: Final[Mapping[ReportKind, JobState]] = {kind: state for kind, state in _AFTER.items() if state in TERMINAL}
"""The kinds of reports that end their jobs, and the states of these jobs then."""
_RUNS_AGAIN: Final = frozenset({JobState.RETRYING, JobState.SCHEDULED, JobState.QUEUED, JobState.HELD})


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The outcome of one attempt. Times are ms since the epoch by the worker's clock, durations are ms.

    Attributes:
        id: the store's id of the job.
        token: of the invitation.
        proof: of the invitation: proves to a store that lost the dispatch that the token is its own.
        attempt: its number, from 1.
        worker: the worker that ran it.
        started: start of the run; None if there was none.
        ran: duration of the run.
        processor: processor time of the run; None: unknown.
        peak_memory: largest resident memory of the run's process, in bytes; None: unknown.
        delay: time until it runs again, from now; at most `LONGEST_DELAY`.
        until: of a suspended job: the instant at which it runs again, instead of `delay` from now.
        saves: of a suspended job: the number of saves that its run knows. If the store has more, a signal came
            meanwhile, and the job runs again at once.
        limited: whether it did not start because of a limit of its task: a snoozed one because the limit was
            reached, an interrupted one because it came too late for its start under a strict rate.
        redelivered: of an `interrupted` report: the message came to the worker a second time, and was not run. A
            scheduler that does not know this field dispatches the job anew.
        by_scheduler: whether a scheduler reports a worker's death, so that no worker knows the end.
        version: of a `held` report: the version of the app that the worker runs.
        content_type, result: the encoded return value of a success.
        error: of a failure; for other ends `message` is the reason.
        progress: of a `progress` report.
        saving: of a `saving` report.
        has_saved: of an end: whether the job may have saved values, which a success and a cancellation delete.
    """

    id: str
    token: Token
    kind: ReportKind
    proof: str = ""
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    worker: str = ""
    started: InstantMs | None = None
    ran: _Span = 0
    processor: _Span | None = None
    peak_memory: _Span | None = None
    delay: Annotated[int, msgspec.Meta(ge=0)] = 0
    until: InstantMs | None = None
    saves: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    limited: bool = False
    redelivered: bool = False
    by_scheduler: bool = False
    version: str = ""
    content_type: str = ""
    result: bytes = b""
    error: ErrorRecord | None = None
    progress: RunProgress | None = None
    saving: SaveRequest | None = None
    has_saved: bool = False


class UnreadReport(NamedTuple):
    """A list item that cannot be decoded as a report, and the reason."""

    body: bytes
    reason: str


def after_report(kind: ReportKind, *, cancel_requested: bool) -> JobState:
    """Return the state of a job after a report that counts.

    Args:
        cancel_requested: whether an operator asked to cancel it. A job that would run again ends; an end stays.
    """
    state = _AFTER[kind]
    return JobState.CANCELLED if cancel_requested and state in _RUNS_AGAIN else state


def goes_on(kind: ReportKind) -> bool:
    """Return whether the reported attempt continues."""
    return _AFTER[kind] is JobState.RUNNING


def is_unseen_end(report: Report, state: JobState) -> bool:
    """Return whether the report led to an end, `state`, that no worker knows.

    A scheduler gave the job up, or it would run again if its cancellation had not been requested.
    """
    return state in TERMINAL and (report.by_scheduler or _AFTER[report.kind] not in TERMINAL)


class Interruption(NamedTuple):
    """An interrupted run, which says nothing about its task.

    Attributes:
        kind: of the event in the job's history.
        reason: for people.
    """

    kind: Literal["interrupted", "preempted"]
    reason: str
    is_outage: bool


def interruption_of(report: Report) -> Interruption | None:
    """Return why the reported run was interrupted; None if it was not, or had not started."""
    if report.error is None:
        return None
    is_named = report.error.type_name == INTERRUPTED
    if report.kind == "interrupted":
        return Interruption("interrupted" if is_named else "preempted", report.error.message, is_outage=False)
    if report.kind == "snoozed" and is_named:
        return Interruption("interrupted", report.error.message, is_outage=True)
    return None


class ReturnEvent(NamedTuple):
    """An event of a job that its worker could not run."""

    kind: Literal["refused", "hold"]
    text: str


def event_of(report: Report) -> ReturnEvent | None:
    """Return the event of a report that a worker refused or held the job; None for other reports."""
    text = "" if report.error is None else report.error.message
    if report.kind == "held":
        return ReturnEvent("hold", text)
    return ReturnEvent("refused", text) if report.kind == "refused" else None


def next_due(report: Report, *, now: int, saves: int = 0) -> int:
    """Return when a job that waits after this report is due (ms since the epoch).

    Args:
        saves: of a suspended job: the number of saves that the store knows.
    """
    if report.saves is not None and saves > report.saves:
        return now
    return now + report.delay if report.until is None else report.until


def kept_error(report: Report) -> ErrorRecord | None:
    """Return the error that the job keeps from this report; the reason of an interruption is not an error."""
    return None if interruption_of(report) is not None else report.error


def ran_again(report: Report, started: int | None) -> bool:
    """Return whether the report is of a later run than the one that began at `started`, whose end was never reported.

    The broker redelivered the message to another worker: the first one stopped, was killed, or lost its connection.

    Args:
        started: start of the dispatch's run that the store knows of, ms since the epoch; None: it knows of none.
    """
    return report.started is not None and started is not None and report.started > started


def restart_note(report: Report) -> str:
    """Return the note of the event that a run had no end and the job ran again."""
    return f"no end of this run was reported; the job ran again at {report.worker or 'another worker'}"


def with_readable_result(report: Report) -> Report:
    """Return the report; a success whose result is neither JSON nor MessagePack becomes a failure.

    Otherwise the job would keep a result that no page can show. A success may have no result: its task returned
    nothing, or keeps no results.
    """
    if report.kind != "succeeded" or not report.result:
        return report
    try:
        (_any_msgpack if report.content_type == MSGPACK else _any_json).decode(report.result)
    except _UNREADABLE as error:
        why = f"its worker reported a result that is not {report.content_type or 'JSON'}: {error}"
        failure = ErrorRecord(type_name="EncodeError", message=why, traceback="")
        return msgspec.structs.replace(report, kind="failed", content_type="", result=b"", error=failure)
    return report


_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Parcel(msgspec.Struct):
    """The body of a message with several invitations."""

    jobs: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Report])
_decoder_of_one = msgspec.json.Decoder(Report)
_parts = msgspec.json.Decoder(list[msgspec.Raw])
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_parcels = msgspec.json.Decoder(_Parcel)
_any_json = msgspec.json.Decoder()
_any_msgpack = msgspec.msgpack.Decoder()


def encode_reports(reports: Iterable[Report]) -> Iterator[bytes]:
    """Yield the bodies of messages with these reports, in order.

    Raises:
        EncodeError: a text cannot be encoded as UTF-8.
    """
    reports = list(reports)
    if not reports:
        return
    try:
        body = _encoder.encode(reports)
    except UnicodeEncodeError:
        # It does not name the report: encoding them one by one does.
        pass
    else:
        if len(body) <= LONGEST:
            yield body
            return
    parts: list[bytes] = []
    # Each part is followed by a comma or by the closing bracket.
    size = 1
    for report in reports:
        try:
            part = _encoder.encode(report)
        except UnicodeEncodeError as error:
            raise EncodeError(f"the report of job {report.id} cannot be encoded: {error}") from error
        if parts and size + len(part) + 1 > LONGEST:
            yield b"[%s]" % b",".join(parts)
            parts, size = [], 1
        parts.append(part)
        size += len(part) + 1
    yield b"[%s]" % b",".join(parts)


def decode_reports(body: bytes) -> list[Report]:
    """Decode the reports in one message.

    Raises:
        MalformedMessage: it has none.
    """
    try:
        return [_within_time(report) for report in _decoder.decode(body)]
    except _UNREADABLE as error:
        raise MalformedMessage(f"cannot decode the reports: {type(error).__name__}: {error}") from error


def read_reports(body: bytes) -> tuple[list[Report], list[UnreadReport]]:
    """Decode the reports in one message, and list the items that cannot be decoded. A message may hold several jobs.

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
                unread.append(UnreadReport(bytes(part), f"it is not a report: {type(error).__name__}: {error}"))
        if not reports:
            raise
        return reports, unread


def _within_time(report: Report) -> Report:
    return report if report.delay <= LONGEST_DELAY else msgspec.structs.replace(report, delay=LONGEST_DELAY)


def invite(body: bytes, *, attempt: int, invitation: Invitation, saved: SavedValues | None = None) -> bytes:
    """Return the body of the message of one dispatch.

    Args:
        body: an envelope in JSON without `attempt` and `store`, as the store keeps it.
        attempt: its number, from 1.
        saved: what earlier runs of the job saved.
    """
    if saved is not None:
        if (new := saved.values.get(ARGUMENTS)) is not None:
            body = _replace_arguments(body, decode_arguments(new.value))
        values = [(name, each) for name, each in saved.values.items() if name != ARGUMENTS]
        invitation = msgspec.structs.replace(
            invitation,
            saves=saved.version,
            saved={name: msgspec.Raw(each.value) for name, each in values if not each.is_reference} or None,
            kept={name: msgspec.Raw(each.value) for name, each in values if each.is_reference} or None,
        )
    # The stored body is a whole object that has a task, so two more fields fit before its end.
    return b'%s,"attempt":%d,"store":%s}' % (body[:-1], attempt, _encoder.encode(invitation))


def _replace_arguments(body: bytes, new: NewArguments) -> bytes:
    fields = {name: value for name, value in _objects.decode(body).items() if name not in ("blob", "parts")}
    return _encoder.encode(fields | {"args": new.args, "kwargs": new.kwargs})


def encode_parcel(invitations: Iterable[bytes]) -> bytes:
    """Return the body of a message with several invitations."""
    return b'{"jobs":[%s]}' % b",".join(invitations)


def decode_parcel(body: bytes) -> list[bytes]:
    """Return the invitations in a message, undecoded; at least one.

    Raises:
        MalformedMessage: the message is no parcel.
    """
    try:
        return [bytes(each) for each in _parcels.decode(body).jobs]
    except _UNREADABLE as error:
        raise MalformedMessage(f"cannot decode the parcel: {type(error).__name__}: {error}") from error
