"""Declarations: ensure that the objects which messages need exist.

Found and declared objects are remembered for one generation of the connection: after a reconnect the broker may be
another node, or one that lost its data, so everything is checked once more. An operator may also delete some of it
while the app runs, and delayed messages would wait behind the gap forever. So a process that consumes checks all of
it at intervals (`look_after`), and declares what is missing.

Queues on demand (`queues_on_demand`) are declared by `restore` or `make_deliverable`, when a message needs them. From
then on this process treats them like the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from taskmq.contracts.loggers import contained_logger
from taskmq.errors import QueueMissing, UnsupportedFeature
from taskmq.model.topology import ReportQueue, WorkQueue, dead_letter_queue, is_work_queue, logical_queue
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.connect.handshake import OPEN_SECONDS
from taskmq_rabbitmq.declare.requests import (
    APPLY,
    EntityMissing,
    are_new,
    check_all,
    declare_all,
    declare_in_order,
    exists,
    first_missing,
    flush_metadata,
    queue_depth,
    visible,
)
from taskmq_rabbitmq.model.entities import (
    Binding,
    Entity,
    Exchange,
    Queue,
    dead_letters,
    delivery_binding,
    entrance,
    events,
    ladder,
    main_queues,
    queues_on_demand,
    report_queue,
    route_binding,
    shared_entities,
    topic_queue,
)
from taskmq_rabbitmq.model.routes import PROVEN, WORK

_log = contained_logger(__name__)
_PATIENCE: Final = OPEN_SECONDS
_AFTER_DELETION: Final = 0.5
_QUORUM_PRIORITIES: Final = (4, 3)
# Bindings cannot be checked, only declared again, which costs the broker more: at one check of this many.
_BINDINGS_EVERY: Final = 10


_Declare = Callable[[Connection, Iterable[Entity]], Awaitable[None]]


class Declarations:
    """Objects that this process has declared or found.

    Args:
        connection: returns the connection for requests; called before each use.
        passive: check instead of declaring: a missing object is an error, and no configure permission is needed.
        keeps: the stream of dead letters with its exchange, if it is enabled.
        made: called with a queue on demand once it exists, and may be new.
    """

    def __init__(
        self,
        connection: Callable[[], Connection],
        *,
        passive: bool = False,
        keeps: tuple[Entity, ...] = (),
        made: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._archive = keeps
        self._passive = passive
        self._made = made
        self._settle = check_all if passive else declare_all
        self._declare_all = check_all if passive else declare_in_order
        # No task needs the exchange of events: without declaring, it is not checked here.
        self._shared = shared_entities() if passive else (*shared_entities(), *events())
        self._lock = asyncio.Lock()
        self._queues: dict[str, WorkQueue] = {}
        self._seen_on: tuple[Connection, int] | None = None
        self._complete: set[WorkQueue] = set()
        self._deliverable: set[str] = set()
        self._known: set[str] = set()
        self._has_shared = False
        self._ladder_is_doubtful = False
        self._bound: dict[tuple[str, str], tuple[Entity, ...]] = {}
        self._looks = 0

    def is_declared(self, queue: str) -> bool:
        """Return whether the physical `queue`, or the queue it belongs to, was declared here."""
        return logical_queue(queue) in self._queues

    def is_known(self, queue: str) -> bool:
        """Return whether the physical `queue`, one on demand, was found or declared here."""
        return queue in self._known

    def note_found(self, queue: str) -> None:
        """Record that the physical `queue`, one on demand, exists: it is checked from now on."""
        if self.is_declared(queue):
            self._known.add(queue)

    def deliverable(self, queue: str) -> bool:
        """Return whether the physical `queue` is known to be bound to the end of the delay ladder, or to letters."""
        self._forget_other_generations()
        return queue in self._deliverable

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        """Declare objects that are not known to exist. Queues on demand are left to their first message.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: an object exists with other properties.
            UnsupportedFeature: this RabbitMQ does not support a setting of a queue.
        """
        queues = list(queues)
        async with self._lock:
            await self._connection().wait_open(_PATIENCE)
            self._forget_other_generations()
            missing = {queue: self._entities_for(queue) for queue in queues if queue not in self._complete}
            is_new = not self._passive and await are_new(self._connection(), missing.values())
            await self._ensure_shared()
            for queue in queues:
                if queue in missing:
                    _check_version(queue, self._connection().server_version)
                    await self._declare_beside_shared(missing[queue])
                    self._complete.add(queue)
                    self._deliverable.update(queue.always)
                    self._deliverable.update(self._known.intersection(queue.physical))
                self._queues[queue.name] = queue
            if is_new:
                await flush_metadata(self._connection())

    async def bind(self, queue: str, exchange: str, patterns: Collection[str]) -> None:
        """See `taskmq.contracts.broker.Topical.bind`."""
        await self._connection().wait_open(_PATIENCE)
        entities = topic_queue(queue, exchange, patterns)
        if self._passive:
            # The queue is this process's own; the exchange belongs to others.
            await check_all(self._connection(), [each for each in entities if isinstance(each, Exchange)])
            await declare_all(self._connection(), [each for each in entities if not isinstance(each, Exchange)])
        else:
            await declare_all(self._connection(), entities)
        self._bound[queue, exchange] = entities

    async def declare_reports(self, queues: Iterable[ReportQueue]) -> None:
        """Declare queues for reports, and keep checking them.

        This applies even if nothing else may be declared: only schedulers know these queues.

        Raises:
            AccessDenied: the user may not declare them.
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: an object exists with other properties.
        """
        async with self._lock:
            await self._connection().wait_open(_PATIENCE)
            self._forget_other_generations()
            await self._ensure_shared()
            for queue in queues:
                entities = report_queue(queue)
                await self._declare_beside_shared(entities, declare_in_order)
                self._bound[queue.name, ""] = entities

    async def look_after(self) -> None:
        """Declare again what was declared here and deleted since; does nothing if nothing may be declared.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: an object exists with other properties.
        """
        async with self._lock:
            connection = self._connection()
            if self._passive or not connection.is_open:
                return
            wanted: list[Entity] = [*self._shared, *ladder()] if self._queues else []
            for queue in self._queues.values():
                wanted += self._entities_for(queue)
            for entities in self._bound.values():
                wanted += entities
            if not wanted:
                return
            self._looks += 1
            missing = await first_missing(connection, visible(wanted))
            if missing is not None:
                _log.warning("declaring lost queues and exchanges again: %s", missing)
                await asyncio.sleep(_AFTER_DELETION)
            if missing is not None or self._looks % _BINDINGS_EVERY == 0:
                await declare_all(connection, wanted)

    async def restore(self, queue: str) -> None:
        """Declare and bind the physical `queue` of a message that was returned as unroutable.

        The queue or its binding was deleted since its declaration, or it is a queue on demand. A queue that was not
        declared here is bound if it exists: an earlier version of taskmq, or another client, may have declared it.

        Raises:
            QueueMissing: it was not declared here and does not exist, or nothing may be declared.
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: it exists with other properties.
        """
        work = self._queues.get(logical_queue(queue))
        later = {} if work is None else queues_on_demand(work)
        if work is None or (queue not in later and queue not in {*work.always, dead_letter_queue(queue)}):
            await self._adopt(queue)
            return
        if self._passive:
            raise QueueMissing(queue, APPLY)
        if queue not in later or queue in self._known:
            # A quorum queue that is declared again within some 10 ms of its deletion inherits the old one's
            # consumers, which never get anything (3.10.8).
            await asyncio.sleep(_AFTER_DELETION)
        if queue in later:
            await self._make(queue, later[queue])
        else:
            self._complete.discard(work)
            await self.declare([work])

    async def _adopt(self, queue: str) -> None:
        """Bind a queue that was not declared here.

        Raises:
            QueueMissing: it does not exist, is not a work queue, or nothing may be declared.
        """
        binding = route_binding(queue)
        if self._passive or binding.source != WORK or not is_work_queue(queue):
            raise QueueMissing(queue)
        async with self._lock:
            connection = self._connection()
            await connection.wait_open(_PATIENCE)
            self._forget_other_generations()
            await queue_depth(connection, queue)
            await self._ensure_shared()
            await self._declare_beside_shared([binding])

    async def look_for_letters(self, queues: Iterable[str]) -> None:
        """Check that dead-letter queues of these physical queues exist, if nothing may be declared.

        Raises:
            QueueMissing: a queue has no dead-letter queue.
            BrokerUnavailable: the broker could not be reached.
        """
        if self._passive:
            names = {dead_letter_queue(queue): None for queue in queues if self.is_declared(queue)}
            await check_all(self._connection(), [Queue(name, {}) for name in names])

    def lacks_letters(self, queue: str) -> bool:
        """Return whether RabbitMQ may dead-letter messages of the physical `queue` without a known queue for them."""
        work = self._queues.get(logical_queue(queue))
        dead = dead_letter_queue(queue)
        return (
            work is not None
            and not self._passive
            and work.kind == "quorum"
            and dead not in self._known
            and dead in queues_on_demand(work)
        )

    async def make_deliverable(self, queue: str) -> None:
        """Ensure that the physical `queue` receives messages from the delay ladder, or its letters.

        Raises:
            QueueMissing: it does not exist and was not declared here.
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: an object exists with other properties.
        """
        if (work := self._queues.get(logical_queue(queue))) is not None and queue in work.physical:
            if queue in work.always:
                await self.declare([work])
            else:
                await self._make(queue, queues_on_demand(work)[queue])
            return
        binding = route_binding(queue)
        if binding.source not in PROVEN:
            await self._make_reachable(queue, binding, work)
            return
        async with self._lock:
            connection = self._connection()
            await connection.wait_open(_PATIENCE)
            self._forget_other_generations()
            await queue_depth(connection, queue)
            await self._ensure_shared()
            # Bound in addition to its entrance, the queue would get everything twice.
            has_entrance = await exists(connection, Queue(entrance(queue), {}))
            await self._declare([delivery_binding(queue, entrance(queue) if has_entrance else queue)])
            self._deliverable.add(queue)

    async def _make_reachable(self, queue: str, binding: Binding, work: WorkQueue | None) -> None:
        """Declare and bind a queue of letters; if nothing may be declared, check for it."""
        if work is not None:
            await self._make(queue, dead_letters(work))
            return
        async with self._lock:
            connection = self._connection()
            await connection.wait_open(_PATIENCE)
            self._forget_other_generations()
            await self._ensure_shared()
            if not await exists(connection, Queue(queue, {})):
                raise QueueMissing(queue, APPLY if self._passive else "")
            await self._declare([binding])
            self._deliverable.add(queue)

    async def _make(self, queue: str, entities: tuple[Entity, ...]) -> None:
        """Declare a queue on demand; if nothing may be declared, check for it."""
        was_known = queue in self._known
        async with self._lock:
            await self._connection().wait_open(_PATIENCE)
            self._forget_other_generations()
            is_new = not self._passive and await are_new(self._connection(), [entities])
            await self._ensure_shared()
            await self._declare_beside_shared(entities)
            self._known.add(queue)
            self._deliverable.add(queue)
            if is_new:
                await flush_metadata(self._connection())
        if is_new or not was_known:
            self._made(queue)

    def give_up(self, queue: str) -> None:
        """Stop declaring the physical `queue`, which is about to be deleted."""
        if (work := self._queues.pop(logical_queue(queue), None)) is not None:
            self._complete.discard(work)
        self._deliverable.discard(queue)
        self._known.discard(queue)

    def forget(self) -> None:
        """Check everything again, and declare the whole ladder, because a known object is gone."""
        self._seen_on = None
        self._ladder_is_doubtful = True

    async def _ensure_shared(self) -> None:
        if self._has_shared:
            return
        await self._declare(self._shared)
        if self._ladder_is_doubtful or not await exists(self._connection(), *visible(ladder())):
            await self._settle(self._connection(), ladder())
        if self._archive and not await exists(self._connection(), *visible(self._archive)):
            await self._declare(self._archive)
        self._ladder_is_doubtful = False
        self._has_shared = True

    def _entities_for(self, queue: WorkQueue) -> tuple[Entity, ...]:
        later = queues_on_demand(queue)
        known = [entity for name in later if name in self._known for entity in later[name]]
        return (*main_queues(queue), *known)

    async def _declare_beside_shared(self, entities: Iterable[Entity], declare: _Declare | None = None) -> None:
        declare = declare or self._declare_all
        try:
            await declare(self._connection(), entities)
        except EntityMissing:
            # It existed a moment ago, or an hour ago.
            self._has_shared, self._ladder_is_doubtful = False, True
            await self._ensure_shared()
            await declare(self._connection(), entities)

    async def _declare(self, entities: Iterable[Entity]) -> None:
        await self._declare_all(self._connection(), entities)

    def _forget_other_generations(self) -> None:
        connection = self._connection()
        now = (connection, connection.generation)
        if self._seen_on != now:
            self._seen_on = now
            self._has_shared = False
            self._complete.clear()
            self._deliverable.clear()


def _check_version(queue: WorkQueue, version: tuple[int, ...] | None) -> None:
    if queue.kind == "quorum" and queue.priorities == "native" and (version or ()) < _QUORUM_PRIORITIES:
        known = ".".join(map(str, version)) if version else "unknown"
        raise UnsupportedFeature(
            f"queue {queue.name!r}: priorities='native' on a quorum queue needs RabbitMQ 4.3, not {known}; "
            "use kind='classic' or priorities='classes'"
        )
