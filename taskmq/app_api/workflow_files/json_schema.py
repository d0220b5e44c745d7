"""The JSON Schema of workflow files, for editors: generated from the structs that read them."""

import re
from collections.abc import Sequence
from typing import Any, Final, cast, get_args

import msgspec

from taskmq.api.job_requests import JobTerms
from taskmq.api.schedules import ScheduleFields, ScheduleRule
from taskmq.app_api.workflow_files.reader import JOB_WORDS
from taskmq.app_api.workflow_files.schedules import SCHEDULE, FileSchedule
from taskmq.model.identity import Role
from taskmq.model.runs.graphs import StepContent, StepKind, WorkflowContent
from taskmq.model.runs.paths import LONGEST_NAME, NAME
from taskmq.model.runs.rules import RuleName
from taskmq.model.runs.validation import MOST_STEPS

_DESCRIBED: Final = re.compile(r"^ {8}([a-z_]+(?:, [a-z_]+)*): (.+(?:\n {12}.+)*)", re.MULTILINE)
_FILE_WORDS: Final = {"arguments": "with", "condition": "if", "expires_in": "expires"}
_DURATION: Final[dict[str, Any]] = {"type": ["string", "number"], "examples": ["30s", "10m", "2h", "1d12h"]}
_RULES: Final = [*(name for name in get_args(RuleName) if name != "at_least"), "all", "any", "always"]
_KINDS: Final = [kind for kind in get_args(StepKind) if kind != "each"]


def workflow_schema() -> dict[str, Any]:
    """Return the JSON Schema of a workflow file.

    The reader checks more than a schema can say: references, conditions, cycles, and arguments of tasks.
    """
    structs = [WorkflowContent, StepContent, JobTerms, ScheduleRule, ScheduleFields, FileSchedule]
    _, parts = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    for part in parts.values():
        _describe(part)
    workflow, step = parts.pop("WorkflowContent"), parts["StepContent"]
    terms, schedule = parts.pop("JobTerms")["properties"], parts["FileSchedule"]["properties"]
    schedule |= parts.pop("ScheduleFields")["properties"] | parts.pop("ScheduleRule")["properties"]
    del schedule["job"]
    terms["expires"] = terms.pop("expires_in")
    terms["retries"] = {"type": "integer", "minimum": 0, "description": "retries of a failed job"}
    properties: dict[str, Any] = step["properties"]
    properties |= {word: terms[word] for word in sorted(JOB_WORDS)}
    # Only graphs that code builds have it: who starts them may call all that the code calls.
    del properties["builds"]
    properties["each"] |= {"type": ["string", "array"]}
    properties["roles"]["items"] = {"anyOf": [{"enum": list(Role)}, {"type": "string", "pattern": "^group:."}]}
    properties["sleep"] |= _DURATION
    properties["timeout"] |= _DURATION
    properties["options"] |= {"properties": {word: terms[word] for word in sorted(JOB_WORDS)}}
    properties["rule"] |= {"anyOf": [{"enum": _RULES}, _object("at_least", {"type": "integer", "minimum": 1})]}
    properties["on_timeout"] |= {"anyOf": [{"enum": ["fail", "skip"]}, _object("value", {})]}
    step["oneOf"] = [{"required": [kind]} for kind in _KINDS]
    workflow["properties"]["timeout"] |= _DURATION
    workflow["properties"]["steps"] |= {
        "propertyNames": {"pattern": f"^{NAME}$", "maxLength": LONGEST_NAME},
        "minProperties": 1,
        "maxProperties": MOST_STEPS,
    }
    workflow["properties"][SCHEDULE] = {"$ref": "#/$defs/FileSchedule"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_without_defaults(workflow),
        "title": "Workflow of taskmq",
        "$defs": _without_defaults(parts),
    }


def _object(key: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {key: schema}, "required": [key], "additionalProperties": False}


def _describe(schema: dict[str, Any]) -> None:
    """Move the descriptions of attributes from a struct's docstring to its properties."""
    text, _, attributes = schema.get("description", "").partition("Attributes:")
    schema["description"] = text.strip()
    for names, meaning in _DESCRIBED.findall(attributes):
        for name in names.split(", "):
            word = name if name in schema["properties"] else _FILE_WORDS.get(name, name)
            if word in schema["properties"]:
                schema["properties"][word]["description"] = " ".join(meaning.split())


def _without_defaults(schema: Any) -> Any:
    """Return a schema without defaults: editors would write them into the file."""
    match schema:
        case list():
            return [_without_defaults(each) for each in cast("Sequence[Any]", schema)]
        case dict():
            found = cast("dict[str, Any]", schema)
            return {key: _without_defaults(value) for key, value in found.items() if key != "default"}
        case _:
            return schema
