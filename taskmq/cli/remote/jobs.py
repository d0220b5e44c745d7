"""`taskmq job` through a server."""

from typing import Any

import msgspec

from taskmq.api.job_requests import SubmitBody, UpstreamJob
from taskmq.api.jobs import JobDetails, JobView, ProgressView
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import only_here
from taskmq.cli.jobs.job import CANCELLED
from taskmq.cli.jobs.stored_jobs import done_text
from taskmq.cli.output import note
from taskmq.cli.server_link import show_record, text_of_instant
from taskmq.cli.typed_values import array_of, instant_of, label_of, node_labels_of, object_of, upstream_from
from taskmq.errors import JobConflict
from taskmq.http import Client
from taskmq.model.states import Cancellation, JobState

__all__ = [
    "cancel",
    "show",
    "submit",
]


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
