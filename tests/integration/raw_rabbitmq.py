"""RabbitMQ without taskmq code: the behaviour that `taskmq_rabbitmq` protects against."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import pika  # type: ignore[import-untyped]
from pika.exceptions import ChannelClosedByBroker  # type: ignore[import-untyped]

from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import Binding, Entity, Exchange, Queue, ladder, shared_entities

OURS = "taskmq.delay.v2"


@dataclass(frozen=True)
class Message:
    body: bytes
    properties: pika.BasicProperties
    redelivered: bool
    tag: int
    came: float


class Raw:
    """A blocking connection with one channel in confirm mode."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def reopen(self) -> None:
        """Replace the channel that the broker has closed."""
        self._open()

    def _open(self) -> None:
        self.channel = self._connection.channel()
        self.channel.confirm_delivery()

    def declare(self, *entities: Entity) -> None:
        for entity in entities:
            match entity:
                case Exchange(name, kind, arguments):
                    self.channel.exchange_declare(name, kind, durable=True, arguments=dict(arguments))
                case Queue(name, arguments):
                    self.channel.queue_declare(name, durable=True, arguments=dict(arguments))
                case Binding(source, target, key, "exchange"):
                    self.channel.exchange_bind(target, source, key)
                case Binding(source, target, key):
                    self.channel.queue_bind(target, source, key)

    def refusal(self, queue: str, arguments: Mapping[str, Any], **options: Any) -> int:
        """Return the code with which the broker refuses the declaration; 0: it does not."""
        try:
            self.channel.queue_declare(queue, arguments=dict(arguments), **{"durable": True, **options})
        except ChannelClosedByBroker as error:
            self._open()
            return int(error.reply_code)
        except pika.exceptions.ConnectionClosedByBroker as error:
            return int(error.reply_code)
        return 0

    def quorum(self, name: str, **arguments: Any) -> str:
        """Declare a quorum queue of this name; underscores in arguments are dashes."""
        known = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **known})
        return name

    def publish(
        self, exchange: str, key: str, body: bytes = b"", *, headers: Mapping[str, Any] | None = None, **rest: Any
    ) -> None:
        """Publish with confirm and `mandatory`."""
        properties = pika.BasicProperties(delivery_mode=2, headers=None if headers is None else dict(headers), **rest)
        self.channel.basic_publish(exchange, key, body, properties, mandatory=True)

    def publish_delayed(
        self,
        name: str,
        units: int,
        queue: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> None:
        """Publish with a delay of that many times 125 ms on `short_ladder(name)`."""
        ways = {delay.WAYS: delay.ways(units * delay.UNIT_MS)}
        self.publish(delay.ENTER.replace(OURS, name), queue, body, headers={**(headers or {}), **ways}, **rest)

    def ready(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def get(self, queue: str) -> Message | None:
        """Return the first message, unsettled."""
        method, properties, body = self.channel.basic_get(queue)
        if method is None:
            return None
        return Message(body, properties, method.redelivered, method.delivery_tag, time.time())

    def take(self, queue: str, *, within: float = 10) -> Message:
        """Wait for the first message and acknowledge it.

        Raises:
            AssertionError: it did not arrive.
        """
        end = time.monotonic() + within
        while (message := self.get(queue)) is None:
            assert time.monotonic() < end, f"no message arrived in {queue} within {within:g} s"
            self._connection.sleep(0.005)
        self.channel.basic_ack(message.tag)
        return message

    def give_back(self, queue: str) -> bool:
        """Requeue the first message; return whether there was one."""
        message = self.get(queue)
        if message is not None:
            self.channel.basic_nack(message.tag, requeue=True)
        return message is not None

    def wait_until(self, condition: Callable[[], bool], what: str, *, within: float = 10) -> None:
        end = time.monotonic() + within
        while not condition():
            assert time.monotonic() < end, f"not within {within:g} s: {what}"
            self._connection.sleep(0.02)

    def sleep(self, seconds: float) -> None:
        """Sleep to show that nothing happens."""
        self._connection.sleep(seconds)


def stays(raw: Raw, condition: Callable[[], bool], *, seconds: float) -> bool:
    """Whether `condition` holds all the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not condition():
            return False
        raw.sleep(0.05)
    return True


def short_ladder(name: str, *, levels: int = 5, has_alternate: bool = True) -> list[Entity]:
    """Declare the lowest levels of the ladder under another name; the exchange `NAME.deliver` gets due messages."""
    above = tuple(delay.level_name(level) for level in range(levels, delay.LEVELS))
    entities: list[Entity] = [*shared_entities()] if has_alternate else []
    for entity in ladder():
        if isinstance(entity, Binding) and (entity.source in above or entity.target in above):
            continue
        if not isinstance(entity, Binding) and entity.name in above:
            continue
        entities.append(_rename_entity(entity, name, has_alternate=has_alternate))
    return entities


def _rename_entity(entity: Entity, name: str, *, has_alternate: bool) -> Entity:
    match entity:
        case Exchange():
            arguments = dict(entity.arguments) if has_alternate else {}
            return replace(entity, name=entity.name.replace(OURS, name), arguments=arguments)
        case Queue():
            arguments = dict(entity.arguments)
            arguments["x-dead-letter-exchange"] = str(arguments["x-dead-letter-exchange"]).replace(OURS, name)
            return replace(entity, name=entity.name.replace(OURS, name), arguments=arguments)
        case Binding():
            return replace(entity, source=entity.source.replace(OURS, name), target=entity.target.replace(OURS, name))


def level(name: str, number: int) -> str:
    """Return the exchange and queue of a level of `short_ladder(name)`."""
    return delay.level_name(number).replace(OURS, name)


def names(entities: Iterable[Entity]) -> set[str]:
    return {entity.name for entity in entities if not isinstance(entity, Binding)}
