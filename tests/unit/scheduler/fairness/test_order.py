"""The heap below the turns. Pure."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from taskmq.scheduler.fairness.order import Order


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 5))), max_size=40))
def test_an_order_returns_the_least_key_and_the_first_of_equal_ones(steps: list[tuple[str, int | None]]) -> None:
    order: Order[str] = Order()
    places: dict[str, tuple[int, int]] = {}
    for number, (item, key) in enumerate(steps):
        if key is None:
            order.discard(item)
            places.pop(item, None)
        else:
            order.put(item, (key, 0.0))
            places[item] = (key, number)

        assert len(order) == len(places)
        assert order.first() == min(places, key=places.__getitem__, default=None)
        assert all(order.key(item) == (key, 0.0) and item in order for item, (key, _) in places.items())


def test_an_item_whose_key_rises_comes_later() -> None:
    order: Order[str] = Order()
    order.put("a", (1.0, 0.0))
    order.put("b", (2.0, 0.0))

    order.put("a", (3.0, 0.0))

    assert (order.first(), order.key("a")) == ("b", (3.0, 0.0))


def test_an_order_stores_only_what_it_needs() -> None:
    order: Order[str] = Order()
    order.put("least", (-1e9, 0.0))
    for number in range(10_000):
        order.put("falls", (-float(number), 0.0))

    assert len(vars_of(order)) < 200
    assert order.first() == "least"


def vars_of(order: Order[str]) -> list[Any]:
    heap: list[Any] = order._heap
    return heap
