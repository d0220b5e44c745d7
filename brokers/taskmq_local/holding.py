"""Holding messages for inspection or replay."""

import asyncio

from taskmq.errors import QueueMissing
from taskmq_local.database import Database
from taskmq_local.leasing import Lease, LeasedRow
from taskmq_local.ledger import Ledger
from taskmq_local.local_delivery import LocalDelivery
from taskmq_local.work import DatabaseFailure

__all__ = ["Hold"]


class Hold:
    """Messages that were taken together, and of which the rest goes back together."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database = database
        self._ledger = ledger
        self._unsettled: set[int] = set()
        self._rows: asyncio.Future[list[LeasedRow]] = asyncio.get_running_loop().create_future()

    async def take(self, queue: str, limit: int, *, timeout: float) -> list[LocalDelivery]:
        """Up to `limit` messages from the front of `queue`.

        Raises:
            QueueMissing: the queue does not exist.
            DatabaseFailure: they could not be taken within `timeout` seconds.
        """
        self._database.submit(Lease(queue, self._ledger.owner, limit=lambda: limit, done=self._taken))
        try:
            async with asyncio.timeout(timeout):
                rows = await self._rows
        except TimeoutError:
            self._abandon()
            raise DatabaseFailure(f"not done within {timeout:g} s: {self._database.trouble}") from None
        except asyncio.CancelledError:
            self._abandon()
            raise
        self._unsettled = {row[0] for row in rows}
        return [LocalDelivery(row, queue, self) for row in rows]

    def ack(self, id_: int) -> None:
        self._unsettled.discard(id_)
        self._ledger.ack(id_)

    def requeue(self, id_: int) -> None:
        self._unsettled.discard(id_)
        self._ledger.requeue(id_)

    def give_back(self) -> None:
        """Give back what is not settled; settling it later is void."""
        for id_ in self._unsettled:
            self._ledger.requeue(id_)

    def _abandon(self) -> None:
        """Nobody will ever see the rows, be they here already or still to come."""
        if self._rows.done() and not self._rows.cancelled() and self._rows.exception() is None:
            self._ledger.put_back([row[0] for row in self._rows.result()])
        self._rows.cancel()

    def _taken(self, lease: Lease, error: Exception | None) -> None:
        if self._rows.done():
            # Abandoned before they came.
            self._ledger.put_back([row[0] for row in lease.rows])
        elif error is not None:
            self._rows.set_exception(error)
        elif lease.is_missing:
            self._rows.set_exception(QueueMissing(lease.queue))
        else:
            self._rows.set_result(lease.rows)
