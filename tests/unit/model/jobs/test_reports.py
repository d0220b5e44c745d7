import contextlib
import itertools
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import EncodeError, MalformedMessage
from taskmq.model.envelope import JSON, MSGPACK, Envelope, Invitation, decode_envelope, encode_envelope
from taskmq.model.history.journals import SavedContent, SavedValues
from taskmq.model.history.suspensions import NewArguments
from taskmq.model.jobs.reports import (
    INTERRUPTED,
    LONGEST,
    LONGEST_DELAY,
    PREEMPTED,
    Interruption,
    Report,
    ReportKind,
    ReturnEvent,
    after_report,
    decode_parcel,
    decode_reports,
    encode_parcel,
    encode_reports,
    event_of,
    goes_on,
    interruption_of,
    invite,
    is_unseen_end,
    kept_error,
    next_due,
    ran_again,
    read_reports,
    restart_note,
    with_readable_result,
)
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import TERMINAL, UNDERWAY, JobState, can_follow
from taskmq.model.units import LAST_INSTANT

_KINDS: tuple[ReportKind, ...] = get_args(ReportKind)

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_instants = st.integers(0, LAST_INSTANT)
_errors = st.builds(ErrorRecord, type_name=_texts, message=_texts, traceback=_texts)
_reports = st.builds(
    Report,
    id=_texts,
    token=st.integers(0, 2**53 - 1),
    kind=st.sampled_from(_KINDS),
    attempt=st.integers(1, 2**31 - 1),
    worker=_texts,
    started=st.none() | _instants,
    ran=_instants,
    delay=st.integers(0, LONGEST_DELAY),
    limited=st.booleans(),
    content_type=_texts,
    result=st.binary(max_size=50),
    error=st.none() | _errors,
)


def _report(**fields: Any) -> Report:
    given: dict[str, Any] = {"id": "1", "token": 7, "kind": "succeeded", **fields}
    return Report(**given)


@given(st.lists(_reports, max_size=20))
def test_reports_are_read_as_they_were_written(reports: list[Report]) -> None:
    messages = [*encode_reports(reports)]

    assert [report for body in messages for report in decode_reports(body)] == reports
    assert all(len(body) <= LONGEST for body in messages)


@given(st.lists(st.integers(1, LONGEST), max_size=12))
def test_messages_are_full_and_within_the_limit(sizes: list[int]) -> None:
    reports = [_report(worker="w" * size) for size in sizes]

    messages = [*encode_reports(reports)]

    assert [report for body in messages for report in decode_reports(body)] == reports
    for body, after in itertools.pairwise(messages):
        assert len(body) <= LONGEST or len(decode_reports(body)) == 1
        (first, *_) = decode_reports(after)
        assert len(body) + 1 + len(msgspec.json.encode(first)) > LONGEST


def test_a_message_is_filled_to_the_last_byte() -> None:
    frame = len(msgspec.json.encode([_report(), _report()]))
    fits = [_report(), _report(worker="w" * (LONGEST - frame - len(',"worker":""')))]
    one_more = [_report(), _report(worker="w" * (LONGEST - frame - len(',"worker":""') + 1))]

    assert [len(body) for body in encode_reports(fits)] == [LONGEST]
    assert len([*encode_reports(one_more)]) == 2


def test_an_oversized_report_has_its_own_message() -> None:
    large = _report(result=b"x" * 2 * LONGEST)

    messages = [*encode_reports([_report(), large, _report()])]

    assert [decode_reports(body) for body in messages] == [[_report()], [large], [_report()]]


def test_no_reports_make_no_message() -> None:
    assert [*encode_reports([])] == []
    assert decode_reports(b"[]") == []


def test_a_report_on_the_wire_matches_its_documentation() -> None:
    report = _report(attempt=2, started=5, ran=3, result=b"1", content_type="application/json", worker="w")

    (body,) = encode_reports([report, _report(kind="started")])

    assert json.loads(body) == [
        {
            "id": "1",
            "token": 7,
            "kind": "succeeded",
            "attempt": 2,
            "worker": "w",
            "started": 5,
            "ran": 3,
            "content_type": "application/json",
            "result": "MQ==",
        },
        {"id": "1", "token": 7, "kind": "started"},
    ]


