# Generated from taskmq/http/aio/bulks.py by `python -m tests.house.blocking_client`: change that one.
"""The same done to many jobs, by the server."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from taskmq.api.job_requests import BeginBulkBody
from taskmq.api.jobs import BulkOperationList, BulkOperationView
from taskmq.api.values import PriorityLevel
from taskmq.http._generated.connection import HttpConnection, every
from taskmq.http.bodies import new_key
from taskmq.http.retries import seconds_of_duration
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import Duration
from taskmq.operations.bulks import BulkAction

__all__ = ["BulkCalls"]

_LOOK: Final = 0.5


class BulkCalls:
    """Bulk operations, by their ids: servers and schedulers carry them out, whatever becomes of the caller."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

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
        """Have the same be done to all jobs that a filter finds; `jobs.act` with `dry_run` says how many there are.

        Args:
            everything: all of them are meant, where there is no filter.
            at, delay, priority: what `change` makes different.
            mode: of a retry, see `jobs.retry`.
            again: `retry` is of jobs that were retried before, too.
            rate: to so many jobs a second.
            key: the same again under it is the same operation. Default: one of this call, which is sent again where
                its outcome is unknown.

        Raises:
            JobConflict: another operation was begun under the key.
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
        """How far it is."""
        return self._connection.ask("getBulk", BulkOperationView, path={"bulk_id": bulk_id})

    def wait(self, bulk_id: str, *, every: float = _LOOK) -> BulkOperationView:
        """The operation once it is done, or aborted; it is asked for each `every` seconds."""
        while (found := self.get(bulk_id)).state == "running":
            time.sleep(every)
        return found

    def abort(self, bulk_id: str) -> BulkOperationView:
        """Have it be done to no more jobs; up to 20 may be under way."""
        return self._connection.ask("abortBulk", BulkOperationView, path={"bulk_id": bulk_id})

    def page(self, *, limit: int = 50, cursor: str | None = None) -> BulkOperationList:
        """A page of them, the last one first."""
        return self._connection.ask("listBulks", BulkOperationList, query={"limit": limit, "cursor": cursor})

    def list(self, *, page_size: int = 200) -> Iterator[BulkOperationView]:
        """All of them, the last one first."""
        return every(lambda cursor: self.page(limit=page_size, cursor=cursor))
