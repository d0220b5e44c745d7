"""Every order of the same reports leads to the same record, however often each arrives."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from taskmq.errors import MalformedMessage
from taskmq.model.envelope import Envelope, new_job_id, submitted_at
from taskmq.model.history.sent_runs import (
    MOST_EARLIER,
    RecordedJob,
    RecordedRun,
    RunReport,
    SentJobFacts,
    add_run,
    decode_runs,
    encode_runs,
    facts_of,
    first_record,
    record_id,
)
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState

AT = 1_800_000_000_000
ID = new_job_id(AT, bytes(10))
JOB = SentJobFacts(name=ID, task="mail", queue="mails", sent=AT)

RUNS = st.builds(
    RecordedRun,
    attempt=st.integers(1, 3),
    worker=st.sampled_from(["a", "b"]),
    started=st.integers(AT, AT + 3),
    ended=st.just(AT + 9),
    state=st.just(JobState.RETRYING),
)


def _build_end(**fields: Any) -> RunReport:
    given: dict[str, Any] = {"worker": "w", "started": AT, "ended": AT + 5, "state": JobState.SUCCEEDED, **fields}
    return RunReport(JOB, RecordedRun(**given))


def _record(reports: list[RunReport]) -> RecordedJob:
    record = first_record(reports[0])
    for report in reports[1:]:
        record = add_run(record, report)
    return replace(record, version=0)


@given(st.lists(RUNS, min_size=1, max_size=8), st.data())
def test_every_order_of_reports_leads_to_the_same_record(runs: list[RecordedRun], data: st.DataObject) -> None:
    starts = [replace(run, ended=None, state=JobState.RUNNING) for run in runs]
    reports = [RunReport(JOB, run) for run in (*runs, *starts)]
    shuffled = data.draw(st.permutations(reports))

    record = _record(shuffled + data.draw(st.lists(st.sampled_from(reports))))

    assert record == _record(reports)
    assert [record.last] == sorted(runs, key=lambda run: (run.attempt, run.started, run.worker))[-1:]


def test_a_known_run_changes_nothing() -> None:
    running = RunReport(JOB, RecordedRun(worker="w", started=AT))
    ended = add_run(first_record(running), _build_end())

    assert (ended.version, ended.last.state, ended.earlier) == (2, JobState.SUCCEEDED, ())
    assert add_run(ended, _build_end()) is ended
    assert add_run(ended, running) is ended


def test_a_run_of_another_tenant_does_not_change_the_record() -> None:
    record = first_record(_build_end())

    other = RunReport(replace(JOB, tenant="acme"), RecordedRun(attempt=2, worker="w", started=AT + 9))

    assert add_run(record, other) is record


def test_the_last_runs_of_a_job_are_kept() -> None:
    record = first_record(_build_end())
    for number in range(1, MOST_EARLIER + 5):
        record = add_run(record, _build_end(started=AT + number))

    assert (record.last.started, len(record.earlier)) == (AT + MOST_EARLIER + 4, MOST_EARLIER)
    assert record.earlier[0].started == AT + 4
    # Repeated, it is again one too many.
    assert add_run(record, _build_end()) is record


@pytest.mark.parametrize(
    ("name", "tenant", "key"),
    [("order-7", "", "order-7"), ("@acme:order-7", "acme", "order-7"), (ID.replace("-7", "-4", 1), "", None)],
)
def test_a_chosen_id_is_found_under_an_id_that_sorts_by_time(name: str, tenant: str, key: str | None) -> None:
    job = replace(JOB, name=name, tenant=tenant)
    record = first_record(RunReport(job, RecordedRun(started=AT)))

    assert record.key == (key or name)
    assert (record.id, submitted_at(record.id)) == (record_id(job), AT)
    assert record.id != record_id(replace(job, sent=AT + 1))


def test_a_generated_id_stays_the_id_of_the_record() -> None:
    record = first_record(_build_end())

    assert (record.id, record.key) == (ID, None)


@pytest.mark.parametrize(("name", "enqueued", "sent"), [("x", 5, 5), (ID, None, AT), ("x", None, 7)])
def test_the_time_of_sending_is_in_the_message_or_the_id(name: str, enqueued: int | None, sent: int) -> None:
    facts = facts_of(Envelope(task="mail", enqueued=enqueued), name=name, queue="mails", started=7)

    assert (facts.sent, facts.priority, facts.tenant) == (sent, 4, "")


def test_facts_include_the_priority_and_tenant_of_the_message() -> None:
    facts = facts_of(Envelope(task="mail", tenant="acme", priority=8), name="x", queue="mails", started=7)

    assert (facts.tenant, facts.priority) == ("acme", 8)


def test_runs_are_split_into_messages_of_limited_size() -> None:
    error = ErrorRecord(type_name="ValueError", message="x" * 100_000)
    reports = [_build_end(started=AT + number, error=error) for number in range(5)]

    messages = list(encode_runs(reports))

    assert [count for count, _ in messages] == [2, 2, 1]
    assert [report for _, body in messages for report in decode_runs(body)] == reports
    assert list(encode_runs([])) == []


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"\xff",
        b'{"runs":[{"job":{}}]}',
        b'{"runs":[{"job":{"name":"x","task":"t","queue":"q","sent":1},"run":{"started":1,"state":"held"}}]}',
        b'{"runs":[{"job":{"name":"x","task":"t","queue":"q","sent":-1},"run":{"started":1}}]}',
    ],
)
def test_a_malformed_message_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="cannot decode the runs"):
        decode_runs(body)
