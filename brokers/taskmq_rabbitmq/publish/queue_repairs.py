"""Repairs: messages that wait until their queue is known to exist, and to be bound to its exchange.

A returned message reached no queue: the queue or its binding was deleted, or it is a queue on demand that no message
has needed before. It is declared and bound, and then waiting messages are published again. Later messages to the same
queue wait behind them, and the declaration waits for messages in transit, which are returned, too: so all messages of
one sender keep their order. If the exchange itself is gone, all messages to it wait as well.

If a class queue cannot be declared from here, because nothing may be declared or because this process does not know
its properties, its messages go to the work queue itself.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from msgspec.structs import replace

from taskmq.contracts.loggers import contained_logger
from taskmq.errors import (
    AccessDenied,
    BrokerUnavailable,
    PublishRejected,
    QueueMissing,
    SendError,
    TaskMQError,
    Unroutable,
)
from taskmq.model.topology import is_class_queue, logical_queue
from taskmq_rabbitmq.declare.declarations import Declarations
from taskmq_rabbitmq.model.routes import route_to
from taskmq_rabbitmq.publish.pending import Pending

_log = contained_logger(__name__)

_PAUSE: Final = 0.2
# Messages in transit are answered within this time, or lose their order.
_ANSWER_SECONDS: Final = 1.0

_Repair = Literal["restore", "make deliverable"]


class QueueRepairs:
    """The repairs of one publisher.

    Args:
        unconfirmed: messages that the publisher sent and the broker has not answered.
        refuse: ends a message with an error.
        resume: publishes messages again, before later ones.

    Attributes:
        waiting: returned messages, and those that may not be published yet, by kind of repair and queue.
    """

    def __init__(
        self,
        declarations: Declarations,
        loop: asyncio.AbstractEventLoop,
        *,
        unconfirmed: Mapping[int, Pending],
        refuse: Callable[[Pending, SendError], None],
        resume: Callable[[list[Pending]], None],
    ) -> None:
        self.waiting: dict[tuple[_Repair, str], list[Pending]] = {}
        # Returned messages may arrive one by one, so later ones are kept apart.
        self._behind: dict[str, list[Pending]] = {}
        # By missing exchange: the queue whose repair declares it again.
        self._exchanges: dict[str, str] = {}
        self._declarations = declarations
        self._loop = loop
        self._unconfirmed = unconfirmed
        self._refuse = refuse
        self._resume = resume
        self._answered = asyncio.Event()
        self._replaced: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def messages(self) -> Iterator[Pending]:
        """Yield all messages that wait for a repair."""
        for some in (*self.waiting.values(), *self._behind.values()):
            yield from some

    def is_behind(self, pending: Pending) -> bool:
        """Have the message wait if others of its queue do; return whether it does."""
        queue = pending.message.queue
        if self._exchanges:
            queue = self._exchanges.get(route_to(queue).exchange, queue)
        if ("restore", queue) not in self.waiting:
            return False
        self._behind.setdefault(queue, []).append(pending)
        return True

    def restore(self, pending: Pending) -> None:
        """Declare the queue of a returned message, and publish it again."""
        self._begin("restore", pending, self._declarations.restore)

    def restore_exchange(self, pending: Pending) -> None:
        """Declare the missing exchange of the message, and its queue; then publish it again."""
        queue = pending.message.queue
        self._exchanges.setdefault(route_to(queue).exchange, queue)
        self.restore(pending)

    def make_deliverable(self, pending: Pending) -> None:
        """Ensure that the queue of a delayed message is bound to the ladder, and then publish the message."""
        self._begin("make deliverable", pending, self._declarations.make_deliverable)

    def on_answer(self) -> None:
        """Continue repairs, because the broker has answered for messages in transit."""
        self._answered.set()

    async def close(self) -> None:
        """Stop all repairs of queues."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, repair: _Repair, pending: Pending, run: Callable[[str], Awaitable[None]]) -> None:
        queue = pending.message.queue
        waiting = self.waiting.setdefault((repair, queue), [])
        waiting.append(pending)
        if len(waiting) == 1:
            task = self._loop.create_task(self._run(repair, queue, run), name=f"taskmq {repair} {queue}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, repair: _Repair, queue: str, run: Callable[[str], Awaitable[None]]) -> None:
        refused: Callable[[], SendError] | None = None
        instead: str | None = None
        if repair == "restore":
            await self._all_answered(queue)
        try:
            await run(queue)
        except QueueMissing as error:
            if is_class_queue(queue):
                instead = logical_queue(queue)
            else:
                refused = partial(Unroutable, queue, *filter(None, [error.hint]))
        except AccessDenied as error:
            refused = partial(AccessDenied, str(error))
        except BrokerUnavailable:
            # Retried after a moment, within the deadlines.
            await asyncio.sleep(_PAUSE)
            for pending in self.waiting[repair, queue]:
                pending.restored = False
        except TaskMQError as error:
            refused = partial(PublishRejected, f"nothing was sent: {error}")
        self._exchanges = {name: place for name, place in self._exchanges.items() if place != queue}
        behind = self._behind.pop(queue, []) if repair == "restore" else []
        waiting = [pending for pending in (*self.waiting.pop((repair, queue)), *behind) if not pending.over]
        # If the exchange was missing, messages for other queues have waited, too.
        its = [pending for pending in waiting if pending.message.queue == queue]
        if refused is not None:
            for pending in its:
                self._refuse(pending, refused())
            waiting = [pending for pending in waiting if pending.message.queue != queue]
        elif instead is not None:
            self._replace(its, queue, instead)
        if waiting:
            self._resume(waiting)

    async def _all_answered(self, queue: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while any(pending.message.queue == queue for pending in self._unconfirmed.values()):
                    self._answered.clear()
                    await self._answered.wait()

    def _replace(self, waiting: Sequence[Pending], missing: str, queue: str) -> None:
        if missing not in self._replaced:
            self._replaced.add(missing)
            _log.warning(
                "queue %r does not exist, and this user cannot declare it: its jobs go to %r and lose their "
                "priority; run `taskmq topology apply` as a user with configure permission",
                missing,
                queue,
            )
        for pending in waiting:
            pending.message = replace(pending.message, queue=queue)
            pending.restored = False
