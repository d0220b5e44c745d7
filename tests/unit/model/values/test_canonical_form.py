"""Values with the same JSON in every process."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from taskmq.errors import EncodeError
from taskmq.model.values.canonical_form import canonical_json, canonical_order
from taskmq.model.values.wire_form import encode_value


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    y: int
    tags: set[str] = field(default_factory=set)
    a: int = 0


class Row(msgspec.Struct, array_like=True):
    tags: frozenset[str]
    more: dict[str, int]


class Team(BaseModel):
    name: str
    members: set[str]
    by_name: dict[str, int]
    point: Point


class Tags(RootModel[set[str]]):
    pass


def everything(words: Callable[[str], Any]) -> Any:
    """Return values of all kinds with sets and dictionaries in them, filled in the order of `words`."""
    names = words("gamma alpha delta beta")
    numbers = {name: len(name) for name in names}
    point = Point(1, set(names), 2)
    return {
        "set": set(names),
        "nested": [({"x": frozenset(names)}, numbers)],
        "enums": set(Color),
        "mixed": {1, "a", None, (1, "b"), (1, None)},
        "keys": {name: {2: 1, 10: 3} for name in names},
        "point": point,
        "row": Row(frozenset(names), numbers),
        "team": Team(name="t", members=set(names), by_name=numbers, point=point),
        "root": Tags(set(names)),
    }


def test_equal_values_have_one_form_whatever_their_order() -> None:
    assert canonical_json(everything(str.split)) == canonical_json(everything(lambda text: text.split()[::-1]))


def test_the_form_is_the_same_in_processes_with_different_hash_seeds() -> None:
    program = (
        "from tests.unit.model.values.test_canonical_form import *\n"
        "sys.stdout.buffer.write(canonical_json(everything(str.split)))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }

    assert seen == {canonical_json(everything(str.split))}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, "b", 0.5, 10**30],
        {"a": 1, "b": [2]},
        Point(1, set(), 2),
        Team(name="t", members={"a"}, by_name={"a": 1}, point=Point(1)),
        Row(frozenset({"a"}), {"b": 1}),
        Tags({"a"}),
    ],
    ids=repr,
)
def test_ordered_data_is_written_as_it_travels(value: object) -> None:
    assert canonical_json(value) == encode_value(value, "application/json")


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=12,
)


@given(_plain)
def test_the_form_of_plain_data_says_the_same(value: object) -> None:
    assert msgspec.json.decode(canonical_json(value)) == value


def test_keys_may_keep_their_order_in_code() -> None:
    value = {"b": {"d", "c"}, "a": 1}

    ordered = canonical_order(value, {"b": ["d", "c"], "a": 1}, keeps_keys=True)

    assert list(ordered.items()) == [("b", ["c", "d"]), ("a", 1)]


def test_data_of_another_shape_is_unchanged() -> None:
    assert canonical_order({"a": 1, 1: 2}, {"1": 2}) == {"1": 2}
    assert canonical_order({1, 2}, "1,2") == "1,2"
    assert canonical_order([1, 2], [1]) == [1]
    assert canonical_order({"a": 1}, ["a"]) == ["a"]


def test_values_without_a_json_form_have_no_canonical_form() -> None:
    with pytest.raises(EncodeError):
        canonical_json({object()})
