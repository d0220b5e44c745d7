"""`taskmq job`."""

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
from cyclopts import Parameter

from taskmq.cli.actor import change_with_app, name_caller, of_tenant
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.jobs.logs import logs
from taskmq.cli.jobs.stored_jobs import COMMANDS, done_text
from taskmq.cli.noun import Noun
from taskmq.cli.operators.workers import seconds_of
from taskmq.cli.output import note, print_record, print_rows, when
from taskmq.cli.server_link import Api, ask, show_record, text_of_instant
from taskmq.cli.typed_values import instant_of
from taskmq.errors import JobConflict, JobNotFound, UnsupportedFeature
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import duration_text

if TYPE_CHECKING:
    from taskmq.api.jobs import JobDetails, JobOptionsView, ProgressView
    from taskmq.cli.operator import OperatorApi
    from taskmq.client.delayed import WaitingJob
    from taskmq.client.progress import JobProgress
    from taskmq.operations.jobs import JobLetter, JobReport

app = Noun(
    name="job",
    help="Show, cancel and reschedule jobs; submit, list, change, hold, release and retry jobs of the store.",
)
app.command(logs)
for _name, _command in COMMANDS.items():
    app.command(_command, name=_name)

_CANCELLED: Final = {
    Cancellation.CANCELLED: "cancelled; it was waiting and will not run",
    Cancellation.REQUESTED: "cancellation requested; a worker stops it, or ends it on delivery",
    Cancellation.ENDED: "has already ended",
    Cancellation.UNKNOWN: "unknown to the state; cancellation requested in case it waits at the broker or runs",
}
_ENDED: Final = "ended; its outcome is no longer stored"
_VALUE_SECONDS: Final = 5.0
_COLUMNS: Final = ("job", "task", "queue", "due", "enqueued")


@app.command
@of_tenant
def show(
    job: str,
    /,
    *,
    values: Annotated[bool, Parameter(negative="")] = False,
    depth: int | None = None,
    within: str = "1s",
) -> int:
    """Show what the store, or the state, the dead letters and the workers know about a job.

    Exits with 3 if none of them knows it. A job that waits at the broker is not found: a broker cannot look up a
    single message.

    Args:
        job: The job's id.
        values: Include arguments, result and traceback, which may contain secrets.
        depth: Search only this many dead letters of each queue, oldest first. Default: all.
        within: How long to wait for workers to answer.
    """
    expand = ["progress", "options", *(["payload", "result"] if values else [])]

    async def run(api: Api) -> "JobDetails | tuple[JobReport, str, Any]":
        try:
            return await api.jobs.get(job, expand=expand)
        except (JobNotFound, UnsupportedFeature):
            if current_globals().server is not None:
                raise
        here = cast("OperatorApi", api)
        report = await here.report(job, within=seconds_of(within), depth=depth)
        if not report.is_known:
            return report, await here.locate_missing_job(job), None
        has_value = values and report.has_value
        return report, "", await here.result(job, within=_VALUE_SECONDS) if has_value else None

    found = ask(run)
    if not isinstance(found, tuple):
        show_record(found, partial(_stored_record, job, found, values=values))
        return OK
    report, hint, value = found
    if not report.is_known:
        note(
            f"job {job} not found in the state, in the dead letters, or in a worker that answered. It "
            "may wait at the broker, have ended and been forgotten, or never have been sent"
            + (f"; {hint}" if hint else "")
        )
        return NOT_FOUND
    record = _report_record(report)
    if values:
        record |= {"body": None if report.body is None else report.body.decode(errors="replace")}
        record |= {"result": value if report.has_value else None, "traceback": report.traceback}
    if current_globals().output == "table":
        record = {name: value for name, value in record.items() if value not in (None, "", [])}
        record["letters"] = "\n".join(_letter_text(one) for one in report.letters) or "none"
    print_record(record)
    return OK


@app.command
def waiting(*, task: str | None = None, queue: str | None = None, limit: int = 50) -> None:
    """List the jobs that wait for their time in the state (TaskMQ(delay="state")), earliest first.

    Args:
        task: Only jobs of this task.
        queue: Only jobs of this queue.
        limit: Maximum number of jobs.
    """
    jobs = run_with_app(lambda target: target.jobs.alist_waiting(limit=limit, task=task, queue=queue))
    print_rows(_COLUMNS, [_row(job) for job in jobs])


@app.command
@name_caller
@of_tenant
def cancel(job: str, /, *, reason: str = "cancelled by an operator", remember: str = "7d") -> int:
    """Cancel a waiting or running job. Callers that wait for its result get the cancellation.

    Exits with 3 if the job has already ended, or is unknown to the state.

    Args:
        job: The job's id.
        reason: Reason passed to those callers.
        remember: How long workers remember to end the job on delivery, such as 7d.
    """

    async def run(api: Api) -> Cancellation:
        try:
            after = await api.jobs.cancel(job, note=reason)
        except JobConflict as error:
            if not error.state or not JobState(error.state).is_final:
                raise
            return Cancellation.ENDED
        except (JobNotFound, UnsupportedFeature):
            if current_globals().server is not None:
                raise
            return await cast("OperatorApi", api).cancel_sent(job, reason, remember=remember)
        return Cancellation.CANCELLED if after.state.is_final else Cancellation.REQUESTED

    cancellation = ask(run)
    note(f"job {job} {_CANCELLED[cancellation]}")
    return OK if cancellation else NOT_FOUND


