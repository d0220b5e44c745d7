"""Contents of a node: its message, and the sources of its arguments. Pure."""

from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeVar

import msgspec

from taskmq.contracts.stores import ErrorRecord
from taskmq.contracts.stores.flows import FlowNode
from taskmq.errors import MalformedMessage
from taskmq.model.envelope import MSGPACK, NO_KWARGS
from taskmq.model.retry import RunOptions
from taskmq.workflow.shapes import Shape

__all__ = [
    "BATCH_NODE",
    "FlowHead",
    "Graph",
    "Input",
    "NodeCall",
    "Source",
    "decode_call",
    "decode_failure",
    "decode_head",
    "encode_call",
    "encode_failure",
    "encode_head",
    "insert_values",
    "join_values",
    "nodes_before",
]

T = TypeVar("T")


class Source(msgspec.Struct, frozen=True, array_like=True):
    """A node whose value is used; the value of a map or a join is a list."""

    key: str
    kind: Literal["call", "map", "join"] = "call"


class Input(msgspec.Struct, frozen=True, array_like=True):
    """The target of a value: the position of an argument, or its name."""

    to: int | str
    source: Source


class NodeCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's call, as its publisher and its worker read it. Times are milliseconds.

    Attributes:
        args: the known arguments, in the flow's content type.
        kwargs: known arguments by name; empty if there are none.
        inputs: the other arguments; they are inserted in this order.
        members: of a join, the nodes of its values.
        over: of a map, the node whose value contains the items.
        is_spread: of a map, whether each item is a list of arguments.
        max_width: of a map, the maximum of items.
        after: keys of the nodes before it whose values it does not get.
    """

    task: str = ""
    queue: str = ""
    args: bytes = b""
    kwargs: bytes = b""
    inputs: tuple[Input, ...] = ()
    members: tuple[Source, ...] = ()
    over: Source | None = None
    is_spread: bool = False
    max_width: int = 0
    after: tuple[str, ...] = ()
    run: RunOptions | None = None
    delay: int | None = None
    eta: int | None = None
    expires: int | None = None
    expires_at: int | None = None
    key: str | None = None
    order_key: str | None = None
    tenant: str | None = None
    priority: int | None = None
    meta: dict[str, str] | None = None
    headers: Mapping[str, str | int] | None = None


BATCH_NODE: Final = "0"
"""Key of the node of a batch, which is the first of its flow."""


class FlowHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Metadata of a whole flow.

    Attributes:
        output: the node whose value is the flow's; empty for a graph, whose value is that of each of `leaves` by its
            name.
        names: names of the nodes for people, by key.
        may_fail: keys of nodes whose failure is not the flow's.
        name: name for people; not unique.
    """

    content_type: str
    name: str = ""
    output: Source | None = None
    leaves: dict[str, Source] = {}
    names: dict[str, str] = {}
    may_fail: frozenset[str] = frozenset()


class Graph(msgspec.Struct):
    """A workflow as nodes, each after those that it waits for.

    Attributes:
        shape: type of its value.
        names: node of each step of a `dag`, by its name.
    """

    head: FlowHead
    nodes: list[FlowNode]
    shape: Shape
    names: dict[str, Source] = msgspec.field(default_factory=dict[str, Source])


_encoder = msgspec.msgpack.Encoder()
_call_decoder = msgspec.msgpack.Decoder(NodeCall)
_head_decoder = msgspec.msgpack.Decoder(FlowHead)


def encode_call(call: NodeCall) -> bytes:
    return _encoder.encode(call)


def decode_call(data: bytes) -> NodeCall:
    """Decode the contents of a node.

    Raises:
        MalformedMessage: another version of taskmq wrote it.
    """
    try:
        return _call_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedMessage(f"a node of a workflow cannot be read: {error}") from error


def nodes_before(calls: Mapping[str, NodeCall], shown: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return, for each shown node, the keys of the shown nodes that it follows, in the order of the graph.

    Nodes that only wait for others are skipped: a follower of one follows those that it waits for.

    Args:
        calls: of all nodes except children of maps and batches, by key, each after those before it.
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, call in calls.items():
        sources = [*call.members, *(each.source for each in call.inputs), *([call.over] if call.over else [])]
        # A shown node represents itself, a hidden one the nodes before it.
        seen = dict.fromkeys(
            shown_key
            for each in (*(source.key for source in sources), *call.after)
            for shown_key in ((each,) if each in shown else found.get(each, ()))
        )
        found[key] = tuple(seen)
    return {key: before for key, before in found.items() if key in shown}


def encode_head(head: FlowHead) -> bytes:
    return _encoder.encode(head)


def decode_head(data: bytes) -> FlowHead:
    """Decode the metadata of a flow.

    Raises:
        MalformedMessage: another version of taskmq wrote it.
    """
    try:
        return _head_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedMessage(f"a workflow cannot be read: {error}") from error


def join_values(values: list[bytes], content_type: str) -> bytes:
    """Return the encoded list of some encoded values."""
    return _pack([msgspec.Raw(value) for value in values], content_type)


def insert_values(
    args: bytes, kwargs: bytes, values: list[tuple[int | str, bytes]], content_type: str
) -> tuple[msgspec.Raw, msgspec.Raw]:
    """Return arguments with more values, each inserted before the argument at its position, or under its name."""
    positional = _unpack(args, list[msgspec.Raw], content_type) if args else []
    named = _unpack(kwargs, dict[str, msgspec.Raw], content_type) if kwargs else {}
    for to, value in values:
        if isinstance(to, int):
            positional.insert(to, msgspec.Raw(value))
        else:
            named[to] = msgspec.Raw(value)
    packed = msgspec.Raw(_pack(named, content_type)) if named else NO_KWARGS
    return msgspec.Raw(_pack(positional, content_type)), packed


def _pack(value: object, content_type: str) -> bytes:
    return msgspec.msgpack.encode(value) if content_type == MSGPACK else msgspec.json.encode(value)


def _unpack(data: bytes, kind: type[T], content_type: str) -> T:
    if content_type == MSGPACK:
        return msgspec.msgpack.decode(data, type=kind)
    return msgspec.json.decode(data, type=kind)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ErrorRecord)


def encode_failure(error: ErrorRecord) -> bytes:
    return _encode(error)


def decode_failure(data: bytes) -> ErrorRecord | None:
    """Decode an error; None if there is none, as for a map whose calls have failed."""
    if not data:
        return None
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
