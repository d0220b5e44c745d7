"""`GET /jobs` and reads of one job."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response
from litestar.datastructures import State
from litestar.params import FromPath, QueryParameter

from taskmq.api.jobs import (
    AttemptList,
    HistoryList,
    JobCount,
    JobCountOf,
    JobCounts,
    JobHistogram,
    JobView,
)
from taskmq.api.problems import FieldProblem
from taskmq.api.values import Instant, ListPage
from taskmq.app_api.jobs.details import expand_job, progress_of_job
from taskmq.app_api.jobs.views import job_view, state_named, states_of, status_words
from taskmq.app_api.views import milliseconds_of, render_all
from taskmq.client.progress import JobProgress
from taskmq.contracts.jobs import JobRecord
from taskmq.model.identity import Permission
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.model.units import did_you_mean
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Limit, OwnJobs, next_link, select_fields
from taskmq.server.live.samples import MaxAge, read_shared
from taskmq.server.problems import Problem
from taskmq.stored_jobs.explanations import Explanation

QUERIES: Final = Handlers("jobs")

_MOST_FILTERS: Final = 20
_EXPANSIONS: Final = ("logs", "retries", "payload", "result", "progress", "options")
_EXPANSIONS_OF_LISTS: Final = ("progress",)

Words = Annotated[
    str | None, QueryParameter(description="`claimed` returns the statuses CLAIMED, PROCESSING, COMPLETED.")
]
Fields = Annotated[str | None, QueryParameter(description="Comma-separated fields to return.")]


@QUERIES.handle("GET /jobs", "listJobs", Permission.JOBS_READ, "List jobs, newest first", may_be_stale=True)
async def list_jobs(
    request: Request[Any, Any, Any],
    jobs: OwnJobs,
    filter: Annotated[  # noqa: A002 - the parameter's name
        str, QueryParameter(description="Filter such as `status:failed task:billing.*`.")
    ] = "",
    status: Annotated[
        str | None,
        QueryParameter(
            description="`queued` (every state before a run), `running`, `completed`, `failed`, `cancelled`, or an "
            "exact state."
        ),
    ] = None,
    # Litestar reserves the name without the suffix.
    state_: Annotated[
        str | None,
        QueryParameter(name="state", description="Comma-separated exact states; `queued` matches only that state."),
    ] = None,
    job_type: Annotated[str | None, QueryParameter(description="A task's name.")] = None,
    start_time: Annotated[Instant | None, QueryParameter(description="Scheduled at or after this time.")] = None,
    end_time: Annotated[Instant | None, QueryParameter(description="Scheduled at or before this time.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    expand: Annotated[str | None, QueryParameter(description="`progress` includes each job's progress.")] = None,
    fields: Fields = None,
    words: Words = None,
) -> Response[list[JobView] | ListPage]:
    """Return jobs that match a filter, page by page.

    Without `cursor` the response is an array, with a `Link` to the next page. With `cursor` it is an object with
    `items` and `next`.
    """
    states = None if status is None else _states(status, "status", states_of)
    if state_ is not None:
        exact = _states(state_, "state", state_named)
        states = exact if states is None else states & exact
        if not states:
            # An empty set of states would match every state.
            return Response([] if cursor is None else ListPage(items=[], next=None, is_bounded=False))
    which = await _filter(jobs, filter, states=states, job_type=job_type, since=start_time, until=end_time)
    expansions = _expansions(expand, _EXPANSIONS_OF_LISTS) | _fields_to_expand(fields, _EXPANSIONS_OF_LISTS)
    page = await jobs.list(which, after=cursor or None, limit=limit)
    progress = await jobs.progress(page.jobs) if expansions else None
    shown: Any = render_all(lambda record: _render(jobs, record, words, fields, progress), page.jobs)
    headers = {} if page.after is None else {"Link": next_link(request, page.after)}
    content = shown if cursor is None else ListPage(items=shown, next=page.after, is_bounded=page.is_bounded)
    return Response(content, headers=headers)


@QUERIES.handle("GET /jobs/count", "countJobs", Permission.JOBS_READ, "Count jobs", may_be_stale=True)
async def count_jobs(
    api: ApiGiven,
    filter: Annotated[str, QueryParameter(description="Filter, as in the list of jobs.")] = "",  # noqa: A002 - the parameter's name
) -> JobCount:
    """Return the number of jobs that match a filter, exact up to 10,000."""
    return await api.jobs.count(filter)


@QUERIES.handle("GET /jobs/histogram", "getJobHistogram", Permission.JOBS_READ, "Count jobs over time")
async def get_histogram(
    api: ApiGiven,
    filter: Annotated[str, QueryParameter(description="Filter, as in the list of jobs.")] = "",  # noqa: A002 - the parameter's name
    bars: Annotated[int, QueryParameter(ge=1, le=60, description="Number of intervals.")] = 30,
) -> JobHistogram:
    """Return the numbers of jobs by state and by the time of their creation, in intervals of equal length.

    The range is that of `created` in the filter, without one the last 24 hours. The newest 1,000
    live and 1,000 ended jobs of each interval are examined; without `is_exact` there may be more.
    """
    return await api.jobs.histogram(filter, bars=bars)


@QUERIES.handle(
    "GET /jobs/counts",
    "countJobsOfFilters",
    Permission.JOBS_READ,
    "Count the jobs of several filters",
    may_be_stale=True,
)
async def count_jobs_of_filters(
    state: State,
    caller: CallerGiven,
    api: ApiGiven,
    filter: Annotated[  # noqa: A002 - the parameter's name
        list[str],
        QueryParameter(min_items=1, max_items=_MOST_FILTERS, description="A filter; repeat it for several."),
    ],
    max_age: MaxAge = 0,
) -> JobCounts:
    """Return the number of jobs for each of up to 20 filters, exact up to 10,000."""

    async def read() -> JobCounts:
        return JobCounts([JobCountOf(text, *msgspec.structs.astuple(await api.jobs.count(text))) for text in filter])

    return await read_shared(state, f"jobs:{caller.tenant!r}:{filter}", max_age, read)


@QUERIES.handle("GET /jobs/{job_id}", "getJob", Permission.JOBS_READ, "Get a job")
async def get_job(
    request: Request[Any, Any, Any],
    job_id: FromPath[str],
    jobs: OwnJobs,
    expand: Annotated[
        str | None,
        QueryParameter(
            description="Comma-separated parts to include: logs, retries, payload, result, progress, options."
        ),
    ] = None,
    fields: Fields = None,
    words: Words = None,
) -> Response[JobView]:
    """Return a job by its submitter's id or the store's id."""
    record = await jobs.get(job_id)
    etag = f'"{record.version}"'
    expansions = _expansions(expand, _EXPANSIONS) | _fields_to_expand(fields, _EXPANSIONS)
    if not expansions and request.headers.get("if-none-match") == etag:
        return Response(None, status_code=304, headers={"ETag": etag})  # type: ignore[arg-type]
    view = msgspec.to_builtins(job_view(record, jobs.name_of(record), words=words))
    names = _names_in(fields)
    # Without `result_problem`, a null could be mistaken for the result.
    can_say = not names or "result_problem" in names
    content: Any = select_fields(view | await expand_job(jobs, record, expansions, can_say=can_say), fields)
    return Response(content, headers={"ETag": etag})


@QUERIES.handle("GET /jobs/{job_id}/history", "getJobHistory", Permission.JOBS_READ, "Get a job's history")
async def get_history(job_id: FromPath[str], api: ApiGiven) -> HistoryList:
    """Return the unusual events of a job with user and reason, oldest first."""
    return HistoryList(list(await api.jobs.history(job_id)))


@QUERIES.handle("GET /jobs/{job_id}/attempts", "getJobAttempts", Permission.JOBS_READ, "List a job's attempts")
async def get_attempts(job_id: FromPath[str], api: ApiGiven) -> AttemptList:
    """Return the attempts of a job, oldest first: workers, times, errors, and what their runs used."""
    return AttemptList(list(await api.jobs.attempts(job_id)))


@QUERIES.handle("GET /jobs/{job_id}/explain", "explainJob", Permission.JOBS_READ, "Explain why a job waits")
async def explain_job(job_id: FromPath[str], api: ApiGiven) -> Explanation:
    """Return what a job waits for, most important first; nothing for an ended job."""
    return await api.jobs.explain(job_id)


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
            raise Problem.about(field, f"unknown {field} {word[:80]!r}", hint)
        found |= meant
    return found


def _fields_to_expand(fields: str | None, known: Sequence[str]) -> set[str]:
    """Return the expansions that `fields` implies."""
    names = {"result" if name == "result_problem" else name for name in _names_in(fields)}
    return names & set(known) - {"retries"}


def _names_in(fields: str | None) -> set[str]:
    return {name.strip() for name in (fields or "").split(",")} - {""}


def _expansions(expand: str | None, known: Sequence[str]) -> set[str]:
    wanted = {name.strip() for name in (expand or "").split(",")} - {""}
    if unknown := sorted(wanted - set(known)):
        error = FieldProblem("expand", f"unknown part {unknown[0][:80]!r}", did_you_mean(unknown[0], known))
        raise Problem(400, "invalid_field", f"expand: {error.message}", errors=[error])
    return wanted


def _render(
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
    return select_fields(msgspec.to_builtins(view) | further, fields)
