"""Parts of a job that are only read on request: arguments, result, timeline, progress, options."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from taskmq.api.jobs import JobOptionsView, ProgressView, ResultProblem
from taskmq.api.problems import problem_of
from taskmq.app_api.jobs.views import options_view, progress_view, status_of
from taskmq.app_api.views import instant_text
from taskmq.client.progress import JobProgress
from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobDetail, JobRecord
from taskmq.errors import MalformedMessage, ResultDamaged, ResultExpired, UnsupportedFeature
from taskmq.model.envelope import decode_envelope
from taskmq.model.retry import RunOptions
from taskmq.model.states import JobState
from taskmq.operations.tenant_jobs import TenantJobs


async def expand_job(
    jobs: TenantJobs, record: JobRecord, wanted: Collection[str], *, can_say: bool = True
) -> dict[str, Any]:
    """Read the requested parts of a job: logs, retries, payload, result, progress, options. A sent job also has its
    refusals.

    Args:
        can_say: whether the response can contain a problem with the result; otherwise it is raised.
    """
    found: dict[str, Any] = {}
    if record.via == "broker":
        found["refusals"] = await jobs.refusals(record)
    if {"logs", "retries"} & {*wanted}:
        # The last one is in the record.
        attempts = [one for one in await jobs.attempts(record.id) if one.attempt < record.attempt]
        if "retries" in wanted:
            found["retries"] = _retries_of(record, attempts)
        if "logs" in wanted:
            found["logs"] = _log_of(record, list(await jobs.history(record.id)), attempts)
    if "payload" in wanted:
        found |= _payload_of(record)
    if "result" in wanted:
        found |= await _result_of(jobs, record, can_say=can_say)
    if "progress" in wanted:
        found["progress"] = progress_of_job(record, await jobs.progress([record]))
    if "options" in wanted:
        found["options"] = _options_of(record)
    return found


def progress_of_job(record: JobRecord, progress: Mapping[str, JobProgress]) -> ProgressView | None:
    """Return the progress of the job by its id in the store; None if it is unknown."""
    found = progress.get(record.id)
    return None if found is None else progress_view(found)


async def _result_of(jobs: TenantJobs, record: JobRecord, *, can_say: bool) -> dict[str, Any]:
    """Return the task's return value, or why it is unavailable, so that the job can still be shown."""
    if record.state is not JobState.SUCCEEDED:
        return {"result": None, "result_problem": None}
    try:
        return {"result": await jobs.value_of(record), "result_problem": None}
    except (ResultExpired, ResultDamaged, UnsupportedFeature) as error:
        if not can_say:
            raise
        problem = problem_of(error)
        return {"result": None, "result_problem": ResultProblem(code=problem.code, detail=problem.detail)}


def _payload_of(record: JobRecord) -> dict[str, Any]:
    """Return the arguments of a job: `payload` has the keyword, `args` the positional ones.

    Large arguments that are stored separately are not loaded; then both are None.
    """
    try:
        envelope = decode_envelope(record.body)
    except MalformedMessage:
        return {"payload": None, "args": None}
    if envelope.has_references:
        return {"payload": None, "args": None}
    return {"payload": _plain(envelope.kwargs, {}), "args": _plain(envelope.args, [])}


def _options_of(record: JobRecord) -> JobOptionsView:
    try:
        run = record.run
    except MalformedMessage:
        run = RunOptions()
    return options_view(run, record.detail or JobDetail())


def _log_of(record: JobRecord, history: list[HistoryEntry], attempts: list[AttemptRecord]) -> list[dict[str, Any]]:
    """Return the timeline of a job, oldest first: `log_time`, `log_level`, `log_message`."""
    lines = [(record.submitted, "INFO", "submitted")]
    lines += [(one.at, "INFO", ": ".join(filter(None, (one.kind, one.note)))) for one in history]
    lines += [
        (one.ended, "ERROR", f"attempt {one.attempt} failed: {one.error.type_name}: {one.error.message}")
        for one in attempts
        if one.error is not None and one.ended is not None
    ]
    starts = {one.attempt: (one.started, one.worker) for one in attempts}
    # A job that waits for its next attempt, or ended meanwhile, shows the start of the last one.
    if starts.get(record.attempt - 1, (None, ""))[0] != record.started:
        starts[record.attempt] = (record.started, record.worker)
    lines += [
        (started, "INFO", f"attempt {number} started at {worker or 'a worker'}")
        for number, (started, worker) in starts.items()
        if started is not None
    ]
    if record.finished is not None:
        lines.append((record.finished, "INFO" if record.failure is None else "ERROR", str(record.state)))
    lines.sort(key=lambda line: line[0])
    return [
        {"log_time": instant_text(at), "log_level": level, "log_message": message} for at, level, message in lines
    ]


def _retries_of(record: JobRecord, attempts: list[AttemptRecord]) -> list[dict[str, Any]]:
    """List the attempts after the first, with the API's original names: `retry_time` (the start or due time) and
    `status`.

    The status is queued, in_progress, completed, failed or cancelled.
    """
    by_number = {one.attempt: one for one in attempts}
    found: list[dict[str, Any]] = []
    for one in attempts:
        retry = by_number.get(one.attempt + 1)
        if retry is not None:
            found.append({"retry_time": instant_text(retry.started), "status": "failed"})
        else:
            has_begun = record.started != one.started and record.started is not None
            at = record.started if has_begun else record.due
            status = "in_progress" if record.state is JobState.RUNNING else status_of(record.state)
            found.append({"retry_time": instant_text(at), "status": status})
    return found


def _plain(value: Any, default: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) and bytes(value) else (value or default)