def test_additional_fields_of_later_versions_are_ignored() -> None:
    assert decode_reports(b'[{"id":"1","token":7,"kind":"succeeded","mood":"good"}]') == [_report()]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b"[{}]",
        b"\xff",
        b'["\xff"]',
        b"[" * 100_000,
        b'[{"id":"1","token":7}]',
        b'[{"id":"1","kind":"succeeded"}]',
        b'[{"token":7,"kind":"succeeded"}]',
        b'[{"id":1,"token":7,"kind":"succeeded"}]',
        b'[{"id":"1","token":"7","kind":"succeeded"}]',
        b'[{"id":"1","token":-1,"kind":"succeeded"}]',
        b'[{"id":"1","token":9007199254740992,"kind":"succeeded"}]',
        b'[{"id":"1","token":7,"kind":"slept"}]',
        b'[{"id":"1","token":7,"kind":"succeeded","attempt":0}]',
        b'[{"id":"1","token":7,"kind":"succeeded","attempt":2147483648}]',
        b'[{"id":"1","token":7,"kind":"succeeded","started":-1}]',
        b'[{"id":"1","token":7,"kind":"retry","delay":-1}]',
        b'[{"id":"1","token":7,"kind":"retry","delay":1e300}]',
        b'[{"id":"1","token":7,"kind":"succeeded","result":"no base64"}]',
        b'[{"id":"1","token":7,"kind":"failed","error":{"message":"m"}}]',
        b'[{"id":"1","token":7,"kind":"succeeded"}] []',
    ],
)
def test_anything_but_a_list_of_reports_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="cannot decode the reports"):
        decode_reports(body)


def test_an_unreadable_report_does_not_affect_the_others() -> None:
    good = next(encode_reports([_report()])).strip(b"[]")
    bad = b'{"id":"1","token":7,"kind":"slept"}'

    reports, unread = read_reports(b"[%s,%s,%s]" % (good, bad, good))

    assert reports == [_report(), _report()]
    assert [one.body for one in unread] == [bad]
    assert "slept" in unread[0].reason
    assert read_reports(b"[%s]" % good) == ([_report()], [])
    for body in (b"[%s]" % bad, b"{}", b"["):
        with pytest.raises(MalformedMessage, match="cannot decode the reports"):
            read_reports(body)


def test_an_overlong_delay_counts_as_the_longest() -> None:
    (body,) = encode_reports([_report(kind="snoozed", delay=2**60)])

    assert decode_reports(body) == [_report(kind="snoozed", delay=LONGEST_DELAY)]


