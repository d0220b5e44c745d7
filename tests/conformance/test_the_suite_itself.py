"""Brokers that break one promise each: the suite has to notice."""

import asyncio
import inspect
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import pytest
from msgspec.structs import replace

from taskmq.contracts.broker import (
    Broker,
    BrokerOptions,
    Browser,
    Consumer,
    Delivery,
    Outgoing,
    QueueStats,
    Subscription,
)
from taskmq.errors import TaskMQError, Unroutable
from taskmq.model.topology import WorkQueue
from taskmq.testing import FlakyBroker
from taskmq.testing.broker_suite import BrokerSuite
from taskmq_local import forget_memory, open_memory_broker


class _ForgetsAcks(FlakyBroker):
    def __init__(self, inner: Broker) -> None:
        super().__init__(inner)
        self.drop_settles(10**6)


class _RequeuesToTheBack(FlakyBroker):
    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        def change_tag(delivery: Delivery) -> None:
            def requeue() -> None:
                copy = Outgoing(
                    queue=delivery.queue,
                    body=delivery.body,
                    content_type=delivery.content_type or "",
                    job_id=delivery.message_id or "",
                    task=delivery.task or "",
                )
                self.publish(copy, timeout=5).add_done_callback(lambda _: delivery.ack())

            delivery.requeue = requeue  # type: ignore[method-assign]  # that is what is broken here
            deliver(delivery)

        return await super().consume(subscriptions, change_tag)


class _LosesOneInAHundred(FlakyBroker):
    count = 0

    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        self.count += 1
        if self.count % 100:
            return super().publish(message, timeout=timeout)
        lost = asyncio.get_running_loop().create_future()
        lost.set_result(None)
        return lost


class _PublishesTwice(FlakyBroker):
    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        super().publish(message, timeout=timeout)
        return super().publish(message, timeout=timeout)


class _ComesEarly(FlakyBroker):
    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        early = None if message.due is None else message.due - 50
        return super().publish(replace(message, due=early), timeout=timeout)


class _NeverDelays(FlakyBroker):
    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        return super().publish(replace(message, due=None), timeout=timeout)


class _WritesHeadersAsText(FlakyBroker):
    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        headers = {name: str(value) for name, value in message.headers.items()}
        return super().publish(replace(message, headers=headers), timeout=timeout)


class _IsSilentAboutMissingQueues(FlakyBroker):
    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        async def publish() -> None:
            with suppress(Unroutable):
                await publishing

        publishing = super().publish(message, timeout=timeout)
        return asyncio.create_task(publish())


class _PrefetchesOneMore(FlakyBroker):
    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        more = [Subscription(each.queue, each.prefetch + 1) for each in subscriptions]
        return await super().consume(more, deliver)


class _NeverStops(FlakyBroker):
    class _Endless:
        healthy = True

        async def stop(self) -> None:
            """Do nothing."""

        async def resize(self, queue: str, prefetch: int) -> None:
            """Do nothing."""

        async def pause(self, queue: str) -> None:
            """Do nothing."""

        async def resume(self, queue: str) -> None:
            """Do nothing."""

    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        await super().consume(subscriptions, deliver)
        return self._Endless()


class _KeepsItsPrefetch(FlakyBroker):
    class _Rigid:
        healthy = True

        def __init__(self, inner: Consumer) -> None:
            self.stop = inner.stop
            self.pause = inner.pause
            self.resume = inner.resume

        async def resize(self, queue: str, prefetch: int) -> None:
            """Do nothing."""

    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        return self._Rigid(await super().consume(subscriptions, deliver))


class _GoesOnAfterACancelledConsume(FlakyBroker):
    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        consumer = await super().consume(subscriptions, deliver)
        await asyncio.sleep(0.005)
        return consumer


class _ShowsTheLastFirst(FlakyBroker):
    @asynccontextmanager
    async def browse(self, queue: str) -> AsyncGenerator[Browser, None]:
        async with super().browse(queue) as browser:
            yield self._Reversed(browser)

    class _Reversed:
        def __init__(self, inner: Browser) -> None:
            self._inner = inner

        async def take(self, count: int) -> list[Delivery]:
            return (await self._inner.take(count))[::-1]


class _LooksAtTheFrontAgain(FlakyBroker):
    @asynccontextmanager
    async def browse(self, queue: str) -> AsyncGenerator[Browser, None]:
        yield self._Forgetful(super().browse, queue)

    class _Forgetful:
        def __init__(self, browse: Callable[[str], AbstractAsyncContextManager[Browser]], queue: str) -> None:
            self._browse = browse
            self._queue = queue

        async def take(self, count: int) -> list[Delivery]:
            async with self._browse(self._queue) as browser:
                return list(await browser.take(count))


