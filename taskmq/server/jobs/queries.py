"""`GET /jobs` and what there is to read of one job."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.params import FromPath, QueryParameter

from taskmq.api.jobs import (
    AttemptList,
    HistoryList,
    JobCount,
    JobCountOf,
    JobCounts,
    JobView,
)
from taskmq.api.problems import FieldProblem
from taskmq.api.values import Instant, ListPage
from taskmq.app_api.jobs.details import expanded, progress_of_job
from taskmq.app_api.jobs.views import job_view, state_named, states_of, status_words
from taskmq.app_api.views import milliseconds_of, rendered
from taskmq.client.progress import JobProgress
from taskmq.contracts.jobs import JobRecord
from taskmq.model.identity import Permission
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.model.units import did_you_mean
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Limit, OwnJobs, next_link, selected
from taskmq.server.live.samples import MaxAge, shared_look
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.stored_jobs.explain import Explanation

__all__ = ["QUERIES", "AttemptList", "HistoryList", "JobCount", "JobCounts"]

_COUNTED: Final = 10_000
_MOST_FILTERS: Final = 20
_EXPANSIONS: Final = ("logs", "retries", "payload", "result", "progress")
_EXPANSIONS_OF_LISTS: Final = ("progress",)

Words = Annotated[str | None, QueryParameter(description="`claimed`: CLAIMED, PROCESSING, COMPLETED as statuses.")]
Fields = Annotated[str | None, QueryParameter(description="Only these fields, with commas between.")]


@get(
    f"{API}/jobs",
    permission=Permission.JOBS_READ,
    operation_id="listJobs",
    summary="List jobs, the newest first",
    tags=["jobs"],
)
async def list_jobs(
    request: Request[Any, Any, Any],
    jobs: OwnJobs,
    filter: Annotated[  # noqa: A002 - the parameter's name
        str, QueryParameter(description="Such as `status:failed task:billing.*`.")
    ] = "",
    status: Annotated[
        str | None,
        QueryParameter(
            description="`queued` (every state before a run), `running`, `completed`, `failed`, `cancelled`, or an "
            "exact state."
        ),
    ] = None,
    # Litestar keeps the name without the suffix for itself.
    state_: Annotated[
        str | None,
        QueryParameter(name="state", description="Exact states, with commas between; `queued` is that state alone."),
    ] = None,
    job_type: Annotated[str | None, QueryParameter(description="A task's name.")] = None,
    start_time: Annotated[Instant | None, QueryParameter(description="Scheduled at or after this instant.")] = None,
    end_time: Annotated[Instant | None, QueryParameter(description="Scheduled at or before this instant.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    expand: Annotated[str | None, QueryParameter(description="`progress`: how far each job is.")] = None,
    fields: Fields = None,
    words: Words = None,
) -> Response[list[JobView] | ListPage]:
    """Jobs that fit a filter, page by page.

    Without `cursor` an array, with `Link` where there are more; with one an object with `items` and `next`.
    """
    states = None if status is None else _states(status, "status", states_of)
    if state_ is not None:
        exact = _states(state_, "state", state_named)
        states = exact if states is None else states & exact
        if not states:
            # No state at all would be any.
            return Response([] if cursor is None else ListPage(items=[], next=None, is_bounded=False))
    which = await _filter(jobs, filter, states=states, job_type=job_type, since=start_time, until=end_time)
    expansions = _expansions(expand, _EXPANSIONS_OF_LISTS) | _fields_to_expand(fields, _EXPANSIONS_OF_LISTS)
    page = await jobs.list(which, after=cursor or None, limit=limit)
    progress = await jobs.progress(page.jobs) if expansions else None
    shown: Any = rendered(lambda record: _shown(jobs, record, words, fields, progress), page.jobs)
    headers = {} if page.after is None else {"Link": next_link(request, page.after)}
    content = shown if cursor is None else ListPage(items=shown, next=page.after, is_bounded=page.is_bounded)
    return Response(content, headers=headers)


@get(
    f"{API}/jobs/count",
    permission=Permission.JOBS_READ,
    operation_id="countJobs",
    summary="Count jobs",
    tags=["jobs"],
)
async def count_jobs(
    api: ApiGiven,
    filter: Annotated[str, QueryParameter(description="As in the list.")] = "",  # noqa: A002 - the parameter's name
) -> JobCount:
    """How many jobs fit a filter, exactly up to 10,000."""
    return await api.jobs.count(filter)


@get(
    f"{API}/jobs/counts",
    permission=Permission.JOBS_READ,
    operation_id="countJobsOfFilters",
    summary="Count the jobs of several filters",
    tags=["jobs"],
)
async def count_jobs_of_filters(
    state: State,
    caller: CallerGiven,
    jobs: OwnJobs,
    filter: Annotated[  # noqa: A002 - the parameter's name
        list[str], QueryParameter(min_items=1, max_items=_MOST_FILTERS, description="Once for each filter.")
    ],
    max_age: MaxAge = 0,
) -> JobCounts:
    """How many jobs fit each of up to 20 filters, exactly up to 10,000."""

    async def look() -> JobCounts:
        return JobCounts([JobCountOf(text, *await _counted(jobs, text)) for text in filter])

    return await shared_look(state, f"jobs:{caller.tenant!r}:{filter}", max_age, look)


@get(
    f"{API}/jobs/{{job_id:str}}",
    permission=Permission.JOBS_READ,
    operation_id="getJob",
    summary="Get a job",
    tags=["jobs"],
)
async def get_job(
    request: Request[Any, Any, Any],
    job_id: FromPath[str],
    jobs: OwnJobs,
    expand: Annotated[
        str | None, QueryParameter(description="Of logs, retries, payload, result, progress; with commas between.")
    ] = None,
    fields: Fields = None,
    words: Words = None,
) -> Response[JobView]:
    """A job by the id that its submitter chose, or by the store's."""
    record = await jobs.get(job_id)
    etag = f'"{record.version}"'
    expansions = _expansions(expand, _EXPANSIONS) | _fields_to_expand(fields, _EXPANSIONS)
    if not expansions and request.headers.get("if-none-match") == etag:
        return Response(None, status_code=304, headers={"ETag": etag})  # type: ignore[arg-type]
    view = msgspec.to_builtins(job_view(record, jobs.name_of(record), words=words))
    names = _names_in(fields)
    # Without its problem, a null would pass for the result.
    can_say = not names or "result_problem" in names
    content: Any = selected(view | await expanded(jobs, record, expansions, can_say=can_say), fields)
    return Response(content, headers={"ETag": etag})


