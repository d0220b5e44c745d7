"""Exchanges, queues and bindings of taskmq at RabbitMQ, as values in the order of declaration. Pure.

They use only arguments that RabbitMQ 3.10 to 4.3 all accept: existing objects are never deleted and re-created, and
every later declare is refused if a known argument is added or missing.

Of a work queue only the part that every job may need is declared immediately. The queues of the other priority
classes and the dead-letter queue are declared, each with its bindings, when a message first needs them: each queue
costs RabbitMQ memory, and before 4.0 file handles.

A queue with a limit has an entrance, `taskmq.late.Q`: messages from the delay ladder pass through it. Without it a
full queue would block everyone's delays: RabbitMQ takes 32 messages at a time off a level of the ladder, and keeps
refused ones. In the entrance they wait for room, and are offered again every three minutes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

from taskmq.errors import InvalidOption
from taskmq.model.headers import QUEUE_ABOUT, QUEUE_APP
from taskmq.model.topology import (
    PARKING,
    UNROUTABLE,
    ReportQueue,
    WorkQueue,
    dead_letter_queue,
    is_jobs_queue,
    is_parcels_queue,
)
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.routes import ARCHIVE, DEAD_LETTERS, INVITATIONS, REPORTS, WORK, route_to

EVENTS: Final = "taskmq.events"
NEW_QUEUE: Final = "queue.new"
"""Topic of the announcement of a queue on demand once it is declared; the body is its name."""
LISTENER: Final = "taskmq.listener."
"""Prefix of the names of listeners' queues: exclusive ones, which end with their connections."""

Argument = str | int

