"""Examples for definitions and tasks."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import Example

_TASK: Final[dict[str, Any]] = {
    "name": "shop.resize",
    "queue": "images",
    "description": "Make a photo fit a frame.",
    "is_own": True,
    "positional": ["photo"],
    "rest": "",
    "arguments": {"type": "object", "properties": {"photo": {"type": "integer"}}, "required": ["photo"]},
    "first": "2027-01-30T17:12:01.250Z",
    "registered": "2027-01-31T08:00:02.500Z",
    "by": "host-1:4711",
    "origin": "app",
    "options": {"max_attempts": 3},
}
_DEFINITION: Final[dict[str, Any]] = {
    "name": "monthly",
    "tenant": "acme",
    "version": 1,
    "at": "2027-01-30T17:12:01.250Z",
    "by": "ann",
    "task": "data_processing",
    "args": [],
    "kwargs": {"key": "value"},
    "queue": "",
    "priority": 1,
    "expires_in": None,
    "description": "",
    "owner": "",
    "labels": {},
}

DEFINITIONS: Final[Mapping[str, Example]] = {
    "listTasks": Example(answers={200: {"items": [_TASK], "next": None}}),
    "getTask": Example(parameters={"name": "shop.resize"}, answers={200: _TASK}),
    "listDefinitions": Example(answers={200: {"items": [_DEFINITION], "next": None}}),
    "getDefinition": Example(parameters={"name": "monthly"}, answers={200: _DEFINITION}),
    "listDefinitionVersions": Example(parameters={"name": "monthly"}, answers={200: {"items": [_DEFINITION]}}),
    "putDefinition": Example(
        parameters={"name": "monthly"},
        body={"task": "data_processing", "kwargs": {"key": "value"}, "priority": "low"},
        answers={200: _DEFINITION},
    ),
    "deleteDefinition": Example(
        parameters={"name": "monthly"}, answers={200: {"status": "deleted", "name": "monthly"}}
    ),
}
