"""The producer, which sends all calls of an app's tasks."""

import asyncio
import functools
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractContextManager
from typing import Any

from taskmq.client.bulk import (
    LINGER,
    Batches,
    Chunk,
    ConfirmWindow,
    Outcomes,
    chunks_async,
    stream_async,
    stream_sync,
)
from taskmq.client.job_service import JobService
from taskmq.client.lanes import Lanes
from taskmq.client.queues import Queues
from taskmq.client.sessions import Sessions
from taskmq.client.unique import send_all, send_unique, stream_one_by_one_async, stream_one_by_one_sync
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.stores import require_store
from taskmq.errors import InvalidOption
from taskmq.injection.resolve import Dependencies
from taskmq.middleware.chain import Middleware, Sending, open_nothing, send_chain
from taskmq.model.envelope import JSON, Envelope, encode_envelope
from taskmq.model.headers import labels_of
from taskmq.model.jobs.pools import QueuePolicy
from taskmq.model.topology import WorkQueue
from taskmq.options.uniqueness import UniqueCall

Publish = Callable[[WorkQueue, Outgoing, float], Awaitable[None]]
"""Publishes a message to one of the app's queues within a timeout in seconds."""
_Start = Callable[[WorkQueue, Outgoing], Awaitable[None]]


class Producer:
    """`app.producer`: every send of an app goes through it.

    Attributes:
        content_type: the content type of sent messages.
        middleware: the middleware, outermost first.
    """

    def __init__(
        self,
        sessions: Sessions,
        jobs: Callable[[], JobService],
        queues: Queues,
        *,
        content_type: str = JSON,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.sessions: Sessions = sessions
        self.content_type: str = content_type
        self._find_jobs = jobs
        self._queues = queues
        self._lanes = Lanes(sessions.clock.monotonic)
        self.use_middleware(middleware)

    def use_middleware(self, middleware: Sequence[Middleware]) -> None:
        """Use this middleware from now on, outermost first."""
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self._open_send: Callable[[Sending], AbstractContextManager[object]] = send_chain(self.middleware)

    @property
    def jobs(self) -> JobService:
        """The app's jobs, to which store calls are submitted."""
        return self._find_jobs()

    def queue(self, name: str) -> WorkQueue:
        """Return the queue of that name as the app describes it, or with the defaults of `WorkQueue(name)`.

        Raises:
            InvalidOption: the queue name is invalid.
        """
        return self._queues.get(name)

    def queue_for(self, queue: WorkQueue, envelope: Envelope) -> str:
        """Return the RabbitMQ queue for a call sent now.

        Raises:
            InvalidOption: as `WorkQueue.choose_physical`.
        """
        name = queue.choose_physical(priority=envelope.priority, order_key=envelope.order_key)
        if queue.lanes is None:
            return name
        return self._lanes.queue_for(queue, envelope.tenant, is_delayed=envelope.eta is not None)

    def policies(self) -> dict[str, QueuePolicy]:
        """Return the scheduling policies of the app's queues, for stored jobs."""
        return {name: QueuePolicy(policy=self._queues.get(name).policy) for name in self._queues}

    def send_context(self, sending: Sending) -> AbstractContextManager[object]:
        """Return the middleware's context around a call that is not sent to the broker; it may change the call."""
        return self._open_send(sending)

    def send_sync(self, sending: Sending) -> None:
        """Send one call; see `Call.send`."""
        portal = self.sessions.portal("asend")
        with self._open_send(sending):
            portal.call(self._sender_for(sending, self._start), patience=self.sessions.send_timeout)

    async def send_async(self, sending: Sending, *, declares: bool = True) -> None:
        """Send one call; see `Call.asend`.

        Args:
            declares: create a missing queue; otherwise it raises `Unroutable`.
        """
        start = self._start if declares else self._start_undeclared
        with self._open_send(sending):
            await self._sender_for(sending, start)()

    async def send_by(self, publish: Publish, sending: Sending) -> None:
        """Send one call over the caller's own connection; `publish` returns once the message is safe.

        Middleware and unique keys apply as in every send. No queue is declared, and arguments stay in the message.

        Raises:
            InvalidOption: the call goes to the job store.
        """
        patience = self.sessions.send_timeout

        async def start(queue: WorkQueue, message: Outgoing) -> None:
            await publish(queue, message, patience)

        with self._open_send(sending):
            if sending.submission is not None:
                raise InvalidOption(
                    f"task {sending.envelope.task}: the call goes to the job store, which no channel leads to: "
                    "submit it, with connection= for a transaction of yours"
                )
            await self._sender_for(sending, start)()

    def start_send(self, sending: Sending) -> Awaitable[None]:
        """Start `send_async`, without a coroutine if only the broker is involved."""
        if sending.unique is None and sending.submission is None and self._open_send is open_nothing:
            return self._start(*self._message(sending))
        return self.send_async(sending)

    def _sender_for(self, sending: Sending, start: _Start) -> Callable[[], Awaitable[None]]:
        """Return the send function: to the store, to the broker with a unique key, or directly to the broker."""
        if sending.submission is not None:
            return functools.partial(self.jobs.submit_sending, sending)
        if sending.unique is not None:
            return functools.partial(self._send_unique, sending, sending.unique, start)
        return functools.partial(start, *self._message(sending))

    async def _send_unique(self, sending: Sending, call: UniqueCall, start: _Start) -> None:
        session = self.sessions.current()
        claims = require_store(session.stores.claims, f"task {sending.envelope.task}: unique needs")

        async def publish(unique: Sending) -> None:
            await start(*self._message(unique))

        await send_unique(
            sending,
            call,
            claims,
            patience=session.send_timeout,
            publish=publish,
            cancel=self._cancel_replaced if self.sessions.delay == "state" else None,
        )

    async def _cancel_replaced(self, job_id: str, reason: str) -> None:
        await self.jobs.cancel_job(job_id, reason=reason, remember="1d")

    def stream_one_by_one_sync(self, sendings: Iterable[Sending]) -> Iterator[str]:
        """Do what `stream_sync` does, for jobs that query the state first or go to the store."""
        portal, patience = self.sessions.portal("asend_many"), self.sessions.send_timeout
        send = functools.partial(send_all, self.send_async)
        return stream_one_by_one_sync(
            sendings, lambda chunk: portal.call(functools.partial(send, chunk), patience=patience)
        )

    def stream_one_by_one_async(
        self, sendings: Iterable[Sending] | AsyncIterable[Sending]
    ) -> AsyncGenerator[str, None]:
        """Do what `stream_async` does, for jobs that query the state first or go to the store."""
        return stream_one_by_one_async(sendings, functools.partial(send_all, self.send_async))

    def stream_sync(self, sendings: Iterable[Sending], *, linger: float = LINGER) -> Iterator[str]:
        """Send many calls and yield each job's id once it is confirmed; see `Call.send_stream`."""
        portal = self.sessions.portal("asend_many")

        def run(start: Callable[[], Awaitable[list[Outcomes]]]) -> list[Outcomes]:
            # An unfinished stream may be garbage-collected in the portal's thread, where waiting is impossible.
            return [] if portal.is_current else portal.call(start, patience=self.sessions.send_timeout)

        return stream_sync(sendings, self._batches(linger), ConfirmWindow(self._publish_chunk), run)

    def stream_async(
        self, sendings: Iterable[Sending] | AsyncIterable[Sending], *, linger: float = LINGER
    ) -> AsyncGenerator[str, None]:
        """Send many calls and yield each job's id once it is confirmed; see `Call.asend_stream`."""
        return stream_async(sendings, self._batches(linger), ConfirmWindow(self._publish_chunk))

    async def send_many_async(self, sendings: Iterable[Sending] | AsyncIterable[Sending]) -> list[str]:
        """Send many calls; see `Call.asend_many`."""
        return [job_id async for job_ids in self.chunks_async(sendings) for job_id in job_ids]

    def chunks_async(self, sendings: Iterable[Sending] | AsyncIterable[Sending]) -> AsyncGenerator[list[str], None]:
        """Send many calls in chunks of maximum size, and yield the ids of each chunk once it is confirmed."""
        return chunks_async(sendings, self._batches(math.inf), ConfirmWindow(self._publish_chunk))

    def _batches(self, linger: float) -> Batches:
        monotonic = self.sessions.clock.monotonic
        return Batches(open_send=self._open_send, message_of=self._message, linger=linger, monotonic=monotonic)

    def _start(self, queue: WorkQueue, message: Outgoing) -> "asyncio.Future[None] | Coroutine[Any, Any, None]":
        session = self.sessions.current()
        if queue.lanes is not None:
            self._lanes.poll(queue, session)
        if session.is_declared(queue):
            return session.publish(message)
        return session.declare_and_publish(queue, message)

    def _start_undeclared(self, _: WorkQueue, message: Outgoing) -> Awaitable[None]:
        return self.sessions.current().publish(message)

    async def _publish_chunk(self, chunk: Chunk) -> Outcomes:
        session = self.sessions.current()
        for queue in chunk[0]:
            if queue.lanes is not None:
                self._lanes.poll(queue, session)
        return await session.publish_all(*chunk)

    def _message(self, sending: Sending) -> tuple[WorkQueue, Outgoing]:
        envelope = sending.envelope
        queue = self._queues.get(sending.queue)
        priority = envelope.priority
        headers = sending.headers
        if priority is not None or envelope.tenant is not None:
            labels = labels_of(envelope.tenant, priority)
            # Without other headers the message can use the short format.
            headers = {**labels, **headers} if headers else labels
        message = Outgoing(
            queue=self.queue_for(queue, envelope),
            body=encode_envelope(envelope, sending.content_type),
            content_type=sending.content_type,
            job_id=envelope.id,
            task=envelope.task,
            due=envelope.eta,
            enqueued=envelope.enqueued,
            root=envelope.root,
            headers=headers,
            priority=None if queue.priorities == "classes" else queue.native_priority(priority),
        )
        return queue, message


class AppServices:
    """The parts of an app that all its tasks share: the producer, the jobs, and their dependencies.

    Attributes:
        jobs: returns the app's jobs, which are imported on first use.
    """

    __slots__ = ("dependencies", "jobs", "producer")

    def __init__(self, producer: Producer, jobs: Callable[[], JobService], dependencies: Dependencies) -> None:
        self.producer: Producer = producer
        self.jobs: Callable[[], JobService] = jobs
        self.dependencies: Dependencies = dependencies
