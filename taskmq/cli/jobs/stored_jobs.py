"""`taskmq job`: what only jobs of the store can do."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.cli.actor import audited, me, note_change, of_tenant
from taskmq.cli.exits import CONFLICT, NOT_FOUND, OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.jobs.hints import hinted, run_about
from taskmq.cli.output import note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
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
    from taskmq.app import TaskMQ
    from taskmq.client.progress import JobProgress
    from taskmq.contracts.jobs import JobDetail, JobRecord
    from taskmq.jobs.handle import Job

__all__ = [
    "ACTED_COLUMNS",
    "ATTEMPT_COLUMNS",
    "COMMANDS",
    "HISTORY_COLUMNS",
    "LIST_COLUMNS",
    "check_ids",
    "done_text",
]

LIST_COLUMNS: Final = (
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
HISTORY_COLUMNS: Final = ("version", "at", "kind", "state", "by", "note")
ATTEMPT_COLUMNS: Final = ("attempt", "started", "ended", "worker", "error")
ACTED_COLUMNS: Final = ("job", "state", "refused")

_Note = Annotated[str, Parameter(help="Why; for the job's history.")]
_At = Annotated[str | None, Parameter(help="At this instant, such as 2027-01-31T09:00+01:00.")]
_Delay = Annotated[str | None, Parameter(help="This long from now, such as 10m.")]
_NewArgs = Annotated[str | None, Parameter(help="All its positional arguments anew, a JSON array.")]
_NewKwargs = Annotated[str | None, Parameter(help="All its named arguments anew, a JSON object.")]


@over_http("jobs:submit")
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
        For people.
    preemptible
        A run of it may be stopped for a pool that is owed its guaranteed share. Default: what its task says.
    held
        It does not run until it is released.
    depends_on
        The id of a job that has to succeed before it runs; ended=ID or failed=ID: that has to end so. May be
        repeated.
    """
    given = {
        "eta": None if at is None else instant_of("--at", at),
        "delay": delay,
        "priority": priority,
        "queue": queue,
        "tenant": tenant,
        "job_id": job_id,
        "expires": expires,
    }
    options = {name: value for name, value in given.items() if value is not None}
    positional, named = array_of("--args", args), object_of("--kwargs", kwargs)
    labels = dict(map(label_of, label))
    amounts, node_labels = object_of("--resources", resources), node_labels_of(node_label)

    async def run(target: "TaskMQ") -> dict[str, Any]:
        of_job: dict[str, Any] = {
            "description": description,
            "owner": owner,
            "labels": labels,
            "resources": amounts,
            "place": {"labels": node_labels},
            "preemptible": preemptible,
            "held": held,
            "depends_on": list(map(upstream_from, depends_on)),
        }
        job, _ = await target.jobs.keep_named(task, positional, named, options | of_job)
        record = await target.jobs.aget(job.id)
        made = {"job": job.id, "task": record.task, "queue": record.queue, "state": record.state}
        return made if record.detail is None or not record.detail.definition else made | _definition(record.detail)

    print_record(run_with_app(run))
    return OK


@over_http("jobs:list_jobs")
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

    async def run(target: "TaskMQ") -> int:
        from taskmq.model.jobs.filter_text import parse_filter
        from taskmq.operations.jobs import progress_of_jobs

        which = parse_filter(where, await target.sessions.store().now_ms())
        if count:
            print_record({"count": await target.jobs.acount(which)})
            return OK
        page = await target.jobs.alist(which, after=after, limit=limit)
        progress = await progress_of_jobs(target, page.jobs)
        print_rows(LIST_COLUMNS, [_row(job, progress.get(job.id)) for job in page.jobs])
        if page.after is not None:
            searched = "not everything was searched" if page.is_bounded else "there are more"
            note(f"{searched}: --after {page.after}")
        return OK

    return run_with_app(run)


@audited
@of_tenant
@over_http("jobs:change")
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

    async def run(target: "TaskMQ") -> "JobRecord":
        return await target.jobs.achange(
            job,
            version=version,
            at=None if at is None else instant_of("--at", at),
            delay=delay,
            priority=priority,
            queue=queue,
            expires=None if expires is None else instant_of("--expires", expires),
            args=positional,
            kwargs=named,
            by=me(),
            note=because,
        )

    print_record(_row(run_about(job, run)))
    return OK


@audited
@of_tenant
@over_http("jobs:hold")
def hold(*jobs: str, note: _Note = "") -> int:
    """Have jobs that wait not run until they are released.

    For all jobs of a filter use `taskmq bulk begin hold FILTER`.

    Parameters
    ----------
    jobs
        Their ids.
    """

    async def one(target: "TaskMQ", job: str) -> str:
        return (await target.jobs.ahold(job, by=me(), note=note)).state

    return _act("hold", one, jobs)


