"""Bulk operations page by page: one action on the stored jobs that match a filter.

No process keeps state between pages. The caller sees the progress after each page and continues from its `after`,
slows down by waiting, or aborts by stopping. Jobs come newest first, from after the cursor. Later pages therefore
never match jobs that the bulk itself created, such as retries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from taskmq.contracts.jobs import JobRecord
from taskmq.errors import InvalidOption, TaskMQError
from taskmq.model.jobs.bulks import BulkAction, narrow_filter
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.topology import class_of
from taskmq.model.units import Duration, parse_duration
from taskmq.operations.tenant_jobs import TenantJobs

# The store serves other callers, too.
_AT_A_TIME: Final = 20


class BulkChange(NamedTuple):
    """Options of an action: the new values for `change`, where None keeps the present one, and those of `retry`.

    Attributes:
        mode: how a retry runs ended jobs again; None chooses for each job.
        again: whether to retry jobs that were retried before.
    """

    at: datetime | None = None
    delay: Duration | None = None
    priority: int | None = None
    mode: RetryMode | None = None
    again: bool = False


class BulkRefusal(NamedTuple):
    """A job that was not changed, and why."""

    record: JobRecord
    error: TaskMQError


class BulkPage(NamedTuple):
    """Result of one page.

    Attributes:
        done: jobs that were acted on, as they were before.
        after: cursor of the next page; None at the end.
    """

    done: Sequence[JobRecord]
    refused: Sequence[BulkRefusal]
    after: str | None


async def act_on_page(
    jobs: TenantJobs,
    action: BulkAction,
    which: JobFilter,
    *,
    change: BulkChange = BulkChange(),  # noqa: B008 - a value
    after: str | None = None,
    limit: int = 200,
    note: str = "",
) -> BulkPage:
    """Apply the action to up to `limit` matching jobs. A retry skips jobs retried before, unless `again` is set.

    Args:
        after: the `after` of the previous page.

    Raises:
        InvalidOption: see `check_change`.
        StoreUnavailable: the store could not be reached; some jobs may have been acted on.
    """
    check_change(action, change)
    act = _build_action(jobs, action, change, note)
    page = await jobs.list(narrow_filter(which, action, again=change.again), after=after, limit=limit)
    done: list[JobRecord] = []
    refused: list[BulkRefusal] = []
    for start in range(0, len(page.jobs), _AT_A_TIME):
        some = page.jobs[start : start + _AT_A_TIME]
        errors = await asyncio.gather(*[_attempt(act, record) for record in some])
        for record, error in zip(some, errors, strict=True):
            if error is None:
                done.append(record)
            else:
                refused.append(BulkRefusal(record, error))
    return BulkPage(done, refused, page.after)


def check_change(action: BulkAction, change: BulkChange) -> None:
    """Check that a change has new values, and that the other actions have none.

    Raises:
        InvalidOption: the change is empty or impossible, or another action has new values.
    """
    if action != "change":
        if change._replace(mode=None, again=False) != BulkChange():
            raise InvalidOption(f"{action}: only `change` takes a time, a delay or a priority")
        if (change.mode or change.again) and action != "retry":
            raise InvalidOption(f"{action}: only `retry` takes a mode or `again`")
        return
    if change == BulkChange():
        raise InvalidOption("nothing to change: give a time, a delay or a priority")
    if change.at is not None and change.delay is not None:
        raise InvalidOption("give a time or a delay, not both")
    if change.delay is not None:
        parse_duration(change.delay, what="delay")
    class_of(change.priority)


async def _attempt(act: Callable[[JobRecord], Awaitable[object]], record: JobRecord) -> TaskMQError | None:
    try:
        await act(record)
    except TaskMQError as error:
        return error
    return None


def _build_action(
    jobs: TenantJobs, action: BulkAction, change: BulkChange, note: str
) -> Callable[[JobRecord], Awaitable[object]]:
    if action == "change":
        given: dict[str, Any] = {"at": change.at, "delay": change.delay, "priority": change.priority}
        return lambda record: jobs.change(record.id, note=note, **given)
    if action == "retry":
        return lambda record: jobs.retry(record.id, mode=change.mode, again=change.again, note=note)
    method: Callable[..., Awaitable[object]] = getattr(jobs, action)
    return lambda record: method(record.id, note=note)
