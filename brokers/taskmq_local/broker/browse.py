"""Browsing the front of a queue, for inspection and replay."""

import asyncio

from taskmq.contracts.broker import Delivery
from taskmq.errors import BrokerUnavailable, QueueMissing
from taskmq.model.topology import is_shard
from taskmq_embedded.work import Care, FileFailure
from taskmq_local.broker.delivery import LocalDelivery
from taskmq_local.broker.lease import LeaseDeliveries, LeasedRow
from taskmq_local.broker.ledger import Ledger
from taskmq_local.database.database import Database
from taskmq_local.database.tables import leave


class LocalBrowser:
    """A `taskmq.contracts.broker.Browser`: leases messages in portions and requeues the rest together.

    Args:
        number: unique per browser of the broker.
        patience: seconds that leasing a portion may take.
    """

    def __init__(self, database: Database, ledger: Ledger, queue: str, *, number: int, patience: float) -> None:
        self._database = database
        self._ledger = ledger
        self._queue = queue
        self._number = number
        self._patience = patience
        self._unsettled: set[int] = set()

    async def take(self, count: int) -> list[Delivery]:
        """See `taskmq.contracts.broker.Browser`."""
        portion = _Portion(self._ledger)
        self._database.submit(
            LeaseDeliveries(
                self._queue, self._ledger.owner, taker=self._number, limit=lambda: count, done=portion.on_lease
            )
        )
        try:
            async with asyncio.timeout(self._patience):
                rows = await portion.rows
        except TimeoutError:
            portion.abandon()
            raise BrokerUnavailable(f"no answer within {self._patience:g} s: {self._database.trouble}") from None
        except FileFailure as error:
            raise BrokerUnavailable(str(error)) from error
        except asyncio.CancelledError:
            portion.abandon()
            raise
        self._unsettled.update(row[0] for row in rows)
        return [LocalDelivery(row, self._queue, self) for row in rows]

    def ack(self, id_: int) -> None:
        self._unsettled.discard(id_)
        self._ledger.ack(id_)

    async def ack_confirmed(self, id_: int) -> bool:
        self._unsettled.discard(id_)
        return await self._ledger.ack_confirmed(id_)

    def requeue(self, id_: int) -> None:
        self._unsettled.discard(id_)
        self._ledger.requeue(id_)

    def give_back(self) -> None:
        """Requeue all unsettled messages; settling them later has no effect."""
        for id_ in self._unsettled:
            self._ledger.requeue(id_)
        if is_shard(self._queue):
            self._database.post(
                lambda connection: leave(connection, self._ledger.owner, self._number),
                care=Care.LOOSE,
                wakeups=("messages",),
            )


class _Portion:
    """Rows of one lease that is under way."""

    def __init__(self, ledger: Ledger) -> None:
        self.rows: asyncio.Future[list[LeasedRow]] = asyncio.get_running_loop().create_future()
        self._ledger = ledger

    def abandon(self) -> None:
        """Requeue the rows, whether they have arrived or not."""
        if self.rows.done() and not self.rows.cancelled() and self.rows.exception() is None:
            self._ledger.put_back([row[0] for row in self.rows.result()])
        self.rows.cancel()

    def on_lease(self, lease: LeaseDeliveries, error: Exception | None) -> None:
        if self.rows.done():
            # Abandoned before the rows arrived.
            self._ledger.put_back([row[0] for row in lease.rows])
        elif error is not None:
            self.rows.set_exception(error)
        elif lease.is_missing:
            self.rows.set_exception(QueueMissing(lease.queue))
        else:
            self.rows.set_result(lease.rows)
