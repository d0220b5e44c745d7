"""Values whose parts are kept elsewhere: taken out of data, joined, stored and put back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.envelope import JSON, BlobReference, KeptPart
from taskmq.model.values.light_values import (
    LightValue,
    fill,
    join_values,
    keep_whole,
    lighten,
    open_value,
    read_reference,
    reference_to,
)


def _blob(name: str) -> BlobReference:
    return BlobReference(name=name, size=9_000_000, sha256="00")


def _leaf(name: str) -> msgspec.Raw | LightValue:
    return open_value(keep_whole(_blob(name)))


def _paths(value: LightValue) -> dict[str, tuple[str | int, ...]]:
    return {part.blob.name: part.at for part in value.parts}


def test_a_value_that_is_kept_elsewhere_reads_as_null_with_one_part() -> None:
    found = open_value(keep_whole(_blob("a")))

    assert isinstance(found, LightValue)
    assert (bytes(found.value), found.parts, found.size) == (b"null", (KeptPart((), _blob("a")),), 9_000_000)


def test_a_whole_value_is_stored_as_it_is() -> None:
    assert open_value(b'{"a":1}') == msgspec.Raw(b'{"a":1}')
    assert lighten({"a": msgspec.Raw(b"1")}).store() == b'{"a":1}'
    assert join_values([b"1", b'"x"']) == b'[1,"x"]'
    assert join_values([]) == b"[]"


def test_parts_have_the_paths_of_their_places() -> None:
    found = lighten({"a": [1, _leaf("x")], "b": {"c": _leaf("y")}, "d": "text"}, "kwargs")

    assert bytes(found.value) == b'{"a":[1,null],"b":{"c":null},"d":"text"}'
    assert _paths(found) == {"x": ("kwargs", "a", 1), "y": ("kwargs", "b", "c")}


def test_a_list_of_values_has_the_parts_of_each() -> None:
    inner = lighten({"v": _leaf("y")}).store()

    found = open_value(join_values([b"1", keep_whole(_blob("x")), inner]))

    assert isinstance(found, LightValue)
    assert bytes(found.value) == b'[1,null,{"v":null}]'
    assert _paths(found) == {"x": (1,), "y": (2, "v")}


@pytest.mark.parametrize(
    ("value", "at"),
    [(b"[1]", (1,)), (b"[1]", ("a",)), (b'{"a":1}', ("b",)), (b'{"a":1}', ("a", "b")), (b"7", (0,)), (b"{", ("a",))],
)
def test_a_part_without_a_place_is_refused(value: bytes, at: tuple[str | int, ...]) -> None:
    with pytest.raises(ValueError, match="a part of the value has no place"):
        fill(value, {at: b"1"})


_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_data, st.data())
def test_filled_parts_restore_the_value(whole: Any, draws: st.DataObject) -> None:
    kept: dict[str, bytes] = {}

    def cut(value: Any) -> Any:
        if draws.draw(st.booleans()):
            kept[str(len(kept))] = msgspec.json.encode(value)
            return _leaf(str(len(kept) - 1))
        if isinstance(value, list):
            return [cut(item) for item in value]
        return {key: cut(item) for key, item in value.items()} if isinstance(value, dict) else value

    light = open_value(lighten(cut(whole)).store())

    if isinstance(light, LightValue):
        filled = fill(light.value, {part.at: kept[part.blob.name] for part in light.parts})
    else:
        filled = bytes(light)
    assert msgspec.json.decode(filled) == whole


def test_a_reference_reads_as_it_was_written() -> None:
    assert read_reference(reference_to(JSON, _blob("x"))) == (JSON, _blob("x"))


@pytest.mark.parametrize("result", [b"", b"{}", b"\xff", b'{"content_type":"a","blob":{"name":"x"}}', b"[" * 5_000])
def test_a_damaged_reference_reads_as_none(result: bytes) -> None:
    assert read_reference(result) is None
