"""Views are built from the attributes of what they show."""

import msgspec
import pytest

from taskmq.app_api.views import view_of


class _Found(msgspec.Struct):
    name: str
    began: int


class _View(msgspec.Struct):
    name: str
    began: str
    note: str = ""


def test_a_view_takes_attributes_of_the_same_names_and_given_fields() -> None:
    assert view_of(_View, _Found("a", 7), began="7 s", note="n") == _View("a", "7 s", "n")


def test_a_view_without_one_of_its_fields_is_refused_even_if_it_has_a_default() -> None:
    with pytest.raises(AttributeError, match="note"):
        view_of(_View, _Found("a", 7), began="7 s")
