"""`POST /bulk`: the same done to many jobs, page by page."""

from contextlib import nullcontext
from typing import Any, Final

from litestar import post
from litestar.datastructures import State
from litestar.params import JSONBody

from taskmq.api.job_requests import BulkBody
from taskmq.api.jobs import BulkView
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven, priority_number
from taskmq.server.problems import Problem
from taskmq.server.query_time import answered_in_time
from taskmq.server.settings import API

__all__ = ["BULK", "check_filter"]


@post(
    f"{API}/bulk",
    status_code=200,
    permission=Permission.JOBS_BULK,
    operation_id="actOnJobs",
    summary="Do the same to many jobs",
    tags=["jobs"],
)
async def act_on_jobs(data: JSONBody[BulkBody], api: ApiGiven, state: State) -> BulkView:
    """Cancel, hold, release, retry or change jobs that a filter finds, up to `limit` of them, the newest first.

    Go on with `next` until it is null: so the caller sees the progress, sets the pace, and aborts by stopping. What a
    request was answered for is done, whatever becomes of this server.
    """
    check_filter(data.filter, everything=data.everything)
    async with answered_in_time(state["settings"]) if data.dry_run else nullcontext():
        return await api.jobs.act(
            data.action,
            data.filter,
            everything=data.everything,
            dry_run=data.dry_run,
            limit=data.limit,
            cursor=data.cursor,
            at=data.schedule_time,
            delay=data.delay,
            priority=priority_number(data.priority),
            mode=data.mode,
            again=data.again,
            note=data.note,
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
