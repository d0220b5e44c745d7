"""Comparison of the wanted topology with the one at RabbitMQ. Pure.

On each declare, RabbitMQ compares the arguments that it knows and refuses differences. This module does the same
beforehand, argument by argument, with explanations.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from msgspec.structs import replace

from taskmq.contracts.topology_plan import Comparison, TopologyEntry
from taskmq.model.topology import TOPIC_QUEUE, WorkQueue, is_node_queue, is_reports_queue, logical_queue
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import (
    LISTENER,
    Argument,
    Binding,
    Entity,
    Exchange,
    Queue,
    entrance,
    queues_on_demand,
    route_binding,
)
from taskmq_rabbitmq.model.routes import ARCHIVE, PROVEN

MIGRATION: Final = "taskmq.migration."

Trait = Argument | bool | float | None

# Arguments that RabbitMQ compares; it ignores differences in others.
_KNOWN: Final = frozenset(
    (
        "alternate-exchange",
        "x-consumer-timeout",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-delivery-limit",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-message-ttl",
        "x-overflow",
        "x-queue-leader-locator",
        "x-queue-type",
        "x-quorum-initial-group-size",
        "x-single-active-consumer",
    )
)
_TAP: Final = "messages for the queue of that name count as routed although it may be gone"
_LATER: Final = "declared when a message first needs it"
_OURS: Final = "taskmq."
_ENTRANCE: Final = entrance("")


@dataclass(frozen=True, slots=True)
class Found:
    """Objects of a virtual host, by name.

    Attributes:
        exchanges: their traits; None if only the existence is known.
        queues: likewise.
        bindings: without arguments; None: unknown.
        complete: whether the list is complete; otherwise it contains only requested objects.
    """

    exchanges: Mapping[str, Mapping[str, Trait] | None] = field(default_factory=dict[str, Mapping[str, Trait] | None])
    queues: Mapping[str, Mapping[str, Trait] | None] = field(default_factory=dict[str, Mapping[str, Trait] | None])
    bindings: frozenset[Binding] | None = frozenset()
    complete: bool = True


def traits(entity: Exchange | Queue) -> dict[str, Trait]:
    """Return all traits by which an exchange or queue is compared."""
    match entity:
        case Exchange(_, kind, arguments):
            return {"type": kind, "durable": True, "auto-delete": False, "internal": False, **arguments}
        case Queue(_, arguments):
            return {"durable": True, "auto-delete": False, "exclusive": False, **arguments}
        case _:
            assert_never(entity)


def compare(
    wanted: Sequence[Entity], found: Found, *, queues: Iterable[WorkQueue], declares: bool = True
) -> Comparison:
    """Return an entry for each wanted object, then for each unwanted one.

    Args:
        wanted: in the order of declaration.
        found: the existing objects.
        queues: the queues that `wanted` was made from; other objects of theirs are left over from a change.
        declares: whether producers and workers declare queues on demand; otherwise absent ones count as missing.
    """
    queues = list(queues)
    later = _not_needed_yet(queues, found) if declares else set[Entity]()
    entries = [
        replace(entry, status="later", detail=_LATER) if entry.status == "missing" and entity in later else entry
        for entity, entry in ((entity, _compare_entity(entity, found)) for entity in wanted)
    ]
    return Comparison((*entries, *_extras(wanted, found, queues)))


def find_missing(wanted: Sequence[Entity], comparison: Comparison) -> list[Entity]:
    """Return the objects to declare, in order."""
    return [
        entity
        for entity, entry in zip(wanted, comparison.entries, strict=False)
        if entry.status in ("missing", "later")
    ]


def is_migratable(entry: TopologyEntry) -> bool:
    """Return whether `taskmq topology migrate` can recreate a different object."""
    return entry.status == "different" and entry.kind == "queue" and not entry.name.startswith(_OURS)


def is_classic(found: Found, queue: str) -> bool:
    """Return whether an existing queue is a classic one."""
    return (found.queues.get(queue) or {}).get("x-queue-type") == "classic"


def migrate_command(queue: str) -> str:
    """Return the command that recreates the queues of `queue`."""
    return f"`taskmq topology migrate {shlex.quote(queue)}`"


def label(binding: Binding) -> str:
    """Return a binding as text."""
    return f"{binding.source} -> {binding.target} [{binding.key}]"


def _not_needed_yet(queues: Iterable[WorkQueue], found: Found) -> set[Entity]:
    return {
        entity
        for queue in queues
        for name, entities in queues_on_demand(queue).items()
        if name not in found.queues
        for entity in entities
    }


def _compare_entity(entity: Entity, found: Found) -> TopologyEntry:
    match entity:
        case Binding():
            name = label(entity)
            if found.bindings is None:
                return TopologyEntry("unseen", "binding", name)
            return TopologyEntry("same" if entity in found.bindings else "missing", "binding", name)
        case Exchange(name):
            return _against("exchange", name, traits(entity), found.exchanges)
        case Queue(name):
            return _against("queue", name, traits(entity), found.queues)
        case _:
            assert_never(entity)


def _against(
    kind: str, name: str, wanted: Mapping[str, Trait], there: Mapping[str, Mapping[str, Trait] | None]
) -> TopologyEntry:
    if name not in there:
        return TopologyEntry("missing", kind, name)
    if (actual := there[name]) is None:
        return TopologyEntry("unseen", kind, name, "exists; its properties can be seen through the HTTP API only")
    differences = [
        f"{trait}: wanted {_text(wanted.get(trait))}, is {_text(actual.get(trait))}"
        for trait in sorted(wanted.keys() | (actual.keys() & _KNOWN))
        if wanted.get(trait) != actual.get(trait)
    ]
    if not differences:
        return TopologyEntry("same", kind, name)
    return TopologyEntry("different", kind, name, "; ".join(differences), _remedy(kind, name))


def _remedy(kind: str, name: str) -> str:
    if kind == "queue" and not name.startswith(_OURS):
        return f"describe it in the app as it is, or stop its workers and run {migrate_command(logical_queue(name))}"
    return f"nothing here changes it: once nothing depends on it, delete the {kind} and run `taskmq topology apply`"


def _text(value: Trait) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def _extras(wanted: Sequence[Entity], found: Found, queues: Iterable[WorkQueue]) -> Iterator[TopologyEntry]:
    if not found.complete:
        return
    names = {entity.name for entity in wanted if not isinstance(entity, Binding)}
    logical = {queue.name for queue in queues}
    for kind, there in (("exchange", found.exchanges), ("queue", found.queues)):
        for name in sorted(there.keys() - names):
            if (reason := _reason(name, logical)) is not None:
                yield TopologyEntry("extra", kind, name, *reason)
    keys = {name for queue in queues for name in queue.physical}
    for binding in sorted((found.bindings or frozenset()) - {*wanted}, key=label):
        if binding.source == delay.DELIVER and binding.key in keys:
            yield TopologyEntry(
                "extra", "binding", label(binding), "delayed messages come twice, or astray", "take the binding away"
            )
        elif binding.source in PROVEN and binding != route_binding(binding.key):
            yield TopologyEntry("extra", "binding", label(binding), _TAP, "take the binding away")


def _is_declared_elsewhere(name: str) -> bool:
    """Return whether a scheduler, a node's worker, a beat or an archiving broker declares it, unknown to any app."""
    return is_reports_queue(name) or is_node_queue(name) or name.startswith(TOPIC_QUEUE) or name == ARCHIVE


def _reason(name: str, logical: set[str]) -> tuple[str, str] | None:
    if name.startswith(MIGRATION):
        queue = logical_queue(name.removeprefix(MIGRATION))
        return f"a migration of {queue!r} has not ended", f"run {migrate_command(queue)} again"
    base = logical_queue(name.removeprefix(_ENTRANCE))
    if name.startswith(LISTENER) or _is_declared_elsewhere(base):
        return None
    is_entrance = name.startswith(_ENTRANCE)
    if name.startswith(_OURS) and not is_entrance:
        return "not of this version's topology", "delete it once it is empty and no older taskmq runs here"
    if base in logical:
        return (
            f"nothing puts messages of {base!r} here any more",
            "let a worker of the old app empty it, then delete it",
        )
    if is_entrance or base != name:
        return f"belongs to queue {base!r}, which this app does not have", "another app's, or left over"
    return None
