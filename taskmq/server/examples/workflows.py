"""Examples for workflows and their runs."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import SOME_ID, Example

_VERSION: Final = "6c84de60ec94134017ff326325a62702c1d56d1d5bbf504a71be9b5bec03a317"
_FILE: Final = """\
workflow: nightly
params: {key: {type: string, default: photos}}
steps:
  extract: {task: data_processing, with: {key: "${params.key}"}}
  approve: {wait: approval, needs: [extract], timeout: 2d}
"""
_CONTENT: Final = {
    "workflow": "nightly",
    "params": {"key": {"type": "string", "default": "photos"}},
    "steps": {
        "extract": {"task": "data_processing", "with": {"key": "${params.key}"}},
        "approve": {"wait": "approval", "needs": ["extract"], "timeout": "2d"},
    },
}
_LINE: Final = {
    "name": "nightly",
    "version": _VERSION,
    "at": "2027-01-30T17:12:01.250Z",
    "is_current": True,
    "is_shared": False,
}
_WORKFLOW: Final = {**_LINE, "content": _CONTENT, "is_new": False}
_OF_WORKFLOW: Final = {"name": "nightly"}
_RUN: Final[dict[str, Any]] = {
    "run_id": SOME_ID,
    "workflow": "nightly",
    "version": _VERSION,
    "tenant": "acme",
    "state": "running",
    "cancelled": None,
    "held": None,
    "error": "",
    "started": "2027-01-31T02:30:00.250Z",
    "begun": None,
    "ended": None,
    "steps": 2,
    "unfinished": 1,
    "failures": 0,
    "generation": 0,
    "scheduled_for": "",
    "parent": "",
    "parent_step": "",
    "labels": {"team": "ops"},
    "marks": None,
}
_MARKS: Final[list[dict[str, Any]]] = [
    {
        "step": "extract",
        "kind": "task",
        "state": "succeeded",
        "started": "2027-01-31T02:30:00.500Z",
        "ended": "2027-01-31T02:30:04.500Z",
        "generation": 0,
    },
    {
        "step": "approve",
        "kind": "wait",
        "state": "running",
        "started": "2027-01-31T02:30:04.500Z",
        "ended": None,
        "generation": 0,
    },
]
_OF_RUN: Final = {"run_id": SOME_ID}
_RUN_STEP: Final[dict[str, Any]] = {
    "step": "approve",
    "kind": "wait",
    "task": "",
    "state": "running",
    "needs": ["extract"],
    "job_id": "",
    "generation": 0,
    "error": "",
    "started": "2027-01-31T02:30:04.500Z",
    "ended": None,
    "total": None,
    "active": 0,
    "done": 0,
    "is_open": False,
    "signal": "approval",
    "form": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    "roles": ["operator"],
}
_FIRST_STEP: Final[dict[str, Any]] = {
    **_RUN_STEP,
    "step": "extract",
    "kind": "task",
    "task": "data_processing",
    "state": "succeeded",
    "needs": [],
    "job_id": SOME_ID,
    "started": "2027-01-31T02:30:00.500Z",
    "ended": "2027-01-31T02:30:04.250Z",
    "signal": "",
    "form": None,
    "roles": [],
}

_ROW: Final[dict[str, Any]] = {
    "step": "approve",
    "child": None,
    "kind": "wait",
    "state": "running",
    "ready": "2027-01-31T02:30:04.250Z",
    "started": "2027-01-31T02:30:04.500Z",
    "ended": None,
    "total": None,
    "jobs": [],
}
_FIRST_ROW: Final[dict[str, Any]] = {
    **_ROW,
    "step": "extract",
    "kind": "task",
    "state": "succeeded",
    "ready": "2027-01-31T02:30:00.250Z",
    "started": "2027-01-31T02:30:00.500Z",
    "ended": "2027-01-31T02:30:04.250Z",
    "jobs": [
        {
            "job_id": SOME_ID,
            "state": "succeeded",
            "submitted_at": "2027-01-31T02:30:00.500Z",
            "schedule_time": "2027-01-31T02:30:00.500Z",
            "due_at": "2027-01-31T02:30:02.500Z",
            "ended": "2027-01-31T02:30:04.250Z",
            "attempts": [
                {
                    "attempt": 1,
                    "state": "failed",
                    "started": "2027-01-31T02:30:00.750Z",
                    "ended": "2027-01-31T02:30:01.500Z",
                    "worker": "worker-1",
                },
                {
                    "attempt": 2,
                    "state": "succeeded",
                    "started": "2027-01-31T02:30:02.750Z",
                    "ended": "2027-01-31T02:30:04.250Z",
                    "worker": "worker-1",
                },
            ],
            "interruptions": [],
        }
    ],
}

_LINE_OF_STEP: Final[dict[str, Any]] = {
    "number": 1,
    "at": "2027-01-31T02:30:03.250Z",
    "level": "info",
    "logger": "etl",
    "message": "read 40 rows of photos",
    "id": SOME_ID,
    "attempt": 2,
    "worker": "worker-1",
    "task": "data_processing",
    "queue": "data_processing",
    "tenant": "acme",
    "run_id": SOME_ID,
    "step": "extract",
    "child": None,
    "log_time": "2027-01-31T02:30:03.250Z",
    "log_level": "INFO",
    "log_message": "read 40 rows of photos",
}

WORKFLOWS: Final[Mapping[str, Example]] = {
    "listWorkflows": Example(answers={200: {"items": [_LINE], "next": None}}),
    "getWorkflow": Example(parameters=_OF_WORKFLOW, answers={200: _WORKFLOW}),
    "listWorkflowVersions": Example(parameters=_OF_WORKFLOW, answers={200: {"items": [_LINE]}}),
    "putWorkflow": Example(
        parameters=_OF_WORKFLOW, body={"text": _FILE, "format": "yaml"}, answers={200: {**_WORKFLOW, "is_new": True}}
    ),
    "activateWorkflow": Example(parameters=_OF_WORKFLOW, body={"version": _VERSION}, answers={200: _WORKFLOW}),
    "startWorkflow": Example(
        parameters=_OF_WORKFLOW,
        body={"params": {"key": "photos"}, "labels": {"team": "ops"}},
        answers={201: {"run_id": SOME_ID, "workflow": "nightly", "version": _VERSION, "is_new": True}},
    ),
    "listRuns": Example(
        parameters={"filter": "workflow:nightly* status:running,failed started:>-24h", "expand": "steps"},
        answers={200: {"items": [{**_RUN, "marks": _MARKS}], "next": None, "is_bounded": False}},
    ),
    "getRun": Example(
        parameters=_OF_RUN, answers={200: {**_RUN, "params": {"key": "photos"}, "value": None, "place": None}}
    ),
    "listRunSteps": Example(parameters=_OF_RUN, answers={200: {"items": [_RUN_STEP], "next": None}}),
    "listRunChildren": Example(
        parameters={**_OF_RUN, "step": "extract"},
        answers={
            200: {
                "items": [
                    {
                        "number": 0,
                        "state": "running",
                        "job_id": SOME_ID,
                        "error": "",
                        "started": "2027-01-31T02:30:00.500Z",
                        "ended": None,
                    }
                ],
                "next": None,
            }
        },
    ),
    "getRunGraph": Example(
        parameters=_OF_RUN,
        answers={
            200: {
                "run_id": SOME_ID,
                "workflow": "nightly",
                "version": _VERSION,
                "steps": [_FIRST_STEP, _RUN_STEP],
                "params": _CONTENT["params"],
            }
        },
    ),
    "getRunTimeline": Example(parameters=_OF_RUN, answers={200: {"items": [_FIRST_ROW, _ROW], "next": None}}),
    "getRunLogs": Example(
        parameters={**_OF_RUN, "step": "extract", "level": "info"},
        answers={200: {"items": [_LINE_OF_STEP], "next": "1", "is_bounded": False}},
    ),
    "signalRun": Example(
        parameters=_OF_RUN,
        body={"signal": "approval", "value": {"ok": True}, "signal_id": "order-17"},
        answers={200: {"run_id": SOME_ID, "signal_id": "order-17", "effect": "consumed"}},
    ),
    "closeRun": Example(parameters=_OF_RUN, answers={200: {"status": "closed", "run_id": SOME_ID}}),
    "cancelRun": Example(
        parameters=_OF_RUN,
        body={"reason": "ordered twice"},
        answers={200: {"status": "cancelling", "run_id": SOME_ID}},
    ),
    "redriveRun": Example(
        parameters=_OF_RUN,
        body={"step": "extract", "dry_run": True},
        answers={200: {"run_id": SOME_ID, "status": "dry_run", "steps": ["extract", "approve"]}},
    ),
    "holdRun": Example(
        parameters=_OF_RUN,
        body={"reason": "the disk is full"},
        answers={200: {"status": "held", "run_id": SOME_ID}},
    ),
    "releaseRun": Example(parameters=_OF_RUN, answers={200: {"status": "released", "run_id": SOME_ID}}),
    "cloneRun": Example(
        parameters=_OF_RUN,
        body={"params": {"key": "videos"}},
        answers={201: {"run_id": SOME_ID, "workflow": "nightly", "version": _VERSION, "is_new": True}},
    ),
}
