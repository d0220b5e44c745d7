"""The connections of an app in one event loop: its broker, state, store and declared queues."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from taskmq.client.delayed import to_outgoing, to_waiting
from taskmq.client.large_values import LargeArguments, LargeClaims, LargeResults, LargeValues
from taskmq.client.queues import StatePauses
from taskmq.contracts.broker import Broker, Outgoing
from taskmq.contracts.broker_abilities import Broadcasting, PublishingMany
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


class Session:
    """The connections of one event loop. They are opened on first use.

    Attributes:
        send_timeout: seconds.
        announcer: the broker, if it can broadcast.
        delays: stores delayed messages, instead of the broker.
        state: the adapter of the shared state; None if there is none.
        store: the job store; None if there is none.
        stores: the store of each capability. Results and claims of more than `inline` bytes are stored in `blobs`.
        arguments: stores large arguments; None if all arguments stay in their messages.
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
        self._on_close: list[Callable[[], None]] = []
        self._background = TaskSet("session", failure="a background task failed")

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a background task that no send waits for; it is cancelled when the session closes."""
        self._background.start(work)

    def before_close(self, say: Callable[[], None]) -> None:
        """Register a callback for when the session closes, while its connections are still open."""
        self._on_close.append(say)

    @property
    def coordinator(self) -> Coordinator | None:
        """The coordinator of locks and groups: the state, or the job store if there is no state."""
        if self.state is not None:
            return self.state.leases
        return None if self.store is None else self.store.dispatching.leases

    @property
    def pauses(self) -> "PauseStore | None":
        """The paused queues: in the state, or if there is none, in the job store."""
        return self.store if (schedules := self.stores.schedules) is None else StatePauses(schedules)

    async def declare(self, queues: Sequence[WorkQueue]) -> None:
        """Ensure that the queues exist, once per session.

        Raises:
            BrokerUnavailable: not within the send timeout.
            TopologyMismatch: a queue exists with other properties.
        """
        missing = [queue for queue in queues if queue.name not in self._declared]
        if not missing:
            return
        end = asyncio.get_running_loop().time() + self.send_timeout
        # Separately, so that an unreachable broker is reported as such.
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
        """Publish to a declared queue. Returns the broker's future."""
        if self.arguments is not None and self.arguments.may_be_large(message.body):
            return asyncio.ensure_future(self._publish_large(message))
        if message.due is None:
            return self.broker.publish(message, timeout=self.send_timeout)
        return self._publish(message, timeout=self.send_timeout)

    async def declare_and_publish(self, queue: WorkQueue, message: Outgoing) -> None:
        """Declare the queue if needed, and publish a message. Returns once the broker has confirmed it.

        Raises:
            SendError: the message was not sent or not confirmed.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self.send_timeout
        await self._declare_to_send([queue])
        message = await self._lighten(message, end)
        # One deadline for all steps.
        await self._publish(message, timeout=max(end - loop.time(), 0))

    async def publish_all(self, queues: Sequence[WorkQueue], messages: Sequence[Outgoing]) -> list[SendError | None]:
        """Publish many messages, pipelined. Returns the outcome of each."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.send_timeout
        try:
            await self._declare_to_send(queues)
        except SendError as error:
            return [error] * len(messages)
        if self.arguments is not None and any(self.arguments.may_be_large(message.body) for message in messages):
            return await self._publish_all_large(messages, end)
        return await self._publish_declared(messages, end)

    async def _publish_declared(self, messages: Sequence[Outgoing], end: float) -> list[SendError | None]:
        left = max(end - asyncio.get_running_loop().time(), 0)
        if self.delays is None or all(message.due is None for message in messages):
            return await self._publish_many(messages, timeout=left)
        return await _outcomes([self._publish(message, timeout=left) for message in messages])

    async def _publish_large(self, message: Outgoing) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.send_timeout
        message = await self._lighten(message, end)
        await self._publish(message, timeout=max(end - loop.time(), 0))

    async def _publish_all_large(self, messages: Sequence[Outgoing], end: float) -> list[SendError | None]:
        # One at a time, so that a chunk of large arguments is not in memory twice.
        failures: dict[int, SendError] = {}
        light = list[Outgoing]()
        for place, message in enumerate(messages):
            try:
                light.append(await self._lighten(message, end))
            except SendError as error:
                failures[place] = error
        outcomes = iter(await self._publish_declared(light, end))
        return [failures[place] if place in failures else next(outcomes) for place in range(len(messages))]

    async def _lighten(self, message: Outgoing, end: float) -> Outgoing:
        """Return the message, with a reference in place of large arguments."""
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
                f"nothing was sent: storing arguments of job {message.job_id} took more than {self.send_timeout:g} s"
            ) from None
        return message if body is message.body else msgspec.structs.replace(message, body=body)

    async def _declare_to_send(self, queues: Sequence[WorkQueue]) -> None:
        try:
            await self.declare(queues)
        except QueueMissing as error:
            # If declaring is not allowed, the sender gets the error of a missing queue: nothing was sent.
            raise Unroutable(error.queue, *filter(None, [error.hint])) from error

    def delay_relay(self, queue: Callable[[str], WorkQueue] = WorkQueue) -> Relay[TakenMessage] | None:
        """Create the relay that publishes delayed jobs from the state; None if the broker delays them.

        Args:
            queue: returns the description of a queue by name.
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
        # For the first message of a priority class: only a declaration tells the broker the queue's properties. A
        # queue that was deleted is not created again for remaining messages.
        for name in {logical_queue(message.queue) for message in messages if is_class_queue(message.queue)}:
            with contextlib.suppress(BrokerUnavailable, QueueMissing, TopologyMismatch):
                if name not in self._declared and await self.broker.stats([name]):
                    await self.declare([queue(name)])
        return await self.publish_now(messages)

    async def publish_now(self, messages: Sequence[Outgoing]) -> list[SendError | None]:
        """Publish many messages to the broker without delay. Returns the outcome of each."""
        return await self._publish_many(messages, timeout=self.send_timeout)

    async def _publish_many(self, messages: Sequence[Outgoing], *, timeout: float) -> list[SendError | None]:
        broker = self.broker
        if not isinstance(broker, PublishingMany):
            return await _outcomes([broker.publish(message, timeout=timeout) for message in messages])
        return [_send_error(failure) for failure in await broker.publish_many(messages, timeout=timeout)]

    def _publish(self, message: Outgoing, *, timeout: float) -> "asyncio.Future[None]":
        # The state identifies messages by id, so one without an id goes to the broker.
        if self.delays is None or not message.job_id or message.due is None or message.due <= self._clock.now_ms():
            return self.broker.publish(message, timeout=timeout)
        return asyncio.ensure_future(self._delay_in_state(self.delays, message, message.due, timeout))

    async def _delay_in_state(self, delays: DelayStore, message: Outgoing, due: int, timeout: float) -> None:
        """Store the message in the state. It never goes to the broker instead, where no caller would find it."""
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
        """Close all connections. Published messages are with the broker before this returns."""
        await self._background.aclose()
        for say in self._on_close:
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
        # A cancelled caller retrieves none of the results.
        future.add_done_callback(_retrieve_error)
    if futures:
        await asyncio.wait(futures)
    return [_send_error(future.exception()) for future in futures]


def _retrieve_error(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()


def _send_error(failure: BaseException | None) -> SendError | None:
    if failure is None or isinstance(failure, SendError):
        return failure
    raise failure
