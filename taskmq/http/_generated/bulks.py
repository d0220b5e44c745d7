# Generated from taskmq/http/aio/bulks.py by `python -m tests.house.blocking_client`: change that one.
"""Bulk operations, run by the server."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from taskmq.api.job_requests import BeginBulkBody
from taskmq.api.jobs import BulkOperationList, BulkOperationView
from taskmq.api.values import PriorityLevel
from taskmq.http._generated.connection import Calls, every
from taskmq.http.bodies import new_key
from taskmq.http.retries import seconds_of_duration
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import Duration
from taskmq.operations.bulks import BulkAction

_POLL_SECONDS: Final = 0.5


class BulkCalls(Calls):
    """Bulk operations by id. Servers and schedulers run them, independent of the caller."""

    def begin(
        self,
        action: BulkAction,
        filter: str = "",  # noqa: A002 - the parameter's name in the API
        *,
        everything: bool = False,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: PriorityLevel | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        rate: float | None = None,
        note: str = "",
        key: str | None = None,
    ) -> BulkOperationView:
        """Start an action on all jobs that match a filter; `jobs.act` with `dry_run` counts them first.

        Args:
            everything: match all jobs, instead of a filter.
            at, delay, priority: the new values, for `change`.
            mode: how to retry, see `jobs.retry`.
            again: also `retry` jobs that were already retried.
            rate: the maximum number of jobs per second.
            key: an idempotency key; repeating it returns the same operation. Default: a new one, used for retries of
                this request.

        Raises:
            JobConflict: another operation has the key.
        """
        body = BeginBulkBody(
            action=action,
            filter=filter,
            everything=everything,
            schedule_time=at,
            delay=seconds_of_duration(delay, "delay"),
            priority=priority,
            mode=mode,
            again=again,
            rate=rate,
            note=note,
        )
        return self._connection.ask("beginBulk", BulkOperationView, body=body, key=key or new_key())

    def get(self, bulk_id: str) -> BulkOperationView:
        """Return an operation with its progress."""
        return self._connection.ask("getBulk", BulkOperationView, path={"bulk_id": bulk_id})

    def wait(self, bulk_id: str, *, every: float = _POLL_SECONDS) -> BulkOperationView:
        """Wait until the operation is done or aborted, polling every `every` seconds, and return it."""
        while (found := self.get(bulk_id)).state == "running":
            time.sleep(every)
        return found

    def abort(self, bulk_id: str) -> BulkOperationView:
        """Stop an operation. Up to 20 jobs may still be in progress."""
        return self._connection.ask("abortBulk", BulkOperationView, path={"bulk_id": bulk_id})

    def page(self, *, limit: int = 50, cursor: str | None = None) -> BulkOperationList:
        """Return a page of operations, newest first."""
        return self._connection.ask("listBulks", BulkOperationList, query={"limit": limit, "cursor": cursor})

    def list(self, *, page_size: int = 200) -> Iterator[BulkOperationView]:
        """Iterate over all operations, newest first."""
        return every(lambda cursor: self.page(limit=page_size, cursor=cursor))
