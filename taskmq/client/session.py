"""One event loop's connections of an app: its broker, its state, and what was declared through them."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from taskmq.client.delayed import to_outgoing, to_waiting
from taskmq.client.large_values import LargeArguments, LargeClaims, LargeResults, LargeValues
from taskmq.client.queues import StatePauses
from taskmq.contracts.broker import Broadcasting, Broker, Outgoing, PublishingMany
from taskmq.contracts.stores import BlobStore, Coordinator, DelayStore, State, Stores, TakenMessage
from taskmq.contracts.system_clock import SystemClock
from taskmq.durable.relay import Relay
from taskmq.durable.task_set import TaskSet
from taskmq.errors import (
    BrokerUnavailable,
    PublishUnknown,
    QueueMissing,
    SendError,
    StateUnavailable,
    TooLarge,
    TopologyMismatch,
    Unroutable,
)
from taskmq.model.clock import Clock
from taskmq.model.topology import WorkQueue, is_class_queue, logical_queue

if TYPE_CHECKING:
    from taskmq.contracts.jobs import JobStore, PauseStore

__all__ = ["Session"]


class Session:
    """Owned by one loop. Nothing connects before it is used.

    Attributes:
        send_timeout: seconds.
        announcer: the broker, where it can announce something.
        delays: where messages wait for their time, instead of at the broker.
        state: the adapter of the shared state; None where there is none.
        store: the job store; None where there is none.
        stores: what serves each capability; the values of results and claims that have more than `inline` bytes are
            in `blobs`.
        arguments: those that are not in their messages; None where there is no place for them.
    """

    def __init__(
        self,
        broker: Broker,
        state: State | None,
        *,
        send_timeout: float,
        store: "JobStore | None" = None,
        delays: DelayStore | None = None,
        blobs: BlobStore | None = None,
        inline: int = 0,
        arguments: LargeArguments | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.broker = broker
        self.announcer: Broadcasting | None = broker if isinstance(broker, Broadcasting) else None
        self.state = state
        self.store = store
        self.send_timeout = send_timeout
        self.delays = delays
        self.arguments = arguments
        self._blobs = blobs
        self._clock: Clock = clock or SystemClock()
        self.stores: Stores = Stores(state)
        self.large_values: LargeValues | None = (
            None if blobs is None else LargeValues(blobs, self._clock, inline=inline)
        )
        if state is not None and (large := self.large_values) is not None:
            self.stores = Stores(
                state, results=LargeResults(state.results, large), claims=LargeClaims(state.claims, large)
            )
        self._declared: set[str] = set()
        self._last_words: list[Callable[[], None]] = []
        self._beside = TaskSet("session", failure="what was looked up beside the sends failed")

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out something for which no send waits; it is cancelled when the session ends."""
        self._beside.start(work)

    def before_close(self, say: Callable[[], None]) -> None:
        """Call this when the session ends, while its connections are still there."""
        self._last_words.append(say)

    @property
    def coordinator(self) -> Coordinator | None:
        """Where locks and members of groups are: the state, or where there is none the job store."""
        if self.state is not None:
            return self.state.leases
        return None if self.store is None else self.store.dispatching.leases

    @property
    def pauses(self) -> "PauseStore | None":
        """The paused queues: in the state, or if there is none, in the job store."""
        return self.store if (schedules := self.stores.schedules) is None else StatePauses(schedules)

    async def declare(self, queues: Sequence[WorkQueue]) -> None:
        """Make sure that the queues exist, once per session.

        Raises:
            BrokerUnavailable: not within the send timeout.
            TopologyMismatch: a queue exists with other properties.
        """
        missing = [queue for queue in queues if queue.name not in self._declared]
        if not missing:
            return
        end = asyncio.get_running_loop().time() + self.send_timeout
        # On its own, so that a broker which is not there says what it is that fails.
        await self.broker.connect(timeout=self.send_timeout)
        try:
            async with asyncio.timeout_at(end):
                await self.broker.declare(missing)
        except TimeoutError:
            raise BrokerUnavailable(
                f"{self.broker.address} did not declare its queues within {self.send_timeout:g} s"
            ) from None
        self._declared.update(queue.name for queue in missing)

    def is_declared(self, queue: WorkQueue) -> bool:
        return queue.name in self._declared

    def publish(self, message: Outgoing) -> "asyncio.Future[None]":
        """Publish to a queue that was declared; the future ends as the broker's does."""
        if self.arguments is not None and self.arguments.may_be_large(message.body):
            return asyncio.ensure_future(self._publish_large(message))
        if message.due is None:
            return self.broker.publish(message, timeout=self.send_timeout)
        return self._publish(message, timeout=self.send_timeout)

    async def declare_and_publish(self, queue: WorkQueue, message: Outgoing) -> None:
        """Declare the queue where that is needed, and publish one message; returns once the broker has confirmed it.

        Raises:
            SendError: one of its kinds.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self.send_timeout
        await self._declare_to_send([queue])
        message = await self._lightened(message, end)
        # One deadline for all of it.
        await self._publish(message, timeout=max(end - loop.time(), 0))

    async def publish_all(self, queues: Sequence[WorkQueue], messages: Sequence[Outgoing]) -> list[SendError | None]:
        """Publish many, pipelined; what happened to each."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.send_timeout
        try:
            await self._declare_to_send(queues)
        except SendError as error:
            return [error] * len(messages)
        if self.arguments is not None and any(self.arguments.may_be_large(message.body) for message in messages):
            return await self._publish_all_light(messages, end)
        return await self._publish_declared(messages, end)

    async def _publish_declared(self, messages: Sequence[Outgoing], end: float) -> list[SendError | None]:
        left = max(end - asyncio.get_running_loop().time(), 0)
        if self.delays is None or all(message.due is None for message in messages):
            return await self._publish_many(messages, timeout=left)
        return await _outcomes([self._publish(message, timeout=left) for message in messages])

    async def _publish_large(self, message: Outgoing) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.send_timeout
        message = await self._lightened(message, end)
        await self._publish(message, timeout=max(end - loop.time(), 0))

    async def _publish_all_light(self, messages: Sequence[Outgoing], end: float) -> list[SendError | None]:
        # One after the other: a chunk of large arguments is not to be in memory twice.
        failures: dict[int, SendError] = {}
        light = list[Outgoing]()
        for place, message in enumerate(messages):
            try:
                light.append(await self._lightened(message, end))
            except SendError as error:
                failures[place] = error
        outcomes = iter(await self._publish_declared(light, end))
        return [failures[place] if place in failures else next(outcomes) for place in range(len(messages))]

    async def _lightened(self, message: Outgoing, end: float) -> Outgoing:
        """The message, with a reference to its arguments where they are large."""
        if self.arguments is None or not self.arguments.may_be_large(message.body):
            return message
        try:
            async with asyncio.timeout_at(end):
                body = await self.arguments.lighten(
                    message.body, message.content_type, job_id=message.job_id, due=message.due
                )
        except StateUnavailable as error:
            raise BrokerUnavailable(f"nothing was sent: {error}") from error
        except TimeoutError:
            raise BrokerUnavailable(
                f"nothing was sent: no place took the arguments of job {message.job_id} in {self.send_timeout:g} s"
            ) from None
        return message if body is message.body else msgspec.structs.replace(message, body=body)

    async def _declare_to_send(self, queues: Sequence[WorkQueue]) -> None:
        try:
            await self.declare(queues)
        except QueueMissing as error:
            # Where nothing may be declared, a missing queue is the sender's: nothing was sent.
            raise Unroutable(error.queue, *filter(None, [error.hint])) from error

    def delay_relay(self, queue: Callable[[str], WorkQueue] = WorkQueue) -> Relay[TakenMessage] | None:
        """What publishes the delayed jobs that wait in the state; None where they wait at the broker.

        Args:
            queue: what a queue of that name is to be.
        """
        if self.delays is None:
            return None
        return Relay(
            "delayed jobs",
            self.delays,
            outgoing=lambda taken: to_outgoing(taken.message),
            publish=partial(self._publish_due, queue),
            seconds=self.send_timeout,
            clock=self._clock,
        )

    async def _publish_due(
        self, queue: Callable[[str], WorkQueue], messages: Sequence[Outgoing]
    ) -> list[SendError | None]:
        # The first message of a priority class: what its queue is to be only a declaration tells the broker. A queue
        # that has gone altogether is not made anew for what is left over.
        for name in {logical_queue(message.queue) for message in messages if is_class_queue(message.queue)}:
            with contextlib.suppress(BrokerUnavailable, QueueMissing, TopologyMismatch):
                if name not in self._declared and await self.broker.stats([name]):
                    await self.declare([queue(name)])
        return await self.publish_now(messages)

    async def publish_now(self, messages: Sequence[Outgoing]) -> list[SendError | None]:
        """Publish many to the broker, whatever they were to wait for; what happened to each."""
        return await self._publish_many(messages, timeout=self.send_timeout)

    async def _publish_many(self, messages: Sequence[Outgoing], *, timeout: float) -> list[SendError | None]:
        broker = self.broker
        if not isinstance(broker, PublishingMany):
            return await _outcomes([broker.publish(message, timeout=timeout) for message in messages])
        return [_send_error(failure) for failure in await broker.publish_many(messages, timeout=timeout)]

    def _publish(self, message: Outgoing, *, timeout: float) -> "asyncio.Future[None]":
        # The state tells messages apart by their ids: one without an id goes to the broker.
        if self.delays is None or not message.job_id or message.due is None or message.due <= self._clock.now_ms():
            return self.broker.publish(message, timeout=timeout)
        return asyncio.ensure_future(self._set_aside(self.delays, message, message.due, timeout))

    async def _set_aside(self, delays: DelayStore, message: Outgoing, due: int, timeout: float) -> None:
        """Have the message wait in the state. It never goes to the broker instead, where no caller would find it."""
        limit = self.broker.max_message_bytes
        if len(message.body) > limit:
            raise TooLarge(len(message.body), limit, f"the message of job {message.job_id}")
        try:
            async with asyncio.timeout(timeout):
                await delays.put(to_waiting(message, due=due))
        except StateUnavailable as error:
            if error.is_certain:
                raise BrokerUnavailable(f"the state keeps delayed jobs (delay='state'): {error}") from error
            raise PublishUnknown(f"job {message.job_id} may or may not wait in the state: {error}") from error
        except TimeoutError:
            raise PublishUnknown(
                f"job {message.job_id} may or may not wait in the state: no answer within {timeout:g} s"
            ) from None

    async def aclose(self) -> None:
        """Close both; what was published is with the broker before this returns."""
        await self._beside.aclose()
        for say in self._last_words:
            say()
        try:
            await self.broker.aclose()
        finally:
            async with contextlib.AsyncExitStack() as stack:
                for each in (self._blobs, self.store, self.state):
                    if each is not None:
                        stack.push_async_callback(each.aclose)


async def _outcomes(futures: "Sequence[asyncio.Future[None]]") -> list[SendError | None]:
    for future in futures:
        # A caller that is cancelled here looks at none of them.
        future.add_done_callback(_seen)
    if futures:
        await asyncio.wait(futures)
    return [_send_error(future.exception()) for future in futures]


def _seen(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()


def _send_error(failure: BaseException | None) -> SendError | None:
    if failure is None or isinstance(failure, SendError):
        return failure
    raise failure
