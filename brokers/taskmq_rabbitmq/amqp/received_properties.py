"""Properties of received messages, as pika or the fast path read them."""

from collections.abc import Mapping

from taskmq_rabbitmq.amqp.pika_types import (
    AMQPError,
    BasicProperties,
    decode_table,
    text_of,
)
from taskmq_rabbitmq.amqp.properties import Content


class Incoming:
    """Properties of a received message, read by pika, with the same names as those of `Content`."""

    __slots__ = ("_properties", "routing_key")

    def __init__(self, properties: BasicProperties, routing_key: str | None = None) -> None:
        self._properties = properties
        self.routing_key = routing_key

    @property
    def content_type(self) -> str | None:
        return text_of(self._properties.content_type)

    @property
    def message_id(self) -> str | None:
        return text_of(self._properties.message_id)

    @property
    def type(self) -> str | None:
        return text_of(self._properties.type)

    @property
    def headers(self) -> Mapping[str | bytes, object]:
        return self._properties.headers or {}


Properties = Incoming | Content


def headers_of(properties: Properties) -> Mapping[str | bytes, object]:
    """Return the headers as received; empty if pika cannot read them, for example an instant after the year 9999."""
    if isinstance(properties, Incoming):
        return properties.headers
    table = properties.header_table
    if table is None:
        return {}
    try:
        return decode_table(table, 0)[0]
    except (AMQPError, ArithmeticError, OSError, ValueError):
        return {}
