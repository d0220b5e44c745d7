"""`taskmq job` through a server."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from taskmq.api.job_requests import SubmitBody, UpstreamJob
from taskmq.api.jobs import AttemptView, ChangedJob, HistoryView, JobDetails, JobView, ProgressView, RefusalView
from taskmq.cli.exits import CONFLICT, NOT_FOUND, OK
from taskmq.cli.globals import current_globals, only_here
from taskmq.cli.jobs.job import CANCELLED
from taskmq.cli.jobs.stored_jobs import (
    ACTED_COLUMNS,
    ATTEMPT_COLUMNS,
    HISTORY_COLUMNS,
    LIST_COLUMNS,
    check_ids,
    done_text,
)
from taskmq.cli.output import note, print_rows
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import array_of, instant_of, label_of, node_labels_of, object_of, upstream_from
from taskmq.errors import JobConflict, JobNotFound
from taskmq.http import Client
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.states import Cancellation, JobState

__all__ = [
    "attempts",
    "cancel",
    "change",
    "clone",
    "explain",
    "history",
    "hold",
    "list_jobs",
    "release",
    "retry",
    "show",
    "submit",
]

_PAGE: Final = 200


def submit(
    client: Client,
    *,
    task: str,
    args: str,
    kwargs: str,
    at: str | None,
    delay: str | None,
    priority: int | None,
    queue: str | None,
    tenant: str | None,
    job_id: str | None,
    expires: str | None,
    description: str,
    owner: str,
    label: tuple[str, ...],
    resources: str,
    node_label: tuple[str, ...],
    preemptible: bool | None,
    held: bool,
    depends_on: tuple[str, ...],
) -> int:
    only_here(owner=owner)
    body = SubmitBody(
        job_type=task,
        args=array_of("--args", args) or None,
        kwargs=object_of("--kwargs", kwargs) or None,
        schedule_time=None if at is None else instant_of("--at", at),
        delay=delay,
        priority=priority,
        queue=queue,
        job_id=job_id,
        expires_in=expires,
        description=description,
        labels=dict(map(label_of, label)),
        resources=object_of("--resources", resources),
        node_labels=node_labels_of(node_label),
        preemptible=preemptible,
        held=held,
        depends_on=[
            UpstreamJob(job_id=upstream, condition=condition)
            for upstream, condition in map(upstream_from, depends_on)
        ],
    )
    jobs = client.jobs if tenant is None else client.for_tenant(tenant).jobs
    made = jobs.keep(body)

    def record() -> dict[str, Any]:
        kept = jobs.get(made.id)
        return {"job": made.job_id, "task": kept.task, "queue": kept.queue, "state": kept.state}

    show_record(made, record)
    return OK


def list_jobs(client: Client, *, where: str, limit: int, after: str | None, count: bool) -> int:
    if count:
        found = client.jobs.count(where)
        show_record(found, lambda: {"count": found.count})
        return OK
    jobs, page = _pages(client, where, limit, after)
    show_rows(LIST_COLUMNS, jobs, _row)
    if page is not None:
        note(page)
    return OK


def change(
    client: Client,
    *,
    job: str,
    at: str | None,
    delay: str | None,
    priority: int | None,
    queue: str | None,
    expires: str | None,
    args: str | None,
    kwargs: str | None,
    version: int | None,
    because: str,
) -> int:
    after = client.jobs.change(
        job,
        version=version,
        at=None if at is None else instant_of("--at", at),
        delay=delay,
        priority=priority,
        queue=queue,
        expires=None if expires is None else instant_of("--expires", expires),
        args=None if args is None else array_of("--args", args),
        kwargs=None if kwargs is None else object_of("--kwargs", kwargs),
        note=because,
    )
    show_record(after, lambda: _row(client.jobs.get(after.id)))
    return OK


def hold(client: Client, *, jobs: Sequence[str], note: str) -> int:
    return _act("hold", lambda job: client.jobs.hold(job, note=note), jobs)


def release(client: Client, *, jobs: Sequence[str], note: str) -> int:
    return _act("release", lambda job: client.jobs.release(job, note=note), jobs)


def retry(client: Client, *, jobs: Sequence[str], mode: RetryMode | None, again: bool, note: str) -> int:
    return _act("retry", lambda job: client.jobs.retry(job, mode=mode, again=again, note=note), jobs)


def clone(
    client: Client,
    *,
    job: str,
    new_id: str | None,
    at: str | None,
    args: str | None,
    kwargs: str | None,
    priority: int | None,
) -> int:
    made = client.jobs.clone(
        job,
        new_id=new_id,
        at=None if at is None else instant_of("--at", at),
        args=None if args is None else array_of("--args", args),
        kwargs=None if kwargs is None else object_of("--kwargs", kwargs),
        priority=priority,
    )
    show_record(made, lambda: {"job": made.job_id, "retry_of": job})
    return OK


def explain(client: Client, *, job: str) -> int:
    found = client.jobs.explain(job)
    show_record(found, lambda: {"job": job, "state": found.state, "reasons": found.reasons})
    return OK


def history(client: Client, *, job: str) -> int:
    def row(entry: HistoryView) -> dict[str, Any]:
        return {**msgspec.to_builtins(entry), "at": text_of_instant(entry.at)}

    show_rows(HISTORY_COLUMNS, client.jobs.history(job), row)
    return OK


def attempts(client: Client, *, job: str) -> int:
    def row(one: AttemptView) -> dict[str, Any]:
        return {
            "attempt": one.attempt,
            "started": text_of_instant(one.started),
            "ended": text_of_instant(one.ended),
            "worker": one.worker,
            "error": "" if one.error is None else f"{one.error.type}: {one.error.message}",
        }

    show_rows(ATTEMPT_COLUMNS, client.jobs.attempts(job), row)
    return OK


def show(client: Client, *, job: str, values: bool, depth: int | None, within: str) -> int:
    # Of the store's jobs there is nothing to ask workers and dead letters for.
    del depth, within
    found = client.jobs.get(job, expand=["progress", *(["payload", "result"] if values else [])])

    def record() -> dict[str, Any]:
        facts = {name: value for name, value in _facts(job, found, values=values).items() if value not in (None, "")}
        return {**facts, "letters": "none"}

    show_record(found, record)
    return OK


def cancel(client: Client, *, job: str, reason: str, remember: str) -> int:
    del remember
    try:
        after = client.jobs.cancel(job, note=reason)
    except JobConflict as error:
        if not error.state or not JobState(error.state).is_final:
            raise
        note(f"job {job} {CANCELLED[Cancellation.ENDED]}")
        return NOT_FOUND
    done = Cancellation.CANCELLED if after.state.is_final else Cancellation.REQUESTED
    note(f"job {job} {CANCELLED[done]}")
    return OK


def _act(what: str, one: Callable[[str], ChangedJob], jobs: Sequence[str]) -> int:
    """Do it to each; a row for each, and the worst of their exit codes."""
    check_ids(what, jobs)
    rows: list[dict[str, Any]] = []
    told: list[Any] = []
    codes = {OK}
    for job in jobs:
        try:
            after = one(job)
            is_another = what == "retry" and job not in (after.id, after.job_id)
            state = f"{after.state} as {after.job_id}" if is_another else after.state
            rows.append({"job": job, "state": state, "refused": ""})
            told.append(after)
        except JobNotFound as error:
            codes.add(NOT_FOUND)
            rows.append({"job": job, "state": JobState.UNKNOWN, "refused": str(error)})
            told.append(RefusalView(job_id=job, code="job_not_found", detail=str(error)))
        except JobConflict as error:
            codes.add(CONFLICT)
            rows.append({"job": job, "state": error.state, "refused": str(error)})
            told.append(RefusalView(job_id=job, code="job_conflict", detail=str(error)))
    if current_globals().output == "table":
        print_rows(ACTED_COLUMNS, rows)
    else:
        print_rows(ACTED_COLUMNS, [msgspec.to_builtins(each) for each in told])
    return max(codes)


def _pages(client: Client, where: str, limit: int, after: str | None) -> tuple[list[JobView], str | None]:
    """So many jobs, and how the list goes on."""
    found: list[JobView] = []
    while len(found) < limit:
        page = client.jobs.page(where, limit=min(_PAGE, limit - len(found)), cursor=after, expand=["progress"])
        found += page.items
        after = page.next
        if after is None:
            return found, None
        if page.is_bounded and not page.items:
            return found, f"not everything was searched: --after {after}"
    return found, f"there are more: --after {after}"


def _row(job: JobView) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "tenant": job.tenant,
        "state": job.state,
        "version": job.version,
        "priority": job.priority,
        "attempt": job.attempt,
        "progress": "" if job.progress is None else done_text(job.progress.done, job.progress.total),
        "due": text_of_instant(job.due_at),
        "submitted": text_of_instant(job.submitted_at),
        "finished": text_of_instant(job.end_time),
        "error": _error(job),
    }


def _facts(name: str, job: JobDetails, *, values: bool) -> dict[str, Any]:
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
        "error": _error(job),
        "cancelled": job.cancel_requested,
        "retry_of": job.retry_of,
        "retried_as": job.retried_as,
        "progress": None if job.progress is None else _progress_text(job.progress),
    }
    if values:
        called = msgspec.json.encode({"args": job.args, "kwargs": job.payload}).decode()
        traceback = None if job.error is None else job.error.traceback
        problem = None if job.result_problem is None else job.result_problem.detail
        facts |= {"body": called, "result": job.result, "result_problem": problem, "traceback": traceback}
    return facts


def _progress_text(progress: ProgressView) -> str:
    note = f": {progress.note}" if progress.note else ""
    said = f"(attempt {progress.attempt}, {text_of_instant(progress.updated_at)})"
    return f"{done_text(progress.done, progress.total)}{note} {said}"


def _error(job: JobView) -> str:
    return "" if job.error is None else ": ".join(filter(None, (job.error.type, job.error.message)))
