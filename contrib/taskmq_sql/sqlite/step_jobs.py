"""Submission and cancellation of jobs within the transaction of their run."""

from collections.abc import Sequence
from typing import Any, Final, cast
from uuid import UUID

from taskmq.contracts.jobs import cancellation
from taskmq.model.states import UNDERWAY
from taskmq_sql.sqlite.file.sets import run_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import STATES, id_bytes, id_text
from taskmq_sql.sqlite.jobs.live_jobs import load
from taskmq_sql.sqlite.jobs.submissions import occur
from taskmq_sql.sqlite.jobs.updates import update
from taskmq_sql.sqlite.runner import Answers
from taskmq_sql.steps import CANCEL, SUBMIT, Row, StepJobs

__all__ = ["ANSWERS"]

_BELONG: Final = """
    UPDATE job SET run = v.column2, step = v.column3, child = v.column4
    FROM (VALUES @rows) AS v WHERE job.id = v.column1
"""


def _submit(transaction: Transaction, args: Sequence[Any]) -> Sequence[Row]:
    given = cast("StepJobs", args)
    answers = occur(transaction, [job for job, *_ in given])
    rows = [
        (id_bytes(job.id), id_bytes(run), step, child)
        for (job, run, step, child), answer in zip(given, answers, strict=True)
        if answer.is_new
    ]
    run_each(transaction.connection, _BELONG, rows)
    return [(answer,) for answer in answers]


def _cancel(transaction: Transaction, args: Sequence[Any]) -> Sequence[Row]:
    reason, *ids = args
    asked: list[Row] = []
    for job in load(transaction, [UUID(each).bytes for each in ids]).values():
        state, job_id = STATES[job.state], id_text(job.id)
        if job.cancel_requested is not None:
            continue
        update(transaction, cancellation(job_id, state, job.version, reason=reason))
        if state in UNDERWAY:
            asked.append((job_id,))
    return asked


ANSWERS: Final[Answers] = {SUBMIT: _submit, CANCEL: _cancel}
"""Answers to the queries of a run about its jobs."""
