"""A set of subscriptions that recover by themselves."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from taskmq.contracts.broker import Delivery, Subscription
from taskmq.contracts.loggers import contained_logger
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.consume.delivery import DeliveryCounts
from taskmq_rabbitmq.consume.queue_consumer import QueueConsumer
from taskmq_rabbitmq.consume.watchdog import WATCH_SECONDS, Watchdog
from taskmq_rabbitmq.declare.declarations import Declarations
from taskmq_rabbitmq.model import consumer_timeout as timeouts

_log = contained_logger(__name__)


class RabbitMQConsumer:
    """A `taskmq.contracts.broker.Consumer`."""

    def __init__(self, subscriptions: Sequence[QueueConsumer], counts: DeliveryCounts) -> None:
        self._subscriptions = subscriptions
        self._counts = counts
        self._watchdog: Watchdog | None = None
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        subscriptions: Sequence[Subscription],
        deliver: Callable[[Delivery], None],
        *,
        connection: Connection,
        declarations: Declarations,
        counts: DeliveryCounts,
        numbers: Iterator[int],
        watch_seconds: float = WATCH_SECONDS,
        timeout_of_nodes: float | None = timeouts.DEFAULT_SECONDS,
        is_told: Callable[[], bool] = lambda: False,
    ) -> "RabbitMQConsumer":
        """Create a consumer with all subscriptions live, except those of class queues that do not exist yet.

        Args:
            is_told: returns whether announcements of declared queues arrive here now.

        Raises:
            QueueMissing: another queue does not exist and was not declared through this broker object.
            AccessDenied: the user may not connect or not consume.
            BrokerUnavailable: the broker could not be reached.
        """
        loop = asyncio.get_running_loop()
        consumer = cls(
            [
                QueueConsumer(
                    subscription,
                    deliver,
                    connection=connection,
                    declarations=declarations,
                    counts=counts,
                    numbers=numbers,
                    loop=loop,
                    timeout_of_nodes=timeout_of_nodes,
                )
                for subscription in subscriptions
            ],
            counts,
        )
        try:
            # Sequentially, so that nothing else is in progress when one fails.
            for each in consumer._subscriptions:
                if not each.is_paused:
                    await each.start()
        except BaseException:
            await consumer.stop()
            raise
        consumer._watchdog = Watchdog(
            consumer._subscriptions,
            connection=connection,
            declarations=declarations,
            counts=counts,
            interval=watch_seconds,
            is_told=is_told,
        )
        if (
            said := timeouts.warning(subscriptions, connection.server_version, of_nodes=timeout_of_nodes)
        ) is not None:
            _log.warning("%s", said)
        return consumer

    def __repr__(self) -> str:
        return f"<Consumer {' '.join(map(repr, self._subscriptions))}>"

    async def resize(self, queue: str, prefetch: int) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for each in self._subscriptions:
            if each.queue == queue:
                await each.resize(prefetch)

    async def pause(self, queue: str) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for each in self._subscriptions:
            if each.queue == queue:
                await each.pause()

    async def resume(self, queue: str) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for each in self._subscriptions:
            if each.queue == queue:
                await each.resume()

    def settle_within(self, queue: str) -> float | None:
        """See `taskmq.contracts.broker.TimeLimited`."""
        return next((each.settle_within for each in self._subscriptions if each.queue == queue), None)

    @property
    def healthy(self) -> bool:
        return all(each.consuming or each.is_absent or each.is_paused for each in self._subscriptions)

    @property
    def absent(self) -> list[str]:
        """Class queues that do not exist yet, as far as is known."""
        return [each.queue for each in self._subscriptions if each.is_absent]

    def expect(self, queue: str) -> None:
        """Consume the physical `queue`, which was declared, if it is wanted and was absent."""
        for each in self._subscriptions:
            if each.queue == queue:
                each.expect()

    def look(self) -> None:
        """Check whether absent queues exist now."""
        for each in self._subscriptions:
            each.look()

    @property
    def stopped(self) -> bool:
        """Whether it has stopped."""
        return self._stopping is not None and self._stopping.done()

    @property
    def stale_settles(self) -> int:
        """Number of deliveries of this broker object that were settled after their channel had ended."""
        return self._counts.stale_settles

    @property
    def replacements(self) -> int:
        """Number of consumers of this broker object that were found dead and replaced."""
        return self._counts.replacements

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="taskmq consumer stops")
        # A caller that stops waiting, or calls again, changes nothing.
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._watchdog is not None:
            await self._watchdog.stop()
        await asyncio.gather(*(each.stop() for each in self._subscriptions))
