"""Doing the same to many jobs of the store that a filter finds, page by page.

A page at a time keeps every process free of state: who drives it sees the progress after each page, goes on from its
`next`, slows down by waiting, and aborts by not going on. Jobs are taken the newest first, from behind the cursor, so
what a bulk makes itself, such as the repetitions of a retry, is never found by its later pages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from taskmq.contracts.jobs import JobRecord
from taskmq.errors import InvalidOption, TaskMQError
from taskmq.model.jobs.bulks import BulkAction, wanted
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.topology import class_of
from taskmq.model.units import Duration, parse_duration
from taskmq.operations.tenant_jobs import TenantJobs

__all__ = ["BulkChange", "BulkPage", "BulkRefusal", "act_on_page", "check_change"]

# Of a store that is asked by others, too.
_AT_A_TIME: Final = 20


class BulkChange(NamedTuple):
    """The details: what `change` makes different, where what is None stays; and what `retry` is of.

    Attributes:
        mode: how a retry runs jobs again that have ended; None: each as suits it.
        again: of jobs that were retried before, too.
    """

    at: datetime | None = None
    delay: Duration | None = None
    priority: int | None = None
    mode: RetryMode | None = None
    again: bool = False


class BulkRefusal(NamedTuple):
    """A job that stayed as it was, and why."""

    record: JobRecord
    error: TaskMQError


class BulkPage(NamedTuple):
    """What became of one page.

    Attributes:
        done: jobs that it was done to, as they were.
        after: where the next page begins; None at the end.
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
    """Do it to up to `limit` jobs that fit; of a retry to those that were not retried before, unless `again` is said.

    Args:
        after: the `after` of the page before.

    Raises:
        InvalidOption: see `check_change`.
        StoreUnavailable: it could not be reached; some may have been done.
    """
    check_change(action, change)
    act = _action(jobs, action, change, note)
    page = await jobs.list(wanted(which, action, again=change.again), after=after, limit=limit)
    done: list[JobRecord] = []
    refused: list[BulkRefusal] = []
    for start in range(0, len(page.jobs), _AT_A_TIME):
        some = page.jobs[start : start + _AT_A_TIME]
        errors = await asyncio.gather(*[_tried(act, record) for record in some])
        for record, error in zip(some, errors, strict=True):
            if error is None:
                done.append(record)
            else:
                refused.append(BulkRefusal(record, error))
    return BulkPage(done, refused, page.after)


def check_change(action: BulkAction, change: BulkChange) -> None:
    """See that a change makes something different, and that no other action is to.

    Raises:
        InvalidOption: a change that changes nothing, one to what cannot be, or another action with a change.
    """
    if action != "change":
        if change._replace(mode=None, again=False) != BulkChange():
            raise InvalidOption(f"{action}: only a change has a time, a delay or a priority")
        if (change.mode or change.again) and action != "retry":
            raise InvalidOption(f"{action}: only a retry has a mode, and is done again to what was retried")
        return
    if change == BulkChange():
        raise InvalidOption("nothing to change: give a time, a delay or a priority")
    if change.at is not None and change.delay is not None:
        raise InvalidOption("a time and a delay: give one of them")
    if change.delay is not None:
        parse_duration(change.delay, what="delay")
    class_of(change.priority)


async def _tried(act: Callable[[JobRecord], Awaitable[object]], record: JobRecord) -> TaskMQError | None:
    try:
        await act(record)
    except TaskMQError as error:
        return error
    return None


def _action(
    jobs: TenantJobs, action: BulkAction, change: BulkChange, note: str
) -> Callable[[JobRecord], Awaitable[object]]:
    if action == "change":
        given: dict[str, Any] = {"at": change.at, "delay": change.delay, "priority": change.priority}
        return lambda record: jobs.change(record.id, note=note, **given)
    if action == "retry":
        return lambda record: jobs.retry(record.id, mode=change.mode, again=change.again, note=note)
    method: Callable[..., Awaitable[object]] = getattr(jobs, action)
    return lambda record: method(record.id, note=note)
