"""Values of a flow's nodes, loaded from the store."""

from collections.abc import Sequence
from typing import Any

from taskmq.contracts.stores.flows import FlowStore, NodeState
from taskmq.model.codec import ReturnType
from taskmq.workflow.model.calls import Source, decode_call, join_values
from taskmq.workflow.shapes import ListOf, Shape

__all__ = ["Tree", "decode_tree", "encode_tree", "load_trees"]


Tree = bytes | None | list["Tree"]
"""An encoded value, None, or a list of such."""

_ANY = ReturnType(Any)

_Keys = str | list["_Keys"] | None


async def load_trees(store: FlowStore, flow_id: str, sources: Sequence[Source]) -> list[Tree]:
    """Load the values of nodes; None for a missing one.

    Raises:
        StateUnavailable: the state could not be reached.
    """
    layout = [await _layout(store, flow_id, source) for source in sources]
    keys: list[str] = []
    for one in layout:
        _collect(one, keys)
    values = dict(zip(keys, await _values(store, flow_id, keys), strict=True)) if keys else {}
    return [_fill(one, values) for one in layout]


def encode_tree(tree: Tree, content_type: str) -> bytes:
    """Encode the value as an argument; null if it is missing."""
    if tree is None:
        return b"\xc0" if content_type.endswith("msgpack") else b"null"
    if isinstance(tree, bytes):
        return tree or encode_tree(None, content_type)
    return join_values([encode_tree(one, content_type) for one in tree], content_type)


def decode_tree(tree: Tree, shape: Shape | None, content_type: str) -> Any:
    """Decode the value into the types that the tasks return, as far as they are known here.

    Raises:
        EncodeError: it does not fit its type.
    """
    if tree is None or tree == b"":
        return None
    if isinstance(tree, bytes):
        kind = shape if isinstance(shape, ReturnType) else _ANY
        return kind.decode(tree, content_type)
    return [decode_tree(one, _shape_of(shape, index), content_type) for index, one in enumerate(tree)]


def _shape_of(shape: Shape | None, index: int) -> Shape | None:
    if isinstance(shape, ListOf):
        return shape.each
    return shape[index] if isinstance(shape, tuple) else None


async def _layout(store: FlowStore, flow_id: str, source: Source) -> _Keys:
    """Return the keys whose values make up that of a node."""
    if source.kind == "call":
        return source.key
    if source.kind == "map":
        (total,) = await _values(store, flow_id, [source.key])
        return None if total is None else [f"{source.key}.{number}" for number in range(int(total))]
    (call,) = await store.calls(flow_id, [source.key])
    if call is None:
        return None
    members = decode_call(call).members
    return [member.key if member.kind == "call" else await _layout(store, flow_id, member) for member in members]


async def _values(store: FlowStore, flow_id: str, keys: Sequence[str]) -> list[bytes | None]:
    found = await store.outcomes(flow_id, keys)
    return [None if one is None or one.state is not NodeState.SUCCEEDED else one.value for one in found]


def _collect(keys: _Keys, found: list[str]) -> None:
    if isinstance(keys, str):
        found.append(keys)
    elif keys is not None:
        for one in keys:
            _collect(one, found)


def _fill(keys: _Keys, values: dict[str, bytes | None]) -> Tree:
    if isinstance(keys, str):
        return values[keys]
    return None if keys is None else [_fill(one, values) for one in keys]