@app.command
@name_caller
def reschedule(
    job: str,
    /,
    *,
    delay: str | None = None,
    eta: Annotated[str | None, Parameter(help="Run at this instant, such as 2027-01-31T09:00+01:00.")] = None,
) -> int:
    """Change the time of a job that waits in the state.

    Args:
        job: The job's id.
        delay: Run this long from now, such as 5m.
    """
    instant = None if eta is None else instant_of("--eta", eta)
    is_done = change_with_app(
        lambda target: target.job(job).areschedule(delay=delay, eta=instant),
        "job.reschedule",
        [job],
        after={"delay": delay, "eta": eta},
    )
    return _outcome(job, "rescheduled", is_done=is_done)


def _report_record(report: "JobReport") -> dict[str, Any]:
    progress = report.progress
    return {
        "job": report.id,
        "task": report.task,
        "state": _ENDED if report.state is None else report.state,
        "queue": report.queue,
        "workflow": report.workflow,
        "attempt": report.attempt,
        "enqueued": when(_milliseconds(report.enqueued)),
        "due": when(_milliseconds(report.due)),
        "started": when(_milliseconds(report.started)),
        "finished": when(_milliseconds(report.finished)),
        "worker": report.worker,
        "running_for": None if report.running_for is None else round(report.running_for, 1),
        "error": ": ".join(part for part in (report.error_type, report.error) if part) or None,
        "cancelled": report.cancelled,
        "progress": None if progress is None else _progress_text(progress, progress.updated.isoformat()),
        "letters": [
            {"queue": one.queue, "reason": one.letter.reason, "died": when(one.letter.died)} for one in report.letters
        ],
    }


def _stored_record(name: str, job: "JobDetails", *, values: bool) -> dict[str, Any]:
    facts = {
        "job": name,
        "task": job.task,
        "state": job.state,
        "queue": job.queue,
        "attempt": job.attempt,
        "enqueued": text_of_instant(job.submitted_at),
        "due": text_of_instant(job.due_at),
        "first_due": text_of_instant(job.schedule_time) if job.schedule_time != job.due_at else None,
        "started": text_of_instant(job.start_time),
        "finished": text_of_instant(job.end_time),
        "worker": job.worker,
        "error": "" if job.error is None else ": ".join(filter(None, (job.error.type, job.error.message))),
        "reason": "" if job.error else job.summary,
        "cancelled": job.cancel_requested,
        "retry_of": job.retry_of,
        "retried_as": job.retried_as,
        "progress": None if job.progress is None else _progress_text(job.progress, job.progress.updated_at),
        "depends_on": "\n".join(f"{each.id} to be {each.condition}" for each in job.depends_on),
        **({} if job.options is None else _own_options(job.options)),
    }
    if values:
        called = msgspec.json.encode({"args": job.args, "kwargs": job.payload}).decode()
        traceback = None if job.error is None else job.error.traceback
        problem = None if job.result_problem is None else job.result_problem.detail
        facts |= {"body": called, "result": job.result, "result_problem": problem, "traceback": traceback}
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _own_options(options: "JobOptionsView") -> dict[str, str]:
    given: dict[str, Any] = msgspec.to_builtins(options)
    seconds = given.pop("timeout", None)
    texts = {name: one if isinstance(one, str) else msgspec.json.encode(one).decode() for name, one in given.items()}
    return texts if seconds is None else {"timeout": duration_text(seconds), **texts}


def _progress_text(progress: "JobProgress | ProgressView", updated: str | None) -> str:
    note = f": {progress.note}" if progress.note else ""
    said = f"(attempt {progress.attempt}, {text_of_instant(updated)})"
    return f"{done_text(progress.done, progress.total)}{note} {said}"


def _letter_text(one: "JobLetter") -> str:
    return f"  {one.queue}: {one.letter.reason}, {when(one.letter.died) or 'at an unknown time'}"


def _outcome(job: str, done: str, *, is_done: bool) -> int:
    if is_done:
        note(f"job {job} {done}")
        return OK
    note(f"job {job} is not waiting in the state: it may be in flight, have ended, or wait at the broker")
    return NOT_FOUND


def _row(job: "WaitingJob") -> dict[str, Any]:
    return {
        "job": job.id,
        "task": job.task,
        "queue": job.queue,
        "due": when(_milliseconds(job.due)),
        "enqueued": when(_milliseconds(job.enqueued)),
    }


def _milliseconds(instant: datetime | None) -> int | None:
    return None if instant is None else round(instant.timestamp() * 1000)
