import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from jsonschema_rs import Draft202012Validator
from msgspec.structs import replace
from pydantic import BaseModel

from taskmq.errors import InvalidArguments
from taskmq.model.codec import Signature
from taskmq.model.jobs.call_schemas import bind_arguments, check_names, flaw_of, registration_of, schema_of
from taskmq.model.jobs.registrations import LONGEST_SCHEMA, TaskFacts, TaskRegistration


class _Context:
    """An argument that the worker fills in."""


class _Node(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(pattern="^a", max_length=9)]
    next: "_Node | None" = None


class _Other(msgspec.Struct):
    """Not distinguished from a `_Node` by any tag."""


class _Model(BaseModel):
    number: int


def _register(function: Callable[..., Any]) -> TaskRegistration:
    signature = Signature(function, owner="t", injected=_Context)
    return registration_of("t", "q", signature.parameters, doc=function.__doc__, facts=TaskFacts(priority=3))


def _schema(registration: TaskRegistration) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(bytes(registration.schema))
    return schema


def _with(schema: object) -> TaskRegistration:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return TaskRegistration(task="t", queue="q", schema=msgspec.Raw(text))


def _report(
    context: _Context, month: str, /, year: int, *others: Decimal, region: Literal["eu", "us"] = "eu", **more: float
) -> None:
    """Make the report. ☂

    More about it.
    """


def test_a_task_is_described_with_its_parameters_and_argument_schema() -> None:
    registration = _register(_report)

    assert (registration.task, registration.queue, registration.facts.priority) == ("t", "q", 3)
    assert registration.description == "Make the report. ☂"
    assert (registration.positional, registration.unnamed, registration.rest) == (("month", "year"), 1, "others")
    assert _schema(registration) == {
        "type": "object",
        "properties": {
            "month": {"type": "string"},
            "year": {"type": "integer"},
            "others": {"type": "array", "items": {"type": "string", "format": "decimal"}},
            "region": {"enum": ["eu", "us"]},
        },
        "required": ["month", "year"],
        "additionalProperties": {"type": "number"},
    }


def test_a_task_without_parameters_accepts_an_empty_object() -> None:
    def nothing() -> None: ...

    registration = _register(nothing)

    assert _schema(registration) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert (registration.description, registration.positional, registration.rest) == ("", (), "")


def test_recursive_types_are_reported_without_patterns() -> None:
    def walk(node: _Node, pair: tuple[int, str]) -> None: ...

    registration = _register(walk)

    schema = _schema(registration)
    assert schema["properties"]["node"] == {"$ref": "#/$defs/_Node"}
    assert schema["$defs"]["_Node"]["properties"]["name"] == {"type": "string", "maxLength": 9}
    assert schema["properties"]["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert schema["properties"]["pair"]["items"] is False
    assert flaw_of(registration) == ""
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"node": {"name": "b", "next": {"name": "c"}}, "pair": [1, "x"]})
    assert not validator.is_valid({"node": {"name": "b", "next": 1}, "pair": [1, "x"]})


def test_a_type_without_a_schema_accepts_anything_and_the_others_are_described() -> None:
    def mix_types(path: Path, model: _Model, whatever: object, number: int) -> None: ...

    properties = _schema(_register(mix_types))["properties"]

    assert properties == {"path": {"type": "string"}, "model": {}, "whatever": {}, "number": {"type": "integer"}}


def test_a_type_that_msgspec_cannot_describe_accepts_anything() -> None:
    def first(odd: int, other: int) -> None: ...

    signature = Signature(first, owner="t", injected=_Context)
    either: Any = _Node | _Other
    odd, other = signature.parameters.positional
    parameters = signature.parameters._replace(positional=[replace(odd, kind=either), other])

    registration = registration_of("t", "q", parameters, doc=None, facts=TaskFacts())

    assert _schema(registration)["properties"] == {"odd": {}, "other": {"type": "integer"}}


@pytest.mark.parametrize("takes_more", [True, False])
def test_an_overlong_schema_is_reduced_to_the_names(takes_more: bool) -> None:
    words = tuple(f"{number:060}" for number in range(2_000))

    def long(word: Literal[words]) -> None: ...  # type: ignore[valid-type]

    def more(word: Literal[words], **others: int) -> None: ...  # type: ignore[valid-type]

    registration = _register(more if takes_more else long)

    assert len(bytes(registration.schema)) < LONGEST_SCHEMA
    assert _schema(registration) == {
        "type": "object",
        "properties": {"word": {}},
        "required": ["word"],
        "additionalProperties": takes_more,
    }


