"""`POST /bulk`: the same done to many jobs, page by page."""

from typing import Any, Final

from litestar import post
from litestar.datastructures import State
from litestar.params import JSONBody

from taskmq.api.job_requests import BulkBody
from taskmq.api.jobs import BulkView, RefusalView
from taskmq.model.identity import Permission
from taskmq.model.jobs.bulks import wanted
from taskmq.operations.bulks import BulkChange, act_on_page, check_change
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.inputs import CallerGiven, OwnJobs, ServedApp, priority_number
from taskmq.server.problems import Problem, problem_of
from taskmq.server.query_time import answered_in_time
from taskmq.server.settings import API

__all__ = ["BULK", "check_filter"]

_MOST_REFUSALS: Final = 100
_CAP: Final = 100_000


@post(
    f"{API}/bulk",
    status_code=200,
    permission=Permission.JOBS_BULK,
    operation_id="actOnJobs",
    summary="Do the same to many jobs",
    tags=["jobs"],
)
async def act_on_jobs(
    data: JSONBody[BulkBody], app: ServedApp, caller: CallerGiven, jobs: OwnJobs, state: State
) -> BulkView:
    """Cancel, hold, release, retry or change jobs that a filter finds, up to `limit` of them, the newest first.

    Go on with `next` until it is null: so the caller sees the progress, sets the pace, and aborts by stopping. What a
    request was answered for is done, whatever becomes of this server.
    """
    check_filter(data.filter, everything=data.everything)
    change = BulkChange(data.schedule_time, data.delay, priority_number(data.priority), data.mode, data.again)
    check_change(data.action, change)
    if data.dry_run:
        async with answered_in_time(state["settings"]):
            which = wanted(await jobs.filter(data.filter), data.action, again=data.again)
            count = await jobs.count(which, cap=_CAP)
        return BulkView(dry_run=True, matched=min(count, _CAP), done=0, refused=0, refusals=[], next=None)
    which = await jobs.filter(data.filter)
    said = {"filter": data.filter, "cursor": data.cursor}
    await caller.note_action(app, f"jobs.{data.action}", subject="", after=said, note=data.note)
    page = await act_on_page(
        # The request is in the audit; each of its jobs has it in its history.
        TenantJobs(app, caller.tenant, by=caller.name, allows=caller.allows),
        data.action,
        which,
        change=change,
        after=data.cursor,
        limit=data.limit,
        note=data.note,
    )
    return BulkView(
        dry_run=False,
        matched=len(page.done) + len(page.refused),
        done=len(page.done),
        refused=len(page.refused),
        refusals=[_refusal(jobs, *refusal) for refusal in page.refused[:_MOST_REFUSALS]],
        next=page.after,
    )


def check_filter(text: str, *, everything: bool) -> None:
    """See that a filter is said, or that everything is meant.

    Raises:
        Problem: neither, or the filter is none.
    """
    if not text.strip() and not everything:
        raise Problem.about("filter", "which jobs? Say a filter, or everything: true")
    if "\0" in text:
        raise Problem.about("filter", "it has a NUL in it")


BULK: Final[tuple[Any, ...]] = (act_on_jobs,)


def _refusal(jobs: TenantJobs, record: Any, error: Any) -> RefusalView:
    told = problem_of(error)
    return RefusalView(job_id=jobs.name_of(record), code=told.code, detail=told.detail)
