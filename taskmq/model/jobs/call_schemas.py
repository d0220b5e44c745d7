"""The JSON Schema of a call: created where the task's code is, checked and used where it is not. Pure.

    def report(month: str, /, *years: int, region: Literal["eu", "us"] = "eu") -> ...

    positional ("month",), unnamed 1, rest "years"
    schema     {"type": "object", "properties": {"month": {"type": "string"},
                "years": {"type": "array", "items": {"type": "integer"}}, "region": {"enum": ["eu", "us"]}},
                "required": ["month"], "additionalProperties": false}

`bound` turns a call's arguments into the object that the schema describes. A schema that arrives over the broker is
used only if `flaw_of` finds nothing. Such a schema has only the keywords that this module writes: no outside
references, no patterns, and no expensive checks.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, cast

import msgspec

from taskmq.errors import InvalidArguments, InvalidOption
from taskmq.model.envelope import check_task_name
from taskmq.model.jobs.registrations import LONGEST_SCHEMA, TaskFacts, TaskRegistration
from taskmq.model.topology import check_queue_name
from taskmq.model.units import did_you_mean
from taskmq.model.values.parameters import Parameters

_LONGEST_DESCRIPTION: Final = 300
_DEEPEST: Final = 32
_MOST_WORK: Final = 2_000
_REF: Final = "#/$defs/"
_NAMED: Final = ("properties", "$defs")
_PARTS: Final = ("items", "additionalProperties")
_LISTS: Final = ("anyOf", "prefixItems")
_PLAIN: Final = frozenset({
    "type", "required", "enum", "const", "default", "title", "description", "examples", "format", "contentEncoding",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "uniqueItems", "discriminator",
})  # fmt: skip
_encoder: Final = msgspec.json.Encoder(order="deterministic")


def registration_of(
    task: str, queue: str, parameters: Parameters, *, doc: str | None, facts: TaskFacts
) -> TaskRegistration:
    """Return the description of a task.

    A parameter whose type has no schema accepts anything; the worker validates it. If the schema is longer than
    `LONGEST_SCHEMA`, all parameters do.

    Args:
        doc: the function's docstring.
    """
    every = [*parameters.positional, *parameters.named]
    rests = [rest for rest in (parameters.rest_args, parameters.rest_kwargs) if rest is not None]
    kinds, definitions = _schemas([*(one.kind for one in every), *(rest.kind for rest in rests)])
    properties = {one.name: kind for one, kind in zip(every, kinds, strict=False)}
    if parameters.rest_args is not None:
        properties[parameters.rest_args.name] = {"type": "array", "items": kinds[len(every)]}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [one.name for one in every if one.required],
        "additionalProperties": False if parameters.rest_kwargs is None else kinds[-1],
    }
    if definitions:
        schema["$defs"] = definitions
    text = _encoder.encode(schema)
    if len(text) > LONGEST_SCHEMA:
        short = {**schema, "properties": dict.fromkeys(properties, cast("dict[str, Any]", {}))}
        short.pop("$defs", None)
        if parameters.rest_kwargs is not None:
            short["additionalProperties"] = True
        text = _encoder.encode(short)
    return TaskRegistration(
        task=task,
        queue=queue,
        description=(doc or "").strip().partition("\n")[0][:_LONGEST_DESCRIPTION],
        facts=facts,
        positional=tuple(one.name for one in parameters.positional),
        unnamed=sum(not one.by_name for one in parameters.positional),
        rest="" if parameters.rest_args is None else parameters.rest_args.name,
        schema=msgspec.Raw(text),
    )


def bind_arguments(registration: TaskRegistration, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by parameter name, as the schema describes them.

    Raises:
        InvalidArguments: there are too many, or one is given twice; the message names the parameter.
    """
    task, names = registration.task, registration.positional
    found = dict(kwargs)
    for name in (*names[: registration.unnamed], registration.rest):
        if name and name in found:
            raise InvalidArguments(f"task {task}: {name!r} is positional and cannot be passed by name")
    if len(args) > len(names) and not registration.rest:
        raise InvalidArguments(f"task {task}: too many arguments, it takes {len(names)}")
    for name, value in zip(names, args, strict=False):
        if name in found:
            raise InvalidArguments(f"task {task}: {name!r} is passed twice")
        found[name] = value
    if len(args) > len(names):
        found[registration.rest] = list(args[len(names) :])
    return found


def check_names(registration: TaskRegistration, arguments: Mapping[str, Any]) -> None:
    """Check that the task has parameters of these names.

    Raises:
        InvalidArguments: it has not; the message names the argument.
    """
    schema = msgspec.json.decode(registration.schema)
    known: dict[str, Any] = schema.get("properties", {})
    for name in arguments:
        if name not in known and schema.get("additionalProperties") is False:
            hint = did_you_mean(name, known) if known else "it takes no arguments by name"
            raise InvalidArguments(f"task {registration.task}: unknown field `{name}`: {hint}")