class _SortsItsStats(FlakyBroker):
    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        found = {stats.queue: stats for stats in await super().stats(queues)}
        return [found[name] for name in sorted(found, reverse=True)]


class _ClosesTooSoon(FlakyBroker):
    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def publish() -> None:
            inner = super(_ClosesTooSoon, self).publish(message, timeout=timeout)
            error = inner.exception()
            if answer.done():
                return
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        loop.call_later(0.001, publish)
        return answer


class _LeavesATask(FlakyBroker):
    async def connect(self, *, timeout: float) -> None:
        self.forgotten = asyncio.create_task(asyncio.sleep(3_600))
        await super().connect(timeout=timeout)


class _HasNoTypedEnd(FlakyBroker):
    async def purge(self, queue: str) -> int:
        try:
            return await super().purge(queue)
        except TaskMQError as error:
            raise RuntimeError("closed") from error


class _DeclaresNoDeadLetterQueue(FlakyBroker):
    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        return [each for each in await super().stats(queues) if not each.queue.endswith(".dlq")]


class _DeclaresNothing(FlakyBroker):
    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (_ForgetsAcks, "an_acked_message_is_never_redelivered"),
        (_ForgetsAcks, "closing_waits_for_pending_settlements"),
        (_RequeuesToTheBack, "a_requeued_message_returns_first_and_is_marked_redelivered"),
        (_LosesOneInAHundred, "a_thousand_pipelined_messages_arrive_in_publish_order"),
        (_PublishesTwice, "a_confirmed_message_is_delivered_once"),
        (_PublishesTwice, "an_acked_message_is_never_redelivered"),
        (_ComesEarly, "a_delayed_message_arrives_neither_early_nor_much_too_late"),
        (_ComesEarly, "a_delayed_message_survives_its_publisher_closing"),
        (_NeverDelays, "messages_without_a_delay_overtake_delayed_ones"),
        (_NeverDelays, "delayed_messages_arrive_in_order_of_due_time"),
        (_NeverDelays, "a_delayed_message_is_not_ready_before_it_is_due"),
        (_NeverDelays, "a_purge_keeps_delayed_messages"),
        (_WritesHeadersAsText, "header_values_keep_their_types_and_every_digit"),
        (_IsSilentAboutMissingQueues, "a_message_for_an_undeclared_queue_is_unroutable"),
        (_IsSilentAboutMissingQueues, "an_unroutable_message_does_not_affect_the_rest_of_its_batch"),
        (_PrefetchesOneMore, "the_prefetch_is_never_exceeded_and_each_ack_admits_one_more"),
        (_KeepsItsPrefetch, "a_larger_prefetch_admits_more_beside_unsettled_messages"),
        (_KeepsItsPrefetch, "a_smaller_prefetch_applies_once_unsettled_messages_are_settled"),
        (_NeverStops, "nothing_is_delivered_after_a_consumer_has_stopped"),
        (_NeverStops, "two_consumers_of_one_broker_are_independent"),
        (_GoesOnAfterACancelledConsume, "consume_can_be_cancelled"),
        (_ShowsTheLastFirst, "a_hold_returns_the_front_of_the_queue_in_order"),
        (_LooksAtTheFrontAgain, "browsing_reads_a_queue_in_batches"),
        (_SortsItsStats, "stats_keep_the_requested_order_and_omit_missing_queues"),
        (_ClosesTooSoon, "closing_waits_for_pending_publishes"),
        (_LeavesATask, "connecting_twice_succeeds_and_the_address_is_a_url"),
        (_HasNoTypedEnd, "every_call_on_a_closed_broker_raises"),
        (_DeclaresNoDeadLetterQueue, "shared_queues_are_declared_and_dead_letters_reach_their_queue"),
        (_DeclaresNothing, "a_broker_connects_on_first_use"),
    ],
)
def test_a_broken_promise_is_noticed(broken: type[FlakyBroker], promise: str) -> None:
    server = uuid.uuid4().hex

    class Suite(BrokerSuite):
        patience = 0.5
        deadline = 10

        def open_broker(self, name: str = "") -> Broker:
            return broken(open_memory_broker(f"memory://{server}", BrokerOptions(name=name)))

    try:
        with pytest.raises((AssertionError, TaskMQError, RuntimeError)):
            getattr(Suite(), f"test_{promise}")()
    finally:
        forget_memory(server)


def test_every_test_of_the_suite_is_a_plain_method_that_needs_no_plugin() -> None:
    tests = [name for name in dir(BrokerSuite) if name.startswith("test_")]

    assert len(tests) > 70
    assert not [name for name in tests if inspect.iscoroutinefunction(getattr(BrokerSuite, name))]