@get(
    f"{API}/jobs/{{job_id:str}}/history",
    permission=Permission.JOBS_READ,
    operation_id="getJobHistory",
    summary="What happened to a job",
    tags=["jobs"],
)
async def get_history(job_id: FromPath[str], api: ApiGiven) -> HistoryList:
    """What happened to a job beside the ordinary steps, the earliest first: by whom, and why."""
    return HistoryList(list(await api.jobs.history(job_id)))


@get(
    f"{API}/jobs/{{job_id:str}}/attempts",
    permission=Permission.JOBS_READ,
    operation_id="getJobAttempts",
    summary="The attempts of a job that did not end it",
    tags=["jobs"],
)
async def get_attempts(job_id: FromPath[str], api: ApiGiven) -> AttemptList:
    """Attempts that did not end the job, the earliest first; the last one is in the job itself."""
    return AttemptList(list(await api.jobs.attempts(job_id)))


@get(
    f"{API}/jobs/{{job_id:str}}/explain",
    permission=Permission.JOBS_READ,
    operation_id="explainJob",
    summary="Why a job waits",
    tags=["jobs"],
)
async def explain_job(job_id: FromPath[str], api: ApiGiven) -> Explanation:
    """What a job waits for, the most important first; nothing for one that has ended."""
    return await api.jobs.explain(job_id)


QUERIES: Final = (list_jobs, count_jobs, count_jobs_of_filters, get_job, get_history, get_attempts, explain_job)


async def _counted(jobs: TenantJobs, text: str) -> tuple[int, bool]:
    count = await jobs.count(await jobs.filter(text), cap=_COUNTED)
    return min(count, _COUNTED), count <= _COUNTED


async def _filter(
    jobs: TenantJobs,
    text: str,
    *,
    states: frozenset[JobState] | None,
    job_type: str | None,
    since: Any,
    until: Any,
) -> JobFilter:
    further: dict[str, Any] = {}
    if states is not None:
        further["states"] = states
    if job_type is not None:
        further["tasks"] = (job_type,)
    if since is not None:
        further["due_from"] = milliseconds_of(since)
    if until is not None:
        further["due_before"] = milliseconds_of(until) + 1
    return await jobs.filter(text, **further)


def _states(text: str, field: str, read: Callable[[str], frozenset[JobState] | None]) -> frozenset[JobState]:
    found: frozenset[JobState] = frozenset()
    for word in text.lower().split(","):
        meant = read(word.strip())
        if meant is None:
            hint = did_you_mean(word, status_words())
            raise Problem.about(field, f"there is no {field} {word[:80]!r}", hint)
        found |= meant
    return found


def _fields_to_expand(fields: str | None, known: Sequence[str]) -> set[str]:
    """The expansions that `fields` names: asking for one of them is enough."""
    names = {"result" if name == "result_problem" else name for name in _names_in(fields)}
    return names & set(known) - {"retries"}


def _names_in(fields: str | None) -> set[str]:
    return {name.strip() for name in (fields or "").split(",")} - {""}


def _expansions(expand: str | None, known: Sequence[str]) -> set[str]:
    wanted = {name.strip() for name in (expand or "").split(",")} - {""}
    if unknown := sorted(wanted - set(known)):
        error = FieldProblem("expand", f"there is no {unknown[0][:80]!r}", did_you_mean(unknown[0], known))
        raise Problem(400, "invalid_field", f"expand: {error.message}", errors=[error])
    return wanted


def _shown(
    jobs: TenantJobs,
    record: JobRecord,
    words: str | None,
    fields: str | None,
    progress: Mapping[str, JobProgress] | None,
) -> Any:
    view = job_view(record, jobs.name_of(record), words=words)
    if progress is None and not fields:
        return view
    further = {} if progress is None else {"progress": progress_of_job(record, progress)}
    return selected(msgspec.to_builtins(view) | further, fields)