def flaw_of(registration: TaskRegistration) -> str:
    """Return why a registration from a client must not be used; "" if it may."""
    try:
        check_task_name(registration.task)
        check_queue_name(registration.queue)
    except InvalidOption as error:
        return str(error)
    text = bytes(registration.schema)
    if len(registration.description) > _LONGEST_DESCRIPTION:
        return f"its description is longer than {_LONGEST_DESCRIPTION} characters"
    if len(text) > LONGEST_SCHEMA:
        return f"its schema has {len(text):,} bytes, the limit is {LONGEST_SCHEMA:,}"
    try:
        schema: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "its schema is not JSON"
    if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("type") != "object":
        return "its schema is not that of an object"
    return _Schema(cast("dict[str, Any]", schema)).flaw()


class _Schema:
    """A schema under inspection."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        definitions = schema.get("$defs", {})
        self._definitions = cast("dict[str, Any]", definitions) if isinstance(definitions, dict) else {}
        self._work: dict[str, int] = {}

    def flaw(self) -> str:
        flaw = self._flaw(self._schema, 0)
        if flaw:
            return flaw
        parts = (self._schema, *self._definitions.values())
        if sum(self._cost(part, ()) for part in parts) > _MOST_WORK:
            return "its schema refers to itself, or to too much"
        return ""

    def _flaw(self, schema: Any, depth: int) -> str:
        if depth > _DEEPEST:
            return f"its schema is deeper than {_DEEPEST}"
        if isinstance(schema, bool):
            return ""
        if not isinstance(schema, dict):
            return "a part of its schema is not a schema"
        for keyword, value in cast("dict[str, Any]", schema).items():
            if flaw := self._flaw_of_keyword(keyword, value, depth):
                return flaw
        return ""

    def _flaw_of_keyword(self, keyword: str, value: Any, depth: int) -> str:
        if keyword in _PLAIN:
            return ""
        if keyword == "$ref":
            name = value.removeprefix(_REF) if isinstance(value, str) else ""
            return "" if value == f"{_REF}{name}" and name in self._definitions else f"its schema refers to {value!r}"
        if keyword in _PARTS:
            return self._flaw(value, depth + 1)
        parts = _parts_of(keyword, value)
        if parts is None:
            return f"its schema has the keyword {keyword!r}"
        return next((flaw for part in parts if (flaw := self._flaw(part, depth + 1))), "")

    def _cost(self, schema: Any, path: tuple[str, ...]) -> int:
        """Return an upper bound of the parts that one value is compared with."""
        if not isinstance(schema, dict):
            return 1
        here = cast("dict[str, Any]", schema)
        cost = 1 + sum(self._cost(part, path) for part in here.get("anyOf", ()))
        if (name := str(here.get("$ref", "")).removeprefix(_REF)) and "$ref" in here:
            if name in path:
                return _MOST_WORK + 1
            if name not in self._work:
                self._work[name] = self._cost(self._definitions[name], (*path, name))
            cost += self._work[name]
        return min(cost, _MOST_WORK + 1)


def _parts_of(keyword: str, value: Any) -> list[Any] | None:
    """Return the schemas below a keyword that takes several; None for other keywords."""
    if keyword in _NAMED and isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return [*cast("Sequence[Any]", value)] if keyword in _LISTS and isinstance(value, list) else None


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of the values of a type; `{}`, which accepts anything, if the type has none."""
    (schema,), definitions = _schemas([kind])
    if schema.keys() == {"$ref"}:
        schema = dict(definitions[schema["$ref"].removeprefix(_REF)])
    return {**schema, "$defs": definitions} if b'"$ref"' in _encoder.encode(schema) else schema


def _schemas(kinds: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a schema for each type, and the definitions that they refer to."""
    known = [kind if _has_schema(kind) else Any for kind in kinds]
    schemas, definitions = msgspec.json.schema_components(known, schema_hook=_custom, ref_template=_REF + "{name}")
    return [_plain(schema) for schema in schemas], {name: _plain(one) for name, one in definitions.items()}


def _has_schema(kind: Any) -> bool:
    try:
        msgspec.json.schema_components([kind], schema_hook=_custom, ref_template=_REF + "{name}")
    except Exception:  # noqa: BLE001 - a user's type may raise anything
        return False
    return True


def _custom(kind: type) -> dict[str, Any]:
    return {"type": "string"} if issubclass(kind, PurePath) else {}


def _plain(schema: Any) -> Any:
    """Return the schema without patterns: regular expressions from elsewhere are never run."""
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for keyword, value in cast("dict[str, Any]", schema).items():
        if keyword in _NAMED:
            found[keyword] = {name: _plain(part) for name, part in value.items()}
        elif keyword in _PARTS:
            found[keyword] = _plain(value)
        elif keyword in _LISTS:
            found[keyword] = [_plain(part) for part in value]
        elif keyword in _PLAIN or keyword == "$ref":
            found[keyword] = value
    return found