@audited
@of_tenant
@over_http("jobs:release")
def release(*jobs: str, note: _Note = "") -> int:
    """Let held jobs run, each at its time.

    For all jobs of a filter use `taskmq bulk begin release FILTER`.

    Parameters
    ----------
    jobs
        Their ids.
    """

    async def one(target: "TaskMQ", job: str) -> str:
        return (await target.jobs.arelease(job, by=me(), note=note)).state

    return _act("release", one, jobs)


@audited
@of_tenant
@over_http("jobs:retry")
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

    async def one(target: "TaskMQ", job: str) -> str:
        before = await target.jobs.aget(job)
        after = await target.jobs.aretry(before, mode=mode, again=again, by=me(), note=note)
        record = await target.jobs.aget(after.id)
        return record.state if record.id == before.id else f"{record.state} as {after.id}"

    return _act("retry", one, jobs)


@audited
@of_tenant
@over_http("jobs:clone")
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

    async def run(target: "TaskMQ") -> "Job[Any]":
        before = await target.jobs.aget(job)
        await note_change(target, "job.clone", before.id, tenant=before.tenant)
        return await target.jobs.aclone(
            before, new_id=new_id, at=instant, args=positional, kwargs=named, priority=priority
        )

    made = run_about(job, run)
    print_record({"job": made.id, "retry_of": job})
    return OK


@of_tenant
@over_http("jobs:explain")
def explain(job: str, /) -> int:
    """Say what a job of the store waits for.

    Parameters
    ----------
    job
        The job's id.
    """
    explanation = run_about(job, lambda target: target.jobs.aexplain(job))
    print_record({"job": job, "state": explanation.state, "reasons": explanation.reasons})
    return OK


@of_tenant
@over_http("jobs:history")
def history(job: str, /) -> int:
    """List what happened to a job beside the ordinary steps: by whom, and why.

    Parameters
    ----------
    job
        The job's id.
    """
    entries = run_about(job, lambda target: target.jobs.ahistory(job))
    rows = [{**msgspec.to_builtins(entry), "at": when(entry.at), "state": entry.state} for entry in entries]
    print_rows(HISTORY_COLUMNS, rows)
    return OK


@of_tenant
@over_http("jobs:attempts")
def attempts(job: str, /) -> int:
    """List the attempts of a job that did not end it; the last one is in `job show`.

    Parameters
    ----------
    job
        The job's id.
    """
    found = run_about(job, lambda target: target.jobs.aattempts(job))
    rows = [
        {
            "attempt": one.attempt,
            "started": when(one.started),
            "ended": when(one.ended),
            "worker": one.worker,
            "error": "" if one.error is None else f"{one.error.type_name}: {one.error.message}",
        }
        for one in found
    ]
    print_rows(ATTEMPT_COLUMNS, rows)
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


def check_ids(what: str, jobs: Sequence[str]) -> None:
    """See that jobs are named.

    Raises:
        InvalidOption: none is.
    """
    if not jobs:
        raise InvalidOption(f"job {what}: name at least one job, or use `taskmq bulk begin {what} FILTER`")


def _act(what: str, one: "Callable[[TaskMQ, str], Awaitable[str]]", jobs: Sequence[str]) -> int:
    """Do it to each; a row for each, and the worst of their exit codes."""
    check_ids(what, jobs)

    async def run(target: "TaskMQ") -> tuple[list[dict[str, Any]], set[int]]:
        rows: list[dict[str, Any]] = []
        codes = {OK}
        for job in jobs:
            try:
                rows.append({"job": job, "state": await one(target, job), "refused": ""})
            except JobNotFound as error:
                codes.add(NOT_FOUND)
                refused = str(await hinted(target, job, error))
                rows.append({"job": job, "state": JobState.UNKNOWN, "refused": refused})
            except JobConflict as error:
                codes.add(CONFLICT)
                rows.append({"job": job, "state": error.state, "refused": str(error)})
        return rows, codes

    rows, codes = run_with_app(run)
    print_rows(ACTED_COLUMNS, rows)
    return max(codes)


def _definition(detail: "JobDetail") -> dict[str, Any]:
    return {"definition": detail.definition, "version": detail.definition_version}


def done_text(done: float, total: float | None) -> str:
    """How far a job is, for people."""
    return f"{done:g}" if total is None else f"{done:g} of {total:g}"


def _row(job: "JobRecord", progress: "JobProgress | None" = None) -> dict[str, Any]:
    return {
        "job": job.id if job.key is None else tenant_key(job.tenant or None, job.key),
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "tenant": job.tenant,
        "state": job.state,
        "version": job.version,
        "priority": job.priority,
        "attempt": job.attempt,
        "progress": "" if progress is None else done_text(progress.done, progress.total),
        "due": when(job.due),
        "submitted": when(job.submitted),
        "finished": when(job.finished),
        "error": "" if job.error is None else ": ".join(filter(None, (job.error.type_name, job.error.message))),
    }