def test_arguments_are_bound_to_the_names_of_their_parameters() -> None:
    registration = _register(_report)

    assert bind_arguments(registration, ["jan", 2027], {"region": "us", "x": 1.5}) == {
        "month": "jan",
        "year": 2027,
        "region": "us",
        "x": 1.5,
    }
    assert bind_arguments(registration, ["jan", 2027, "1", "2"], {}) == {
        "month": "jan",
        "year": 2027,
        "others": ["1", "2"],
    }
    assert bind_arguments(registration, ["jan"], {"year": 1}) == {"month": "jan", "year": 1}
    assert bind_arguments(registration, [], {}) == {}


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        (["jan", 1], {"year": 2}, "'year' is passed twice"),
        ([], {"month": "jan"}, "'month' is positional"),
        ([], {"others": ["1"]}, "'others' is positional"),
    ],
)
def test_arguments_that_match_no_parameter_are_refused_by_name(
    args: list[Any], kwargs: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArguments, match=reason):
        bind_arguments(_register(_report), args, kwargs)


def test_too_many_arguments_are_refused() -> None:
    def one(number: int) -> None: ...

    with pytest.raises(InvalidArguments, match="too many arguments, it takes 1"):
        bind_arguments(_register(one), [1, 2], {})


def test_unknown_argument_names_are_refused() -> None:
    def one(number: int) -> None: ...

    def none() -> None: ...

    check_names(_register(one), {"number": "anything"})
    check_names(_register(_report), {"whatever": 1})
    with pytest.raises(InvalidArguments, match=r"unknown field `nummer`: did you mean 'number'"):
        check_names(_register(one), {"nummer": 1})
    with pytest.raises(InvalidArguments, match="it takes no arguments by name"):
        check_names(_register(none), {"number": 1})


@pytest.mark.parametrize("function", [_report, lambda: None])
def test_a_described_task_has_no_flaw(function: Callable[..., Any]) -> None:
    assert flaw_of(_register(function)) == ""


def test_a_schema_may_be_true_or_false() -> None:
    assert flaw_of(_with({"type": "object", "properties": {"x": {"anyOf": [True, False]}, "y": True}})) == ""
    assert flaw_of(_with({"type": "object", "anyOf": [True], "$defs": {"a": False}})) == ""


_DEEP: dict[str, Any] = {"type": "object"}
for _ in range(40):
    _DEEP = {"type": "object", "properties": {"x": _DEEP}}
_MANY: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/d0"}},
    "$defs": {
        **{f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(30)},
        "d30": {"type": "integer"},
    },
}


@pytest.mark.parametrize(
    ("registration", "reason"),
    [
        (TaskRegistration(task="no name", queue="q"), "no name"),
        (TaskRegistration(task="x" * 500, queue="q"), "1 to 128"),
        (TaskRegistration(task="t", queue="amq.q"), "amq"),
        (TaskRegistration(task="t", queue="q", description="x" * 301), "description"),
        (_with(b" " * (LONGEST_SCHEMA + 1)), "limit"),
        (_with(b"{"), "not JSON"),
        (_with(b'{"type":"\xff"}'), "not JSON"),
        (_with([]), "not that of an object"),
        (_with({"type": "array"}), "not that of an object"),
        (_with({"type": "object", "pattern": "(a+)+$"}), "'pattern'"),
        (_with({"type": "object", "properties": {"x": {"patternProperties": {}}}}), "'patternProperties'"),
        (_with({"type": "object", "properties": []}), "'properties'"),
        (_with({"type": "object", "allOf": []}), "'allOf'"),
        (_with({"type": "object", "$id": "http://x"}), "'\\$id'"),
        (_with({"type": "object", "properties": {"x": 1}}), "a part of its schema is not a schema"),
        (_with({"type": "object", "$ref": "http://x/y"}), "refers to 'http://x/y'"),
        (_with({"type": "object", "$ref": "#/$defs/none"}), "refers to '#/\\$defs/none'"),
        (_with({"type": "object", "$ref": 7}), "refers to 7"),
        (_with({"type": "object", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}), "refers to itself"),
        (_with({"type": "object", "$defs": [], "$ref": "#/$defs/a"}), r"'\$defs'|refers to"),
        (_with(_DEEP), "deeper than 32"),
        (_with(_MANY), "or to too much"),
    ],
)
def test_an_invalid_registration_has_a_flaw(registration: TaskRegistration, reason: str) -> None:
    assert re.search(reason, flaw_of(registration))


def test_the_schema_of_a_type_contains_what_it_refers_to() -> None:
    class Form(msgspec.Struct):
        ok: bool
        note: str = ""

    assert schema_of(Form) == {
        "title": "Form",
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "note": {"type": "string", "default": ""}},
        "required": ["ok"],
    }
    assert schema_of(int) == {"type": "integer"}
    assert schema_of(Callable) == {}
    assert list(schema_of(list[_Other])["$defs"]) == ["_Other"]
    own = schema_of(_Node)
    assert own["properties"]["next"] == {"anyOf": [{"$ref": "#/$defs/_Node"}, {"type": "null"}], "default": None}
    assert Draft202012Validator(own).is_valid({"name": "a", "next": {"name": "b"}})
