"""`taskmq job`: what only jobs of the store can do."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.job_requests import SubmitBody, UpstreamJob
from taskmq.cli.actor import audited, of_tenant
from taskmq.cli.exits import CONFLICT, NOT_FOUND, OK
from taskmq.cli.jobs.hints import ask_about, hinted
from taskmq.cli.output import note, print_rows
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import (
    array_of,
    instant_of,
    label_of,
    node_labels_of,
    object_of,
    upstream_from,
)
from taskmq.errors import InvalidOption, JobConflict, JobNotFound
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.keys import tenant_key
from taskmq.model.states import JobState

if TYPE_CHECKING:
    from taskmq.api.jobs import AttemptView, ChangedJob, HistoryView, JobView
    from taskmq.cli.server_link import Pages

__all__ = ["COMMANDS", "done_text"]

_LIST_COLUMNS: Final = (
    "job",
    "tenant",
    "task",
    "queue",
    "state",
    "priority",
    "attempt",
    "progress",
    "due",
    "submitted",
    "finished",
    "error",
)
_HISTORY_COLUMNS: Final = ("version", "at", "kind", "state", "by", "note")
_ATTEMPT_COLUMNS: Final = ("attempt", "started", "ended", "worker", "error")
_ACTED_COLUMNS: Final = ("job", "state", "refused")

_Note = Annotated[str, Parameter(help="Why; for the job's history.")]
_At = Annotated[str | None, Parameter(help="At this instant, such as 2027-01-31T09:00+01:00.")]
_Delay = Annotated[str | None, Parameter(help="This long from now, such as 10m.")]
_NewArgs = Annotated[str | None, Parameter(help="All its positional arguments anew, a JSON array.")]
_NewKwargs = Annotated[str | None, Parameter(help="All its named arguments anew, a JSON object.")]


def submit(
    task: str,
    /,
    *,
    args: Annotated[str, Parameter(help="Positional arguments, a JSON array.")] = "[]",
    kwargs: Annotated[str, Parameter(help="Named arguments, a JSON object.")] = "{}",
    at: _At = None,
    delay: _Delay = None,
    priority: int | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    job_id: str | None = None,
    expires: str | None = None,
    description: str = "",
    owner: str = "",
    label: Annotated[tuple[str, ...], Parameter(help="NAME=VALUE; may be repeated.", negative="")] = (),
    resources: Annotated[str, Parameter(help='What it takes of its node, as JSON: {"cpu": 2}.')] = "{}",
    node_label: Annotated[tuple[str, ...], Parameter(help="NAME=VALUE that its node has.", negative="")] = (),
    preemptible: bool | None = None,
    held: Annotated[bool, Parameter(negative="")] = False,
    depends_on: Annotated[tuple[str, ...], Parameter(negative="")] = (),
) -> int:
    """Submit a job to the store and print its id.

    Parameters
    ----------
    task
        The name of a task, of the app or of a worker that has registered it, or of a definition: `--args`, where
        there are any, replace all of a definition's, and `--kwargs` those of the same names.
    priority
        0 (lowest) to 9 (highest).
    queue
        Default: the task's own.
    tenant
        Whose job it is.
    job_id
        An id of your own: submitted twice with the same content it is one job, with other content that ends with 6.
    expires
        It does not start later than this long after now.
    description
        For people.
    owner
        For people and quotas. Default: you, and through a server no one else.
    preemptible
        A run of it may be stopped for a pool that is owed its guaranteed share. Default: what its task says.
    held
        It does not run until it is released.
    depends_on
        The id of a job that has to succeed before it runs; ended=ID or failed=ID: that has to end so. May be
        repeated.
    """
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
        owner=owner,
        labels=dict(map(label_of, label)),
        resources=object_of("--resources", resources),
        node_labels=node_labels_of(node_label),
        preemptible=preemptible,
        held=held,
        depends_on=[UpstreamJob(job_id=name, condition=how) for name, how in map(upstream_from, depends_on)],
    )
    made = ask(lambda api: api.jobs.submit_body(body), tenant=tenant)

    def record() -> dict[str, Any]:
        # By this name the other commands find it without --tenant.
        name = made.id if made.job_id == made.id else tenant_key(tenant, made.job_id)
        facts = {"job": name, "task": made.task, "queue": made.queue, "state": made.state}
        if not made.definition:
            return facts
        return {**facts, "definition": made.definition, "version": made.definition_version}

    show_record(made, record)
    return OK


def list_jobs(
    where: str = "",
    /,
    *,
    limit: int = 50,
    after: str | None = None,
    count: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """List jobs of the store, the newest first.

    A filter has parts with a blank between: `status:failed,cancelled queue:mail created:>-24h label.team:web`; each
    part has to hold, with one of its values; `-` before a part means that it does not.

    Parameters
    ----------
    where
        A filter; without one all jobs.
    limit
        How many at most.
    after
        Go on where a list has ended.
    count
        Only say how many there are; up to 10,000 exactly.
    """
    if count:
        counted = ask(lambda api: api.jobs.count(where))
        show_record(counted, lambda: {"count": counted.count})
        return OK

    def pages(api: Api) -> "Pages[JobView]":
        return partial(api.jobs.page, where, expand=["progress"])

    found = ask(lambda api: first_items(pages(api), limit, after=after))
    show_rows(_LIST_COLUMNS, found.items, _row)
    if found.next is not None:
        searched = "not everything was searched" if len(found.items) < limit else "there are more"
        note(f"{searched}: --after {found.next}")
    return OK


@audited
@of_tenant
def change(
    job: str,
    /,
    *,
    at: _At = None,
    delay: _Delay = None,
    priority: int | None = None,
    queue: str | None = None,
    expires: Annotated[str | None, Parameter(help="The instant after which it does not start.")] = None,
    args: _NewArgs = None,
    kwargs: _NewKwargs = None,
    version: Annotated[int | None, Parameter(help="End with 6 where it has another version.")] = None,
    because: Annotated[str, Parameter(name="--note", help="Why; for the job's history.")] = "",
) -> int:
    """Change a job that no worker has yet. What is not given stays as it is.

    Parameters
    ----------
    job
        The job's id.
    priority
        0 (lowest) to 9 (highest).
    queue
        Where it is to run.
    """
    positional = None if args is None else array_of("--args", args)
    named = None if kwargs is None else object_of("--kwargs", kwargs)
    due = None if at is None else instant_of("--at", at)
    ends = None if expires is None else instant_of("--expires", expires)

    async def run(api: Api) -> "JobView":
        after = await api.jobs.change(
            job,
            version=version,
            at=due,
            delay=delay,
            priority=priority,
            queue=queue,
            expires=ends,
            args=positional,
            kwargs=named,
            note=because,
        )
        return await api.jobs.get(after.id)

    found = ask_about(job, run)
    show_record(found, lambda: _row(found))
    return OK


@audited
@of_tenant
def hold(*jobs: str, note: _Note = "") -> int:
    """Have jobs that wait not run until they are released.

    For all jobs of a filter use `taskmq bulk begin hold FILTER`.

    Parameters
    ----------
    jobs
        Their ids.
    """
    return _act("hold", lambda api, job: api.jobs.hold(job, note=note), jobs)


@audited
@of_tenant
def release(*jobs: str, note: _Note = "") -> int:
    """Let held jobs run, each at its time.

    For all jobs of a filter use `taskmq bulk begin release FILTER`.

    Parameters
    ----------
    jobs
        Their ids.
    """
    return _act("release", lambda api, job: api.jobs.release(job, note=note), jobs)


@audited
@of_tenant
def retry(
    *jobs: str,
    mode: RetryMode | None = None,
    again: Annotated[bool, Parameter(negative="")] = False,
    note: _Note = "",
) -> int:
    """Run jobs now: one that waits at once; one that has ended again.

    For all jobs of a filter use `taskmq bulk begin retry FILTER`.

    Parameters
    ----------
    jobs
        Their ids.
    mode
        How one that has ended is run again. resume: it goes on, under its id, with its next attempt, and what its
        runs have saved. new: another job repeats it from the beginning. Default: it goes on where its submitter chose
        its id and it neither has succeeded nor was cancelled while it ran.
    again
        Also those that another job repeats already; without it they stay, and that ends with 6.
    """
    return _act("retry", lambda api, job: api.jobs.retry(job, mode=mode, again=again, note=note), jobs)


@audited
@of_tenant
def clone(
    job: str,
    /,
    *,
    new_id: str | None = None,
    at: _At = None,
    args: _NewArgs = None,
    kwargs: _NewKwargs = None,
    priority: int | None = None,
) -> int:
    """Submit another job of the same task, and print its id. What is not given is as it was.

    With `--args` or `--kwargs` it has no other arguments than these.

    Parameters
    ----------
    job
        The job's id.
    new_id
        The id of the new one; default: one of the store's.
    priority
        0 (lowest) to 9 (highest).
    """
    instant = None if at is None else instant_of("--at", at)
    positional = None if args is None else array_of("--args", args)
    named = None if kwargs is None else object_of("--kwargs", kwargs)
    made = ask_about(
        job,
        lambda api: api.jobs.clone(job, new_id=new_id, at=instant, args=positional, kwargs=named, priority=priority),
    )
    show_record(made, lambda: {"job": made.job_id, "retry_of": job})
    return OK


@of_tenant
def explain(job: str, /) -> int:
    """Say what a job of the store waits for.

    Parameters
    ----------
    job
        The job's id.
    """
    found = ask_about(job, lambda api: api.jobs.explain(job))
    show_record(found, lambda: {"job": job, "state": found.state, "reasons": found.reasons})
    return OK


@of_tenant
def history(job: str, /) -> int:
    """List what happened to a job beside the ordinary steps: by whom, and why.

    Parameters
    ----------
    job
        The job's id.
    """

    def row(entry: "HistoryView") -> dict[str, Any]:
        return {**msgspec.structs.asdict(entry), "at": text_of_instant(entry.at)}

    show_rows(_HISTORY_COLUMNS, ask_about(job, lambda api: api.jobs.history(job)), row)
    return OK


@of_tenant
def attempts(job: str, /) -> int:
    """List the attempts of a job that did not end it; the last one is in `job show`.

    Parameters
    ----------
    job
        The job's id.
    """

    def row(one: "AttemptView") -> dict[str, Any]:
        return {
            "attempt": one.attempt,
            "started": text_of_instant(one.started),
            "ended": text_of_instant(one.ended),
            "worker": one.worker,
            "error": "" if one.error is None else f"{one.error.type}: {one.error.message}",
        }

    show_rows(_ATTEMPT_COLUMNS, ask_about(job, lambda api: api.jobs.attempts(job)), row)
    return OK


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {
    "submit": submit,
    "list": list_jobs,
    "change": change,
    "hold": hold,
    "release": release,
    "retry": retry,
    "clone": clone,
    "explain": explain,
    "history": history,
    "attempts": attempts,
}


def _act(what: str, one: "Callable[[Api, str], Awaitable[ChangedJob]]", jobs: Sequence[str]) -> int:
    """Do it to each; a row for each, and the worst of their exit codes.

    Raises:
        InvalidOption: no job is named.
    """
    if not jobs:
        raise InvalidOption(f"job {what}: name at least one job, or use `taskmq bulk begin {what} FILTER`")

    async def run(api: Api) -> tuple[list[dict[str, Any]], set[int]]:
        rows: list[dict[str, Any]] = []
        codes = {OK}
        for job in jobs:
            try:
                after = await one(api, job)
                is_another = what == "retry" and job not in (after.id, after.job_id)
                state = f"{after.state} as {after.job_id}" if is_another else after.state
                rows.append({"job": job, "state": state, "refused": ""})
            except JobNotFound as error:
                codes.add(NOT_FOUND)
                refused = str(await hinted(api, job, error))
                rows.append({"job": job, "state": JobState.UNKNOWN, "refused": refused})
            except JobConflict as error:
                codes.add(CONFLICT)
                rows.append({"job": job, "state": error.state, "refused": str(error)})
        return rows, codes

    rows, codes = ask(run)
    print_rows(_ACTED_COLUMNS, rows)
    return max(codes)


def done_text(done: float, total: float | None) -> str:
    """How far a job is, for people."""
    return f"{done:g}" if total is None else f"{done:g} of {total:g}"


def _row(job: "JobView") -> dict[str, Any]:
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
        "error": "" if job.error is None else ": ".join(filter(None, (job.error.type, job.error.message))),
    }
