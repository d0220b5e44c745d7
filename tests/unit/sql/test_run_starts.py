"""Statements that start and end runs of workflows."""

import sqlite3
from contextlib import closing
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import pytest

from taskmq.contracts.jobs import NewJob, NewRun, find_no_hold
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name, usage_names
from taskmq.model.jobs.reports import Report
from taskmq.model.runs.graphs import encode_workflow
from taskmq.model.runs.records import RunRecord, StepJob, StepKey, StepRecord
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.validation import validate_workflow
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.runs.inbox import Inbox, LoneRun
from taskmq_sql.runs.known_runs import KnownRuns
from taskmq_sql.runs.quotas import add_usage
from taskmq_sql.runs.starts import start
from taskmq_sql.runs.transitions import Graphs, advance, advance_alone
from taskmq_sql.sqlite.file.names import Names
from taskmq_sql.sqlite.file.schema import JOB_STORE
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.runner import drive
from taskmq_sql.sqlite.step_jobs import ANSWERS
from taskmq_sql.steps import GUARDED, QUEUED, TOGETHER, Query, Steps

T = TypeVar("T")

_END: Final = (
    "insert into run_inbox (run, job, step, child, state) select run, id, step, child, ? from job where id = ?"
)


def _noting(steps: Steps[T], statements: list[str]) -> Steps[T]:
    """Run a call, and note its statements; those of one round trip are one text."""
    try:
        query = next(steps)
        while True:
            parts = cast("tuple[Query, ...]", query.args) if query.text == TOGETHER else (query,)
            statements.append(";".join(each.text for each in parts))
            query = steps.send((yield query))
    except StopIteration as end:
        result: T = end.value
        return result


def _count_statements(count: int) -> int:
    """Start runs of one content; return the number of statements."""
    content, _ = validate_workflow({"steps": {"s": {"task": "t"}}})
    assert content is not None
    text = encode_workflow(content)[1]
    statements: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        JOB_STORE.create(connection)
        runs = [NewRun(id=str(UUID(int=number)), content=text) for number in range(1, count + 1)]
        started = drive(Transaction(connection, Names(), 7), _noting(start(runs), statements))
        assert connection.execute("select count(*) from run").fetchone() == (count,)
    assert all(each.is_new for each in started)
    return len(statements)


def test_any_number_of_runs_of_one_content_starts_with_the_same_statements() -> None:
    assert _count_statements(300) == _count_statements(1)


def _make_no_job(*_: object) -> NewJob:
    pytest.fail("the run has no job")


def _run_to_end(after_start: str = "", **fields: Any) -> tuple[list[str], list[str]]:
    """Run a workflow to its end; return the statements of the start, and those of the rest.

    Args:
        after_start: a statement that follows the start.
    """
    content, _ = validate_workflow({"steps": {"s": {"value": 1}}, **fields})
    assert content is not None
    new = NewRun(id=str(UUID(int=1)), content=encode_workflow(content)[1])
    starting: list[str] = []
    ending: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        JOB_STORE.create(connection)
        transaction = Transaction(connection, Names(), 7)
        drive(transaction, _noting(start([new]), starting))
        connection.execute(after_start)
        while connection.execute("select 1 from run_inbox").fetchone():
            drive(transaction, _noting(advance([new.id], _make_no_job, {}, Quotas()), ending))
        assert connection.execute("select ended from run").fetchone() == (7,)
    return starting, ending


def test_runs_without_a_limit_run_no_statement_about_places() -> None:
    starting, ending = _run_to_end()
    limited_start, limited_end = _run_to_end(max_active_runs=1)

    assert not [each for each in starting + ending if "run_place" in each]
    assert [each for each in limited_start if "run_place" in each]
    assert [each for each in limited_end if "run_place" in each]
    assert len(limited_start) == len(starting)


def test_a_run_that_older_code_started_without_a_place_gets_one() -> None:
    assert _run_to_end("delete from run_place", max_active_runs=1) == _run_to_end(max_active_runs=1)


