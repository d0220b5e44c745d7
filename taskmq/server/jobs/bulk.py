"""`POST /bulk`: one action on many jobs, page by page."""

from contextlib import nullcontext
from typing import Final

from litestar.datastructures import State
from litestar.params import JSONBody

from taskmq.api.job_requests import BulkBody
from taskmq.api.jobs import BulkView
from taskmq.app_api.jobs.orders import priority_number
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven
from taskmq.server.problems import Problem
from taskmq.server.query_time import time_limit

BULK: Final = Handlers("jobs")


@BULK.handle("POST /bulk", "actOnJobs", Permission.JOBS_BULK, "Apply an action to many jobs")
async def act_on_jobs(data: JSONBody[BulkBody], api: ApiGiven, state: State) -> BulkView:
    """Cancels, holds, releases, retries or changes up to `limit` jobs that match a filter, newest first.

    Repeat the request with `next` until it is null. The caller sees the progress, sets the pace, and can stop at any
    time. Changes in a response are durable even if this server dies.
    """
    check_filter(data.filter, everything=data.everything)
    async with time_limit(state["settings"]) if data.dry_run else nullcontext():
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
    """Check that a filter is given, or that everything is selected.

    Raises:
        Problem: neither is given, or the filter is malformed.
    """
    if not text.strip() and not everything:
        raise Problem.about("filter", "give a filter, or everything: true")
    if "\0" in text:
        raise Problem.about("filter", "must not contain NUL characters")
