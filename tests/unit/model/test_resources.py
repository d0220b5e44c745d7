from typing import Any

import pytest

from taskmq.errors import InvalidOption
from taskmq.model.resources import amounts_text, parse_amounts, read_amounts


def test_amounts_are_read_from_code() -> None:
    assert read_amounts({"cpu": 0.5, "memory": "1G", "gpu": 1, "licence.x": 2}, what="resources") == {
        "cpu": 0.5,
        "memory": 1024.0**3,
        "gpu": 1.0,
        "licence.x": 2.0,
    }


def test_amounts_are_read_from_a_command_line() -> None:
    assert parse_amounts(" cpu=8, memory=16G ,gpu=0,memory-bus=1.5", what="--resources") == {
        "cpu": 8.0,
        "memory": 16 * 1024.0**3,
        "gpu": 0.0,
        "memory-bus": 1.5,
    }


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (None, "a mapping from names to amounts"),
        ({}, "a mapping from names to amounts"),
        ({"CPU": 1}, "'CPU' is not the name of a resource"),
        ({3: 1}, "3 is not the name of a resource"),
        ({"cpu": 0}, "cpu=0: must be a number above 0"),
        ({"cpu": True}, "cpu=True: must be a number above 0"),
        ({"cpu": float("inf")}, "cpu=inf: must be a number above 0"),
        ({"cpu": "2"}, "cpu='2': must be a number above 0"),
        ({"gpu": 0.5}, "gpu=0.5: must be a whole number of devices"),
        ({"memory": "lots"}, "memory='lots'"),
    ],
)
def test_an_invalid_amount_is_refused_by_name(given: Any, complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        read_amounts(given, what="resources")


@pytest.mark.parametrize("text", ["cpu", "cpu=1,cpu=2", "cpu=many", "=1", "cpu=-1"])
def test_an_invalid_command_line_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--resources"):
        parse_amounts(text, what="--resources")


def test_amounts_are_formatted_for_people() -> None:
    assert amounts_text({"cpu": 2, "memory": 1536 * 1024**2, "gpu": 0}) == "cpu=2, memory=1.5G, gpu=0"
    assert amounts_text({"memory": 0}) == "memory=0"