def _start_step(quotas: Quotas) -> list[str]:
    """Start the job of a step; return the statements of the transition."""
    content, _ = validate_workflow({"steps": {"s": {"task": "t"}}})
    assert content is not None
    new = NewRun(id=str(UUID(int=1)), content=encode_workflow(content)[1], tenant="acme")
    statements: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        JOB_STORE.create(connection)
        transaction = Transaction(connection, Names(), 7)
        drive(transaction, start([new]))
        drive(transaction, add_usage(usage_names(quotas, [("acme", "")])))
        drive(transaction, _noting(advance([new.id], _make_job, {}, quotas), statements), ANSWERS)
        assert connection.execute("select count(*) from job").fetchone() == (1,)
    return statements


def _make_job(run: RunRecord, job: StepJob) -> NewJob:
    return NewJob(id=job.id, tenant=run.tenant, task=job.task, queue="q", body=b"")


def test_the_job_of_a_step_without_a_quota_runs_no_statement_about_quotas() -> None:
    plain = _start_step(Quotas())

    assert not [each for each in plain if "quota" in each or each == QUEUED]
    assert _start_step(_quotas_of(Quota(tenant="other", queued=1))) == plain
    assert len(_start_step(_quotas_of(Quota(tenant="acme", a_day=1)))) == len(plain) + 1
    assert len(_start_step(_quotas_of(Quota(tenant="acme", queued=1)))) == len(plain) + 2


def _quotas_of(quota: Quota) -> Quotas:
    return Quotas(version=1, quotas={usage_name(quota.tenant, quota.user): quota})


def test_the_end_of_a_lone_step_takes_one_read_and_one_change() -> None:
    statements = _end_first_step({"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}})

    assert len(statements) == 2
    assert statements[1] == GUARDED


def test_a_step_that_this_process_started_and_that_succeeds_takes_one_change() -> None:
    steps = {"a": {"task": "t"}, "b": {"task": "t", "args": ["${steps.a.result}"]}}

    assert _end_first_step(steps, KnownRuns()) == [GUARDED]
    assert len(_end_first_step({**steps, "c": {"task": "t"}}, KnownRuns())) == 2


def _end_first_step(steps: dict[str, Any], known: KnownRuns | None = None) -> list[str]:
    """Start a run, and end its first step; return the statements that follow."""
    content, _ = validate_workflow({"steps": steps})
    assert content is not None
    new = NewRun(id=str(UUID(int=1)), content=encode_workflow(content)[1])
    statements: list[str] = []
    graphs: Graphs = {}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        JOB_STORE.create(connection)
        transaction = Transaction(connection, Names(), 7)
        drive(transaction, start([new]))
        drive(transaction, advance_alone(new.id, _make_job, find_no_hold, graphs, known), ANSWERS)
        ((job,),) = connection.execute("select id from job where step = 'a'")
        connection.execute(_END, (CODES[JobState.SUCCEEDED], job))
        if known is not None:
            known.note_end(new.id, Report(id=str(UUID(bytes=job)), token=1, kind="succeeded"))
        drive(
            transaction, _noting(advance_alone(new.id, _make_job, find_no_hold, graphs, known), statements), ANSWERS
        )
        assert connection.execute("select count(*) from run_inbox").fetchone() == (0,)
        assert connection.execute("select count(*) from job where step = 'b'").fetchone() == (1,)
    return statements


def test_only_the_last_runs_are_known() -> None:
    known = KnownRuns()
    step = StepRecord(key=StepKey("s"), state=StepState.RUNNING, job="j")
    for number in range(1_001):
        known.keep(str(number), LoneRun(7, "1", b"{}", Inbox()), [step])
        known.note_end(str(number), Report(id="j", token=1, kind="succeeded"))

    assert known.take("0") is None
    assert known.take("1") is not None
    assert known.take("1") is None


def test_only_the_success_of_the_expected_job_needs_no_read() -> None:
    known = KnownRuns()
    run, step = LoneRun(7, "1", b"{}", Inbox()), StepRecord(key=StepKey("s"), state=StepState.RUNNING, job="j")
    for report in (
        None,
        Report(id="j", token=1, kind="failed"),
        Report(id="other", token=1, kind="succeeded"),
        Report(id="j", token=1, kind="succeeded", result=b"1" * 20_000),
    ):
        known.keep("r", run, [step])
        if report is not None:
            known.note_end("r", report)
        assert known.take("r") is None
    known.keep("r", run, [step])
    known.forget()
    known.note_end("r", Report(id="j", token=1, kind="succeeded"))
    assert known.take("r") is None
