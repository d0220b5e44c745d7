"""`taskmq job`: commands that need a job store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from taskmq.api.job_requests import JobSignalBody, SubmitBody, UpstreamJob
from taskmq.cli.actor import name_caller, of_tenant
from taskmq.cli.exits import CONFLICT, NOT_FOUND, OK
from taskmq.cli.flags import JobFlags
from taskmq.cli.jobs.hints import add_hint, ask_about
from taskmq.cli.jobs.history import attempts, explain, history
from taskmq.cli.output import note, print_rows
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import (
    any_value,
    array_of,
    instant_of,
    label_of,
    object_of,
    upstream_from,
)
from taskmq.errors import InvalidOption, JobConflict, JobNotFound
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.keys import tenant_key
from taskmq.model.states import JobState

if TYPE_CHECKING:
    from taskmq.api.jobs import ChangedJob, JobView
    from taskmq.cli.server_link import Pages

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
    "reason",
)
_ACTED_COLUMNS: Final = ("job", "state", "refused")

_NO_FLAGS: Final = JobFlags()
_Note = Annotated[str, Parameter(help="The reason, for the job's history.")]
_At = Annotated[str | None, Parameter(help="Run at this instant, such as 2027-01-31T09:00+01:00.")]
_Delay = Annotated[str | None, Parameter(help="Run this long from now, such as 10m.")]
_NewArgs = Annotated[str | None, Parameter(help="New positional arguments, a JSON array; replaces all.")]
_NewKwargs = Annotated[str | None, Parameter(help="New named arguments, a JSON object; replaces all.")]


def submit(
    task: str,
    /,
    *,
    args: Annotated[str, Parameter(help="Positional arguments, a JSON array.")] = "[]",
    kwargs: Annotated[str, Parameter(help="Named arguments, a JSON object.")] = "{}",
    at: _At = None,
    delay: _Delay = None,
    tenant: str | None = None,
    job_id: str | None = None,
    order_key: str | None = None,
    idempotency_key: str | None = None,
    meta: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    held: Annotated[bool, Parameter(negative="")] = False,
    depends_on: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    flags: JobFlags = _NO_FLAGS,
) -> int:
    """Submit a job to the store and print its id.

    Args:
        task: The name of a task of the app, of one that a worker has registered, or of a definition.
            `--args` replaces all of a definition's positional arguments, `--kwargs` those of the same names.
        tenant: The tenant that owns the job.
        job_id: Your own id. Submitting it again with the same content has no effect;
            with other content it exits with 6.
        order_key: In an ordered queue, jobs with the same key run one at a time.
            Default: the task's key for the arguments.
        idempotency_key: The work of one key is done once. Default: the task's key for the arguments.
        meta: NAME=VALUE that the task reads as `ctx.meta`. May be repeated.
        held: Do not run the job until it is released.
        depends_on: Id of a job that must succeed first; ended=ID or failed=ID for those outcomes. May be repeated.
    """
    body = SubmitBody(
        job_type=task,
        args=array_of("--args", args) or None,
        kwargs=object_of("--kwargs", kwargs) or None,
        schedule_time=None if at is None else instant_of("--at", at),
        delay=delay,
        job_id=job_id,
        order_key=order_key,
        idempotency_key=idempotency_key,
        meta=dict(label_of(text, option="--meta") for text in meta),
        held=held,
        depends_on=[UpstreamJob(job_id=name, condition=how) for name, how in map(upstream_from, depends_on)],
        **flags.fields(),
    )
    made = ask(lambda api: api.jobs.submit_body(body), tenant=tenant)

    def record() -> dict[str, Any]:
        # The other commands find the job by this name without --tenant.
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
    """List jobs of the store, newest first.

    A filter has parts separated by spaces: `status:failed,cancelled queue:mail created:>-24h label.team:web`. Every
    part must match, with one of its values; `-` before a part negates it.

    Args:
        where: A filter. Default: all jobs.
        limit: Maximum number of jobs.
        after: Continue an earlier list at the cursor it printed.
        count: Print only the number of jobs; exact up to 10,000.
    """
    if count:
        counted = ask(lambda api: api.jobs.count(where), may_be_stale=True)
        show_record(counted, lambda: {"count": counted.count})
        return OK

    def pages(api: Api) -> "Pages[JobView]":
        return partial(api.jobs.page, where, expand=["progress"])

    found = ask(lambda api: first_items(pages(api), limit, after=after), may_be_stale=True)
    show_rows(_LIST_COLUMNS, found.items, _row)
    if found.next is not None:
        searched = "search incomplete" if len(found.items) < limit else "there are more"
        note(f"{searched}: --after {found.next}")
    return OK


@name_caller
@of_tenant
def change(
    job: str,
    /,
    *,
    at: _At = None,
    delay: _Delay = None,
    priority: int | None = None,
    queue: str | None = None,
    expires: Annotated[str | None, Parameter(help="Instant after which the job no longer starts.")] = None,
    args: _NewArgs = None,
    kwargs: _NewKwargs = None,
    version: Annotated[int | None, Parameter(help="Exit with 6 if the job does not have this version.")] = None,
    because: Annotated[str, Parameter(name="--note", help="The reason, for the job's history.")] = "",
) -> int:
    """Change a job that no worker has started. Fields that are not given keep their values.

    Args:
        job: The job's id.
        priority: 0 (lowest) to 9 (highest).
        queue: The queue to run in.
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


