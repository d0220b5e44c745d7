"""Consumers of `local://`: each subscription keeps its prefetch filled."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable
from typing import Final

from taskmq.contracts.broker import Delivery, Subscription
from taskmq.errors import BrokerUnavailable, QueueMissing
from taskmq_embedded.work import Care, FileFailure
from taskmq_local.broker.administration import leave_queue, register_consumer
from taskmq_local.broker.delivery import LocalDelivery, deliver_all
from taskmq_local.broker.lease import LeaseDeliveries
from taskmq_local.broker.ledger import Ledger
from taskmq_local.database.database import Database
from taskmq_local.database.tables import leave

_log = logging.getLogger("taskmq.local")

_PATIENCE: Final = 10.0


class LocalSubscription:
    """A subscription: leases more messages whenever its prefetch has room and some may be ready.

    At most one lease is under way. Settlements made meanwhile join the transaction of the next lease, which therefore
    leases as many messages as were settled.
    """

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        subscription: Subscription,
        deliver: Callable[[Delivery], None],
        *,
        taker: int,
    ) -> None:
        self.is_live = True
        self._database = database
        self._ledger = ledger
        self.queue = subscription.queue
        self._prefetch = subscription.prefetch
        self._deliver = deliver
        self._taker = taker
        self._in_hand = 0
        self.is_paused = subscription.is_paused
        self._is_running = not subscription.is_paused
        self._is_leasing = False
        self._may_be_more = False

    def poll(self) -> None:
        """Lease messages that may have become ready."""
        self._may_be_more = True
        self._lease()

    def stop(self) -> None:
        self._is_running = False

    def pause(self) -> None:
        self.is_paused = True
        self.stop()

    def resume(self) -> None:
        self.is_paused = False
        self._is_running = True
        self.poll()

    def resize(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._lease()

    def ack(self, id_: int) -> None:
        self._in_hand -= 1
        self._ledger.ack(id_)
        self._lease()

    async def ack_confirmed(self, id_: int) -> bool:
        try:
            return await self._ledger.ack_confirmed(id_)
        finally:
            self._in_hand -= 1
            self._lease()

    def requeue(self, id_: int) -> None:
        self._in_hand -= 1
        self._ledger.requeue(id_)
        self.poll()

    def _lease(self) -> None:
        if self._may_be_more and not self._is_leasing and self._is_running and self._in_hand < self._prefetch:
            self._is_leasing = True
            self._database.submit(
                LeaseDeliveries(
                    self.queue, self._ledger.owner, taker=self._taker, limit=self._limit, done=self._on_lease
                )
            )

    def _limit(self) -> int:
        # The next wakeup sets it again, perhaps for messages that this lease already sees.
        self._may_be_more = False
        return self._prefetch - self._in_hand if self._is_running else 0

    def _on_lease(self, lease: LeaseDeliveries, error: Exception | None) -> None:
        self._is_leasing = False
        if error is not None:
            self._report(f"leasing messages of {self.queue!r} failed, will retry: {error}")
            return
        if lease.is_missing:
            self._report(f"queue {self.queue!r} was deleted, waiting for its declaration")
            return
        self.is_live = True
        if not self._is_running:
            self._ledger.put_back([row[0] for row in lease.rows])
            return
        if len(lease.rows) == lease.limit:
            self._may_be_more = True
        self._in_hand += len(lease.rows)
        deliver_all([LocalDelivery(row, self.queue, self) for row in lease.rows], self._deliver)
        self._lease()

    def _report(self, trouble: str) -> None:
        if self.is_live and self._is_running:
            _log.warning("%s", trouble)
        self.is_live = False


class LocalConsumer:
    """Running subscriptions of one `consume` call."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        subscriptions: Iterable[Subscription],
        deliver: Callable[[Delivery], None],
        *,
        number: int,
    ) -> None:
        self.number = number
        self._database = database
        self._ledger = ledger
        self._lines = [LocalSubscription(database, ledger, each, deliver, taker=number) for each in subscriptions]
        self._is_running = True
        self._left: asyncio.Future[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._is_running

    @property
    def healthy(self) -> bool:
        return self._is_running and all(line.is_live or line.is_paused for line in self._lines)

    def start(self) -> None:
        self.poll()

    async def resize(self, queue: str, prefetch: int) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for line in self._lines:
            if line.queue == queue:
                line.resize(prefetch)

    async def pause(self, queue: str) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for line in self._lines:
            if line.queue == queue and not line.is_paused:
                line.pause()
                left = self._database.post(
                    lambda connection: leave_queue(connection, self._ledger.owner, self.number, queue),
                    care=Care.LOOSE,
                    wakeups=("messages",),
                )
                await asyncio.wait({left}, timeout=_PATIENCE)

    async def resume(self, queue: str) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for line in self._lines:
            if line.queue == queue and line.is_paused and self._is_running:
                try:
                    missing = await self._database.call(
                        lambda connection: register_consumer(connection, self._ledger.owner, self.number, [queue]),
                        care=Care.LOOSE,
                        timeout=_PATIENCE,
                    )
                except FileFailure as error:
                    raise BrokerUnavailable(str(error)) from error
                if missing is not None:
                    raise QueueMissing(missing)
                if self._is_running:
                    line.resume()

    def poll(self) -> None:
        """Lease messages that may have become ready."""
        for line in self._lines:
            line.poll()

    def halt(self) -> None:
        """Deliver nothing from now on."""
        self._is_running = False
        for line in self._lines:
            line.stop()

    def leave(self) -> None:
        """Deliver nothing from now on, and unregister in the background."""
        if self._is_running:
            self.halt()
            self._left = self._database.post(self._remove, care=Care.LOOSE, wakeups=("messages",))

    async def stop(self) -> None:
        self.leave()
        if self._left is not None:
            # If removing the row fails, it goes with its owner.
            await asyncio.wait({self._left}, timeout=_PATIENCE)

    def _remove(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM consumers WHERE owner = ? AND number = ?", (self._ledger.owner, self.number))
        leave(connection, self._ledger.owner, self.number)
