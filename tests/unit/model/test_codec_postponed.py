"""The codec with annotations that are strings at runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from taskmq.errors import InvalidArguments, InvalidOption
from taskmq.model.codec import Signature
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.run.context import Context


@dataclass
class Line:
    item: Item
    count: int = 1


@dataclass
class Item:
    id: UUID


class Customer(BaseModel):
    name: str


def order(lines: list[Line], ctx: Context, customer: Customer | None = None, *flags: bool, **notes: str) -> Line:
    return lines[0]


def _order() -> Signature:
    return Signature(order, owner="shop.order", injected=Context)


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_postponed_annotations_are_types_like_any_others(content_type: str) -> None:
    call: tuple[tuple[Any, ...], dict[str, Any]]
    call = ([Line(Item(UUID(int=1)))], Customer(name="Ada"), True), {"note": "fragile"}
    signature = _order()

    decoded = signature.decode(*signature.encode(*call, content_type), content_type)

    assert signature.is_resolved
    assert decoded == call
    assert (
        signature.return_type().decode(b'{"item": {"id": "%s"}}' % str(UUID(int=1)).encode(), JSON) == call[0][0][0]
    )


def test_a_postponed_context_is_passed() -> None:
    context = Context.create_detached("shop.order")
    signature = _order()

    assert signature.takes_context
    assert signature.with_context((([],), {}), context) == (([], context), {})


def test_a_value_that_does_not_match_a_postponed_type_is_refused() -> None:
    with pytest.raises(InvalidArguments, match=r"at `lines"):
        _order().encode(([{"item": 3}],), {}, JSON)


def test_a_local_class_cannot_be_resolved_and_the_error_suggests_a_remedy() -> None:
    class Local:
        pass

    def function(value: Local) -> None: ...

    signature = Signature(function, owner="shop.local", injected=Context)

    assert not signature.is_resolved
    with pytest.raises(InvalidOption, match=r"shop.local: an annotation cannot be resolved .*'Local'.*module level"):
        signature.encode((1,), {}, JSON)