@name_caller
@of_tenant
def hold(*jobs: str, note: _Note = "") -> int:
    """Hold waiting jobs until they are released.

    For all jobs of a filter, use `taskmq bulk begin hold FILTER`.

    Args:
        jobs: Their ids.
    """
    return _act("hold", lambda api, job: api.jobs.hold(job, note=note), jobs)


@name_caller
@of_tenant
def release(*jobs: str, note: _Note = "") -> int:
    """Release held jobs; each runs at its time.

    For all jobs of a filter, use `taskmq bulk begin release FILTER`.

    Args:
        jobs: Their ids.
    """
    return _act("release", lambda api, job: api.jobs.release(job, note=note), jobs)


@name_caller
@of_tenant
def signal(
    job: str,
    signal: str,
    value: str = "null",
    /,
    *,
    signal_id: Annotated[str | None, Parameter(name="--id")] = None,
) -> int:
    """Send a signal to a job whose task waits for it. Exits with 6 if the job has ended.

    Args:
        job: The job's id.
        signal: The name that a call of the task waits for.
        value: The value that the call returns: JSON, or a text.
        signal_id: An id: sending it again has no effect.
    """
    body = JobSignalBody(signal=signal, value=any_value(value), signal_id=signal_id)
    sent = ask_about(job, lambda api: api.jobs.signal(job, body))
    show_record(sent, lambda: {"job": sent.job_id, "signal": sent.signal, "id": sent.signal_id})
    return OK


@name_caller
@of_tenant
def retry(
    *jobs: str,
    mode: RetryMode | None = None,
    again: Annotated[bool, Parameter(negative="")] = False,
    note: _Note = "",
) -> int:
    """Run jobs now: start a waiting job at once, run an ended job again.

    For all jobs of a filter, use `taskmq bulk begin retry FILTER`.

    Args:
        jobs: Their ids.
        mode: How to run an ended job again.
            resume: continue under its id with the next attempt and what its runs have saved. new: repeat it from the
            beginning as another job. Default: resume if its submitter chose its id and it neither succeeded nor was
            cancelled while running.
        again: Include jobs that another job repeats already; without it they are left, and the command exits with 6.
    """
    return _act("retry", lambda api, job: api.jobs.retry(job, mode=mode, again=again, note=note), jobs)


@name_caller
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
    """Submit a copy of a job and print its id. Options override fields of the original.

    If `--args` or `--kwargs` is given, the copy has only these arguments.

    Args:
        job: The job's id.
        new_id: The id of the copy. Default: generated.
        priority: 0 (lowest) to 9 (highest).
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


COMMANDS: Final[Mapping[str, Callable[..., int]]] = {
    "submit": submit,
    "list": list_jobs,
    "change": change,
    "hold": hold,
    "release": release,
    "signal": signal,
    "retry": retry,
    "clone": clone,
    "explain": explain,
    "history": history,
    "attempts": attempts,
}


def _act(what: str, one: "Callable[[Api, str], Awaitable[ChangedJob]]", jobs: Sequence[str]) -> int:
    """Act on each job; return the highest exit code of all, and print a row for each.

    Raises:
        InvalidOption: no job is named.
    """
    if not jobs:
        raise InvalidOption(f"job {what}: no job given: name one, or use `taskmq bulk begin {what} FILTER`")

    async def run(api: Api) -> tuple[list[dict[str, Any]], set[int]]:
        rows: list[dict[str, Any]] = []
        codes = {OK}
        for job in jobs:
            try:
                after = await one(api, job)
                is_another = what == "retry" and job not in (after.id, after.job_id)
                state = f"{after.state} as {after.job_id}" if is_another else after.state
                rows.append({"job": job, "state": state, "refused": ""})
                if after.reattached:
                    note(f"job {job}: dependents that wait for the new run: {after.reattached}")
            except JobNotFound as error:
                codes.add(NOT_FOUND)
                refused = str(await add_hint(api, job, error))
                rows.append({"job": job, "state": JobState.UNKNOWN, "refused": refused})
            except JobConflict as error:
                codes.add(CONFLICT)
                rows.append({"job": job, "state": error.state, "refused": str(error)})
        return rows, codes

    rows, codes = ask(run)
    print_rows(_ACTED_COLUMNS, rows)
    return max(codes)


def done_text(done: float, total: float | None) -> str:
    """Describe the progress of a job for people."""
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
        # The first line of the error, or what a suspended job waits for.
        "reason": job.summary,
    }