# 3.10 has no limit by default and 4.x has 20, after which a returned message is lost.
_WORK_DELIVERIES: Final = 100
# With any limit, returned messages go back to the front on every version; -1 destroys them on 3.10.
_UNLIMITED_DELIVERIES: Final = 2**31 - 1
# If the workers that unpack parcels are gone, the scheduler gets their parcels back after this many milliseconds.
_PARCEL_TTL: Final = 60_000
# Five levels, 0 to 4: each is a queue of its own internally.
_HIGHEST_OF_CLASSIC: Final = 4
_BROKERS_OWN: Final = "amq."
_OURS: Final = "taskmq."
_LEVELS: Final = frozenset(map(delay.level_name, range(delay.LEVELS)))
_ABOUT_SHARED: Final[Mapping[str, str]] = {
    PARKING: "messages that are no job, or that no worker knows: `taskmq dlq list taskmq.parking`",
    UNROUTABLE: "jobs whose queue had gone: `taskmq dlq list taskmq.unroutable`",
    ARCHIVE: "copies of dead letters: `taskmq dlq archive`",
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange to declare."""

    name: str
    kind: Literal["direct", "fanout", "topic"]
    arguments: Mapping[str, Argument] = field(default_factory=dict[str, Argument], hash=False)


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue to declare."""

    name: str
    arguments: Mapping[str, Argument] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding: messages that reach `source` with a matching routing key go to `target`."""

    source: str
    target: str
    key: str = ""
    target_kind: Literal["queue", "exchange"] = "queue"


Entity = Exchange | Queue | Binding


def work_queue(queue: WorkQueue) -> tuple[Entity, ...]:
    """Return all queues of `queue` with their bindings; needs `shared` and `ladder`.

    Raises:
        InvalidOption: as for `delivery_binding`.
    """
    later = queues_on_demand(queue).values()
    return (*main_queues(queue), *(entity for entities in later for entity in entities))


def main_queues(queue: WorkQueue) -> tuple[Entity, ...]:
    """Return the part of `work_queue` that is declared immediately.

    Raises:
        InvalidOption: as `delivery_binding`.
    """
    has_letters = () if queue.delivery_limit is None else dead_letters(queue)
    return (*has_letters, *_queues_of_work(queue, queue.always))


def queues_on_demand(queue: WorkQueue) -> dict[str, tuple[Entity, ...]]:
    """Return the part of `work_queue` that is declared on demand, by the queue of the message that needs it.

    Raises:
        InvalidOption: as `delivery_binding`.
    """
    later = {
        name: invitations(queue, name) if is_jobs_queue(name) else _queues_of_work(queue, (name,))
        for name in queue.physical
        if name not in queue.always
    }
    if queue.delivery_limit is not None:
        # With a limit of its own RabbitMQ may write the first dead letter, before any worker does.
        return later
    return {**later, dead_letter_queue(queue.name): dead_letters(queue)}


def invitations(queue: WorkQueue, name: str) -> tuple[Entity, ...]:
    """Return the queue `name` of invitations to stored jobs; RabbitMQ dead-letters them to their reports queue."""
    limits = ("x-max-length", "x-max-length-bytes", "x-max-priority", "x-single-active-consumer")
    arguments = {key: value for key, value in _work_arguments(queue).items() if key not in limits}
    if is_parcels_queue(name):
        arguments["x-message-ttl"] = _PARCEL_TTL
    return (Queue(name, {**arguments, "x-dead-letter-routing-key": name}), route_binding(name))


def dead_letters(queue: WorkQueue) -> tuple[Entity, ...]:
    """Return the dead-letter queue of `queue` and its binding; needs `shared`."""
    dead = dead_letter_queue(queue.name)
    return (Queue(dead, _keeping_arguments()), route_binding(dead))


def report_queue(queue: ReportQueue) -> tuple[Entity, ...]:
    """Return a queue for reports, and for dropped invitations of their jobs; needs `shared`."""
    return (
        Queue(queue.name, _keeping_arguments()),
        route_binding(queue.name),
        *(Binding(DEAD_LETTERS, queue.name, key) for key in queue.letters_of),
    )


def shared_entities() -> tuple[Entity, ...]:
    """Return the exchanges of all apps, and the two queues of messages that no worker takes."""
    return (
        Exchange(WORK, "direct"),
        Exchange(INVITATIONS, "direct"),
        Exchange(REPORTS, "direct"),
        Exchange(UNROUTABLE, "fanout"),
        Queue(UNROUTABLE, _keeping_arguments()),
        Binding(UNROUTABLE, UNROUTABLE),
        Exchange(DEAD_LETTERS, "direct", {"alternate-exchange": UNROUTABLE}),
        Queue(PARKING, _keeping_arguments()),
        route_binding(PARKING),
    )


def topic_queue(name: str, exchange: str, patterns: Collection[str]) -> tuple[Entity, ...]:
    """Return a queue for messages from a topic exchange that belongs to others."""
    # These always exist, and no other exchange of such a name may be declared.
    declared = () if exchange.startswith(_BROKERS_OWN) else (Exchange(exchange, "topic"),)
    return (
        *declared,
        Queue(name, _keeping_arguments()),
        *(Binding(exchange, name, pattern) for pattern in patterns),
    )


def ladder() -> tuple[Entity, ...]:
    """Return the delay ladder, its marker last; needs `shared`."""
    levels = range(delay.LEVELS)
    entities: list[Entity] = [
        # Without the alternate exchange 32 messages for deleted queues block a level for everyone.
        Exchange(delay.DELIVER, "direct", {"alternate-exchange": UNROUTABLE}),
        Exchange(delay.ENTER, "direct"),
        *(Exchange(delay.level_name(level), "direct") for level in levels),
    ]
    for level in levels:
        name = delay.level_name(level)
        entities += (
            Queue(name, _waiting_arguments(delay.level_ttl(level), name)),
            Binding(delay.ENTER, name, delay.enter_key(level)),
            Binding(name, delay.DELIVER, delay.exit_key(level), "exchange"),
        )
    for level in levels:
        name = delay.level_name(level)
        nexts = range(level + 1, min(level + delay.JUMP, delay.LEVELS - 1) + 1)
        entities += (Binding(name, delay.level_name(then), delay.jump_key(level, then)) for then in nexts)
        # The highest level is never passed: there is none beyond it.
        if (beyond := level + delay.JUMP) < delay.LEVELS - 1:
            entities.append(Binding(name, delay.level_name(beyond), delay.pass_key(level), "exchange"))
    return (*entities, ladder_marker())


def ladder_marker() -> Exchange:
    """Return the exchange that is declared last: if it exists, the whole ladder does."""
    return Exchange(delay.READY, "fanout")


def events() -> tuple[Entity, ...]:
    """Return the exchange of announcements, which drops messages without listeners. No task needs it."""
    return (Exchange(EVENTS, "topic"),)


def archive(age: str, size: int) -> tuple[Entity, ...]:
    """Return the stream of dead letters, limited to `age` (such as "30D") and `size` bytes, and its exchange."""
    return (
        Exchange(ARCHIVE, "fanout"),
        Queue(ARCHIVE, {"x-queue-type": "stream", "x-max-age": age, "x-max-length-bytes": size}),
        route_binding(ARCHIVE),
    )


def declared_arguments(queue: Queue, app: str = "") -> dict[str, Argument]:
    """Return the arguments that a queue is declared with: its own, and those that describe it in the console.

    RabbitMQ keeps arguments that it does not know, and does not compare them: a queue that was declared without them,
    or for another app, stays unchanged.

    Args:
        app: the owner of a queue that is not shared by all apps; "": unknown.
    """
    if not queue.name.startswith(_OURS):
        return {**queue.arguments, **({QUEUE_APP: app} if app else {})}
    about = _ABOUT_SHARED.get(queue.name)
    if queue.name in _LEVELS:
        wait = f"{timedelta(milliseconds=int(queue.arguments['x-message-ttl']))}"
        about = f"delayed jobs of all apps, each for {wait} (days, hours:minutes:seconds) on its way up"
    return {**queue.arguments, **({QUEUE_ABOUT: about} if about else {})}


def entrance(queue: str) -> str:
    """Return the queue through which delayed messages reach the physical `queue`, if that has a limit."""
    return f"taskmq.late.{queue}"


def route_binding(queue: str) -> Binding:
    """Return the binding by which an immediate message reaches the physical queue `queue`."""
    exchange, key = route_to(queue)
    return Binding(exchange, queue, key)


def delivery_binding(queue: str, target: str | None = None) -> Binding:
    """Return the binding by which a delayed message reaches the physical queue `queue`, or its entrance `target`.

    Raises:
        InvalidOption: on the ladder the name is a way of other messages.
    """
    if queue.startswith(delay.WAY_MARK):
        raise InvalidOption(f"queue name {queue!r}: must not begin with {delay.WAY_MARK!r}")
    return Binding(delay.DELIVER, target or queue, queue)


def _queues_of_work(queue: WorkQueue, names: Collection[str]) -> tuple[Entity, ...]:
    arguments = _work_arguments(queue)
    queues = tuple(Queue(name, arguments) for name in names)
    bindings = tuple(map(route_binding, names))
    if not queue.is_limited:
        return (*queues, *bindings, *map(delivery_binding, names))
    return (
        *queues,
        *bindings,
        *(Queue(entrance(name), _entrance_arguments(name)) for name in names),
        *(delivery_binding(name, entrance(name)) for name in names),
    )


def _work_arguments(queue: WorkQueue) -> dict[str, Argument]:
    arguments: dict[str, Argument] = {
        "x-queue-type": queue.kind,
        "x-dead-letter-exchange": DEAD_LETTERS,
        "x-dead-letter-routing-key": queue.name,
        "x-overflow": "reject-publish",
    }
    if queue.kind == "quorum":
        arguments |= {
            "x-delivery-limit": queue.delivery_limit or _WORK_DELIVERIES,
            "x-dead-letter-strategy": "at-least-once",
            "x-queue-leader-locator": "balanced",
        }
    elif queue.priorities == "native":
        # Quorum queues of 4.3 have priorities without the argument, and refuse it.
        arguments["x-max-priority"] = _HIGHEST_OF_CLASSIC
    if queue.ordered is not None:
        arguments["x-single-active-consumer"] = True
    if queue.max_length is not None:
        arguments["x-max-length"] = queue.max_length
    if queue.max_bytes is not None:
        arguments["x-max-length-bytes"] = queue.max_bytes
    return arguments


def _entrance_arguments(queue: str) -> dict[str, Argument]:
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": 0,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-queue-leader-locator": "balanced",
    }


def _keeping_arguments() -> dict[str, Argument]:
    return {"x-queue-type": "quorum", "x-delivery-limit": _UNLIMITED_DELIVERIES}


def _waiting_arguments(ttl: int, then: str) -> dict[str, Argument]:
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": ttl,
        "x-dead-letter-exchange": then,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-queue-leader-locator": "balanced",
    }
