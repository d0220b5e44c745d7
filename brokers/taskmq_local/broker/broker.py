"""`local://PATH`: a broker for the processes of one host, in one SQLite file."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from taskmq.contracts.broker import BrokerOptions, Browser, Delivery, Outgoing, QueueStats, Subscription
from taskmq.contracts.broker_abilities import ignore_connection
from taskmq.contracts.finding import Finding
from taskmq.errors import BrokerUnavailable, QueueMissing, TooLarge
from taskmq.model.topology import ReportQueue, WorkQueue
from taskmq_embedded.work import Care, FileFailure
from taskmq_local.broker.administration import (
    delete_queue,
    diagnose_rights,
    purge_some,
    queue_stats,
    register_consumer,
    register_owner,
)
from taskmq_local.broker.browse import LocalBrowser
from taskmq_local.broker.consumer import LocalConsumer
from taskmq_local.broker.ledger import Ledger
from taskmq_local.broker.listener import MAX_PENDING, LocalListener, last_broadcast, write_broadcast
from taskmq_local.broker.publish_batch import PublishBatch, PublishOutcomes
from taskmq_local.database.database import Database
from taskmq_local.database.maintenance import Maintenance, MaintenanceWork
from taskmq_local.database.owners import Owner, collect_dead_owners
from taskmq_local.database.tables import create_queues, give_back_all
from taskmq_local.rules.capacity import MAX_MESSAGE_BYTES, Capacity, queues_of
from taskmq_local.rules.topics import MAX_TOPIC_BYTES

T = TypeVar("T")

_PATIENCE: Final = 30.0
_CLOSING: Final = 5.0


class LocalBroker:
    """A file, as used by one event loop of one process."""

    def __init__(self, address: str, path: Path, options: BrokerOptions) -> None:
        self._address = address
        self._clock = options.clock
        self._path = path
        self._database = Database(path, name=options.name, is_shared=True)
        self._declared: dict[str, Capacity] = {}
        self._batch: PublishBatch | None = None
        self._owner: Owner | None = None
        self._ledger: Ledger | None = None
        self._upkeep: Maintenance | None = None
        self._consumers: list[LocalConsumer] = []
        self._listeners: list[LocalListener] = []
        self._announcing = 0
        self._numbers = count(1)
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._consumers)} consumers"
        return f"<LocalBroker {self.address} {state}>"

    @property
    def address(self) -> str:
        return self._address

    @property
    def max_message_bytes(self) -> int:
        return MAX_MESSAGE_BYTES

    @property
    def void(self) -> int:
        """Number of settlements without effect, because the message had been requeued before."""
        return self._ledger.void if self._ledger is not None else 0

    async def connect(self, *, timeout: float) -> None:
        await self._call(lambda _: None, care=Care.READ, timeout=timeout)

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        found = queues_of(queues)
        await self._call(lambda connection: create_queues(connection, found), care=Care.DURABLE)
        self._declared.update(found)

    async def declare_reports(self, queues: Iterable[ReportQueue]) -> None:
        found = {queue.name: Capacity() for queue in queues}
        await self._call(lambda connection: create_queues(connection, found), care=Care.DURABLE)
        self._declared.update(found)

    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if (refusal := self._refusal(message)) is not None:
            future.set_exception(refusal)
        else:
            self._open_batch().add(message, future, loop.time() + timeout)
        return future

    def publish_many(self, messages: Sequence[Outgoing], *, timeout: float) -> asyncio.Future[list[Exception | None]]:
        """See `taskmq.contracts.broker.PublishingMany`."""
        outcomes = PublishOutcomes(len(messages))
        deadline = asyncio.get_running_loop().time() + timeout
        for index, message in enumerate(messages):
            if (refusal := self._refusal(message)) is not None:
                outcomes.set(index, refusal)
            else:
                self._open_batch().add_one_of(outcomes, index, message, deadline)
        return outcomes.future

    async def consume(
        self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]
    ) -> LocalConsumer:
        # Opens the file before creating other files next to it.
        await self._call(lambda _: None, care=Care.READ)
        wanted = list(subscriptions)
        queues = [subscription.queue for subscription in wanted if not subscription.is_paused]
        ledger = self._open_ledger()
        self._start_upkeep()
        consumer = LocalConsumer(self._database, ledger, wanted, deliver, number=next(self._numbers))
        try:
            missing = await self._call(
                lambda connection: register_consumer(connection, ledger.owner, consumer.number, queues),
                care=Care.LOOSE,
            )
        except BaseException:
            # The registration may be committed already.
            consumer.leave()
            raise
        if missing is not None:
            raise QueueMissing(missing)
        self._check_open()
        self._consumers = [other for other in self._consumers if other.is_running]
        self._consumers.append(consumer)
        consumer.start()
        return consumer

    def announce(self, topic: str, body: bytes) -> bool:
        """See `taskmq.contracts.broker.Broadcasting`; `listener` states delays and bounds."""
        if self._is_closed or self._announcing >= MAX_PENDING or len(topic.encode()) > MAX_TOPIC_BYTES:
            return False
        now = self._clock.now_ms()
        self._announcing += 1
        written = self._database.post(
            lambda connection: write_broadcast(connection, topic, body, now),
            care=Care.LOOSE,
            wakeups=("broadcasts",),
        )
        written.add_done_callback(self._on_announcement)
        return True

    async def listen(
        self,
        patterns: Collection[str],
        receive: Callable[[str, bytes], None],
        *,
        connected: Callable[[bool], None] = ignore_connection,
    ) -> LocalListener:
        """See `taskmq.contracts.broker.Broadcasting`; no connection can be lost."""
        del connected
        since = await self._call(last_broadcast, care=Care.READ)
        self._check_open()
        try:
            listener = LocalListener(self._database, patterns, receive, since=since)
        except OSError as error:
            raise BrokerUnavailable(f"{self._database.root}: {error}") from error
        self._listeners.append(listener)
        # Announcements made before its wakeup existed woke only others.
        listener.poll()
        return listener

    @asynccontextmanager
    async def browse(self, queue: str) -> AsyncGenerator[Browser, None]:
        await self._call(lambda _: None, care=Care.READ)
        ledger = self._open_ledger()
        browser = LocalBrowser(self._database, ledger, queue, number=next(self._numbers), patience=_PATIENCE)
        self._submit_upkeep()
        self._database.post(lambda connection: register_owner(connection, ledger.owner), care=Care.LOOSE)
        try:
            yield browser
        finally:
            if not self._is_closed:
                browser.give_back()
                await self._call(lambda _: None, care=Care.READ)

    async def purge(self, queue: str) -> int:
        """Delete the ready messages, but not the delayed ones."""
        self._submit_upkeep()
        return await self._purge(queue)

    async def delete(self, queue: str) -> int:
        """Delete a physical queue with its ready and leased messages; return the number of ready ones.

        Raises:
            QueueMissing: the queue does not exist.
        """
        self._declared.pop(queue, None)
        purged = await self._purge(queue)
        deleted = await self._call(lambda connection: delete_queue(connection, queue), care=Care.DURABLE)
        if deleted is None:
            raise QueueMissing(queue)
        return purged + deleted

    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        names = list(queues)
        self._submit_upkeep()
        return await self._call(lambda connection: queue_stats(connection, names), care=Care.LOOSE)

    async def diagnose(
        self,
        loads: Mapping[WorkQueue, float | None],  # noqa: ARG002 - the file has no time limits of deliveries
        *,
        watch: float = 0,  # noqa: ARG002 - one check suffices
        hands_over: bool = False,  # noqa: ARG002 - as `loads`
    ) -> list[Finding]:
        """See `taskmq.contracts.broker.Diagnosable`."""
        return diagnose_rights(self._path)

    async def aclose(self) -> None:
        if self._closing is None:
            self._is_closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
        # A cancelled close continues and may be awaited again.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for listener in self._listeners:
            listener.end()
        for consumer in self._consumers:
            consumer.halt()
        if self._upkeep is not None:
            self._upkeep.close()
        if self._ledger is not None:
            self._ledger.repeat()
            await self._flush()
            self._ledger.close()
            owner = self._ledger.owner
            self._database.post(
                lambda connection: give_back_all(connection, owner), care=Care.LOOSE, wakeups=("messages",)
            )
        await self._database.aclose(within=_CLOSING)
        if self._owner is not None:
            # Other processes requeue the remaining messages once the name is dead.
            self._owner.release()

    async def _purge(self, queue: str) -> int:
        """Delete the ready messages in portions, so that other users of the file wait for one portion at most."""
        total = 0
        while True:
            purged = await self._call(lambda connection: purge_some(connection, queue), care=Care.DURABLE)
            if purged is None:
                raise QueueMissing(queue)
            total += purged[0]
            if not purged[1]:
                return total

    def _on_announcement(self, _written: asyncio.Future[None]) -> None:
        self._announcing -= 1

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(_CLOSING):
                await self._database.wait_idle()
        except TimeoutError:
            return

    def _open_ledger(self) -> Ledger:
        """Return the ledger under this broker's own name, which counts as alive from now on."""
        self._check_open()
        if self._ledger is None:
            try:
                self._owner = Owner(self._database.root)
            except OSError as error:
                raise BrokerUnavailable(f"{self._database.root}: {error}") from error
            collect_dead_owners(self._database.root)
            self._ledger = Ledger(self._database, self._owner.name)
        return self._ledger

    def _start_upkeep(self) -> None:
        assert self._owner is not None
        assert self._ledger is not None
        if self._upkeep is not None:
            return
        self._upkeep = Maintenance(
            self._database, self._clock, self._owner, poll=self._poll, tick=self._ledger.repeat
        )
        try:
            self._upkeep.start()
        except OSError as error:
            self._upkeep.close()
            self._upkeep = None
            raise BrokerUnavailable(f"{self._database.root}: {error}") from error

    def _poll(self) -> None:
        for consumer in self._consumers:
            consumer.poll()

    def _submit_upkeep(self) -> None:
        """Requeue messages of dead owners and promote due ones, in the transaction of the next work."""
        if not self._is_closed:
            self._database.submit(MaintenanceWork(self._database.root, self._clock, lambda _chores, _error: None))

    def _refusal(self, message: Outgoing) -> BrokerUnavailable | TooLarge | None:
        if self._is_closed:
            return self._closed_error()
        if (size := len(message.body)) > MAX_MESSAGE_BYTES:
            return TooLarge(size, MAX_MESSAGE_BYTES, f"the message of {message.task}")
        return None

    def _open_batch(self) -> PublishBatch:
        if (batch := self._batch) is None or not batch.is_open:
            batch = self._batch = PublishBatch(
                self._clock,
                declared=self._declared,
                trouble=lambda: self._database.trouble,
                unavailable=BrokerUnavailable,
            )
            self._database.submit(batch)
        return batch

    async def _call(
        self,
        function: Callable[[sqlite3.Connection], T],
        *,
        care: Care,
        timeout: float = _PATIENCE,
    ) -> T:
        self._check_open()
        try:
            return await self._database.call(function, care=care, timeout=timeout)
        except FileFailure as error:
            raise BrokerUnavailable(str(error)) from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed_error()

    def _closed_error(self) -> BrokerUnavailable:
        return BrokerUnavailable(f"the broker {self.address} was closed")
