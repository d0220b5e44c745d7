import pytest

from taskmq.errors import UnsupportedFeature
from taskmq.model.values.schemas import find_flaw, find_misfit, open_validator


def test_a_value_that_does_not_fit_its_schema_is_described_without_the_value() -> None:
    assert find_misfit({"type": "integer"}, 3, purpose="forms") == ""
    assert find_misfit({"type": "integer"}, "secret", purpose="forms") == 'the value is not of type "integer"'


def test_a_schema_that_is_none_cannot_be_used() -> None:
    assert find_flaw({"type": 3}, purpose="forms").startswith("not a JSON Schema: ")
    assert find_flaw({"type": "string"}, purpose="forms") == ""


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jsonschema_rs", None)

    with pytest.raises(
        UnsupportedFeature, match=r"forms need the schema validator: run pip install 'taskmq\[schemas\]'"
    ):
        open_validator({}, purpose="forms")
