"""RabbitMQ's JSON of exchanges, queues and bindings: written for its import, read from its HTTP API. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never

from taskmq_rabbitmq.admin.plan import Found, Trait
from taskmq_rabbitmq.model.entities import Binding, Entity, Exchange, Queue, declared_arguments

_NOT_ARGUMENTS: Final[Mapping[str, str]] = {
    "durable": "durable",
    "auto-delete": "auto_delete",
    "exclusive": "exclusive",
    "internal": "internal",
}


def to_definitions(entities: Iterable[Entity], vhost: str, *, app: str = "") -> dict[str, list[dict[str, object]]]:
    """Return the input of `rabbitmqctl import_definitions`: the virtual host and all its objects."""
    exchanges: list[dict[str, object]] = []
    queues: list[dict[str, object]] = []
    bindings: list[dict[str, object]] = []
    for entity in entities:
        match entity:
            case Exchange(name, kind, arguments):
                exchanges.append(
                    {
                        "name": name,
                        "vhost": vhost,
                        "type": kind,
                        "durable": True,
                        "auto_delete": False,
                        "internal": False,
                        "arguments": dict(arguments),
                    }
                )
            case Queue(name):
                queues.append(
                    {
                        "name": name,
                        "vhost": vhost,
                        "durable": True,
                        "auto_delete": False,
                        "arguments": declared_arguments(entity, app),
                    }
                )
            case Binding(source, target, key, target_kind):
                bindings.append(
                    {
                        "source": source,
                        "vhost": vhost,
                        "destination": target,
                        "destination_type": target_kind,
                        "routing_key": key,
                        "arguments": {},
                    }
                )
            case _:
                assert_never(entity)
    return {"vhosts": [{"name": vhost}], "exchanges": exchanges, "queues": queues, "bindings": bindings}


def found_in(
    exchanges: Iterable[Mapping[str, Any]],
    queues: Iterable[Mapping[str, Any]],
    bindings: Iterable[Mapping[str, Any]],
) -> Found:
    """Return the objects in the HTTP API's lists of one virtual host."""
    return Found(
        exchanges={str(item["name"]): _exchange_traits(item) for item in exchanges},
        queues={str(item["name"]): _queue_traits(item) for item in queues},
        bindings=frozenset(
            Binding(
                item["source"],
                item["destination"],
                item["routing_key"],
                "exchange" if item["destination_type"] == "exchange" else "queue",
            )
            for item in bindings
            if item["source"] and not item.get("arguments")
        ),
    )


def _exchange_traits(item: Mapping[str, Any]) -> dict[str, Trait]:
    return {"type": item.get("type"), **_common(item, "durable", "auto-delete", "internal")}


def _queue_traits(item: Mapping[str, Any]) -> dict[str, Trait]:
    # A queue that was declared without a type has one all the same.
    kind: dict[str, Trait] = {"x-queue-type": item["type"]} if "type" in item else {}
    return {**kind, **_common(item, "durable", "auto-delete", "exclusive")}


def _common(item: Mapping[str, Any], *names: str) -> dict[str, Trait]:
    return {**{name: bool(item.get(_NOT_ARGUMENTS[name])) for name in names}, **(item.get("arguments") or {})}