@given(st.binary())
def test_any_bytes_are_reports_or_a_typed_error(body: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        assert all(isinstance(report, Report) for report in decode_reports(body))


def test_an_unencodable_text_is_a_typed_error_and_earlier_reports_are_kept() -> None:
    messages = encode_reports([_report(result=b"x" * LONGEST), _report(id="2"), _report(id="3", worker="\ud800")])

    assert next(messages)
    with pytest.raises(EncodeError, match="the report of job 3 cannot be encoded"):
        next(messages)


@pytest.mark.parametrize("kind", _KINDS)
def test_every_report_is_a_transition_of_the_table(kind: ReportKind) -> None:
    for asked in (False, True):
        after = after_report(kind, cancel_requested=asked)
        for before in UNDERWAY:
            assert can_follow(before, after) or (before is after and goes_on(kind))


@pytest.mark.parametrize("kind", _KINDS)
def test_a_cancel_request_only_ends_jobs_that_would_run_again(kind: ReportKind) -> None:
    plain, asked = (after_report(kind, cancel_requested=asked) for asked in (False, True))

    if plain in TERMINAL or plain is JobState.RUNNING:
        assert asked is plain
    else:
        assert asked is JobState.CANCELLED


@given(
    st.builds(
        Envelope,
        id=_texts,
        task=st.just("mail.send"),
        args=st.lists(_texts | st.integers(0, 2**31)).map(lambda args: msgspec.Raw(msgspec.json.encode(args))),
        tenant=st.none() | _texts,
        meta=st.none() | st.dictionaries(_texts, _texts, max_size=3),
    ),
    st.integers(1, 2**31 - 1),
    st.integers(0, 2**53 - 1),
)
def test_an_invitation_is_the_stored_body_with_attempt_and_reports_queue(
    envelope: Envelope, attempt: int, token: int
) -> None:
    invitation = Invitation(id="0190", token=token, reports="taskmq.reports.shop.3")

    invited = decode_envelope(invite(encode_envelope(envelope), attempt=attempt, invitation=invitation))

    assert invited == msgspec.structs.replace(envelope, attempt=attempt, store=invitation)


def test_an_invitation_carries_what_earlier_runs_saved() -> None:
    invitation = Invitation(id="0190", token=7, reports="taskmq.reports.shop.3")
    values = {"step a": SavedContent(b"[1]"), "step b": SavedContent(b"{}", is_reference=True)}

    invited = decode_envelope(
        invite(b'{"task":"t"}', attempt=2, invitation=invitation, saved=SavedValues(5, values))
    ).store
    begun = decode_envelope(invite(b'{"task":"t"}', attempt=2, invitation=invitation, saved=SavedValues(0, {}))).store

    assert invited == msgspec.structs.replace(
        invitation, saves=5, saved={"step a": msgspec.Raw(b"[1]")}, kept={"step b": msgspec.Raw(b"{}")}
    )
    assert begun == invitation


def test_an_invitation_has_the_arguments_with_which_its_job_continues() -> None:
    body = encode_envelope(Envelope(task="t", args=msgspec.Raw(b"[1]"), tenant="acme"))
    new = NewArguments(msgspec.Raw(b"[2]"), msgspec.Raw(b'{"a":3}'), [])
    values = {"arguments": SavedContent(msgspec.json.encode(new)), "step a": SavedContent(b"4")}
    invitation = Invitation(id="0190", token=7, reports="taskmq.reports.shop.3")

    invited = decode_envelope(invite(body, attempt=2, invitation=invitation, saved=SavedValues(5, values)))

    assert (bytes(invited.args), bytes(invited.kwargs), invited.tenant) == (b"[2]", b'{"a":3}', "acme")
    assert invited.store == msgspec.structs.replace(invitation, saves=5, saved={"step a": msgspec.Raw(b"4")})


def test_a_refused_and_a_held_job_have_an_event_with_the_reason() -> None:
    error = ErrorRecord(type_name="CallMismatch", message="calls differ", traceback="")

    assert event_of(Report(id="a", token=1, kind="held", error=error)) == ReturnEvent("hold", "calls differ")
    assert event_of(Report(id="a", token=1, kind="refused")) == ReturnEvent("refused", "")
    assert event_of(Report(id="a", token=1, kind="succeeded")) is None


def test_a_job_that_waits_is_due_at_its_instant_or_after_its_delay() -> None:
    report = Report(id="1", token=1, kind="snoozed", delay=5)

    assert next_due(report, now=100) == 105
    assert next_due(msgspec.structs.replace(report, until=200), now=100) == 200
    assert next_due(msgspec.structs.replace(report, until=200, saves=3), now=100, saves=3) == 200
    assert next_due(msgspec.structs.replace(report, until=200, saves=3), now=100, saves=4) == 100


@given(_reports)
def test_only_a_success_with_an_unreadable_result_is_changed(report: Report) -> None:
    read = with_readable_result(report)

    if read == report:
        return
    assert (report.kind, read.kind, read.result, read.content_type) == ("succeeded", "failed", b"", "")
    assert (read.id, read.token, read.proof, read.worker) == (report.id, report.token, report.proof, report.worker)


@pytest.mark.parametrize(
    ("content_type", "result"),
    [
        (JSON, b'{"a": 1}'),
        (JSON, b"null"),
        (MSGPACK, b"\x81\xa1a\x01"),
        ("", b"7"),
        ("", b""),
        (JSON, b""),
        ("taskmq/reference", b'{"content_type": "application/json", "blob": {}}'),
    ],
)
def test_a_readable_result_is_a_success(content_type: str, result: bytes) -> None:
    report = _report(content_type=content_type, result=result)

    assert with_readable_result(report) is report


@pytest.mark.parametrize(
    ("content_type", "result", "said"),
    [
        (JSON, b"{", "not application/json: "),
        (JSON, b'"\xff"', "not application/json: "),
        (JSON, b"[" * 100_000, "not application/json: "),
        (MSGPACK, b"\xc1", "not application/msgpack: "),
        ("text/plain", b"done", "not text/plain: "),
        ("", b"\x00", "not JSON: "),
    ],
)
def test_a_success_with_an_unreadable_result_has_failed(content_type: str, result: bytes, said: str) -> None:
    read = with_readable_result(_report(content_type=content_type, result=result, worker="w"))

    assert (read.kind, read.worker, read.result) == ("failed", "w", b"")
    assert read.error is not None
    assert said in read.error.message
    assert with_readable_result(_report(kind="failed", result=result)).error is None


@pytest.mark.parametrize(
    ("kind", "type_name", "expected"),
    [
        ("interrupted", INTERRUPTED, Interruption("interrupted", "why", is_outage=False)),
        ("interrupted", PREEMPTED, Interruption("preempted", "why", is_outage=False)),
        # A worker in another language may use any name for the error.
        ("interrupted", "", Interruption("preempted", "why", is_outage=False)),
        ("snoozed", INTERRUPTED, Interruption("interrupted", "why", is_outage=True)),
        ("snoozed", "ValueError", None),
        ("failed", INTERRUPTED, None),
    ],
)
def test_an_interrupted_run_has_a_reason_and_no_error(
    kind: ReportKind, type_name: str, expected: Interruption | None
) -> None:
    why = ErrorRecord(type_name=type_name, message="why")
    report = _report(kind=kind, error=why)

    assert interruption_of(report) == expected
    assert kept_error(report) == (why if expected is None else None)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_report_without_an_error_has_no_interruption(kind: ReportKind) -> None:
    assert interruption_of(_report(kind=kind)) is None
    assert kept_error(_report(kind=kind)) is None


@pytest.mark.parametrize("kind", _KINDS)
def test_no_worker_knows_the_end_of_a_job_that_would_run_again(kind: ReportKind) -> None:
    state = after_report(kind, cancel_requested=True)

    assert is_unseen_end(_report(kind=kind), state) is (
        state in TERMINAL and after_report(kind, cancel_requested=False) not in TERMINAL
    )
    assert is_unseen_end(_report(kind=kind, by_scheduler=True), state) is (state in TERMINAL)


def test_a_later_start_with_the_same_token_is_another_run() -> None:
    assert ran_again(_report(started=11), 10)
    for reported, known in ((10, 10), (9, 10), (None, 10), (10, None)):
        assert not ran_again(_report(started=reported), known)
    assert restart_note(_report(worker="w2")).endswith("ran again at w2")
    assert restart_note(_report()).endswith("ran again at another worker")


def test_the_invitations_of_a_parcel_are_read_byte_for_byte() -> None:
    invitations = [b'{"task": "a", "args": [ 1 ]}', b'{"task":"\xc3\xbc"}', b"7"]

    assert decode_parcel(encode_parcel(invitations)) == invitations


@pytest.mark.parametrize("body", [b"", b"[]", b'{"jobs": []}', b'{"jobs": [1,]}', b'{"task": "a"}'])
def test_a_message_without_invitations_is_no_parcel(body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="cannot decode the parcel"):
        decode_parcel(body)
