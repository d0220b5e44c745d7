from typing import Any

import jsonschema_rs
import pytest

from taskmq.app_api.workflow_files.documents import read_document
from taskmq.app_api.workflow_files.json_schema import workflow_schema
from taskmq.app_api.workflow_files.reader import read_workflow
from taskmq.errors import InvalidWorkflow
from tests.unit.app_api.workflow_files.test_reader import NIGHTLY

_FILES = {
    "nightly": NIGHTLY,
    "least": "workflow: w\nsteps: {a: {task: t}}",
    "unnamed": "steps: {a: {task: t}}",
    "kinds": """
workflow: kinds
params: {list: {type: array, default: [1]}}
output: {all: "${steps.many.result}"}
steps:
  many: {task: t, each: "${params.list}", spread: false, max_width: 10, args: ["${item}"], may_fail: true}
  some: {task: t, each: [1, 2], limit: 1}
  pause: {sleep: 2h, needs: [many]}
  until: {sleep: "2027-01-31T00:00:00Z"}
  ask: {wait: go, roles: [operator, "group:finance"], timeout: 90, on_timeout: {value: {ok: false}}}
  tell: {wait: go, timeout: 1d, on_timeout: skip}
  below: {workflow: other, with: {x: 1}, rule: {at_least: 1}, needs: [ask, tell]}
  open: {batch: true, limit: 5}
  sum: {value: {all: "${steps.some.result}"}}
""",
    "options": """
workflow: options
params: {day: {type: string}}
schedule: {every: 1h, jitter: 5m, exclude: [sat], params: {day: monday}}
steps:
  a:
    task: t
    queue: q
    priority: 3
    expires: 1h
    retries: 2
    retry: {backoff: constant}
    guarantee: at_least_once
    owner: ops
    description: first
    labels: {a: b}
    resources: {cpu: 1, memory: 2G}
    place: {gang: [g, 2]}
    preemptible: true
    options: {labels: {c: d}}
""",
    "kindless": "steps: {a: {with: {x: 1}}}",
    "two kinds": "steps: {a: {task: t, wait: s}}",
    "unknown field": "steps: {a: {task: t, colour: red}}",
    "unknown word": "workflow: w\non: push\nsteps: {a: {task: t}}",
    "wrong name": "steps: {a b: {task: t}}",
    "wrong rule": "steps: {a: {task: t, rule: sometimes}}",
    "wrong priority": "steps: {a: {task: t, priority: urgent}}",
    "wrong retries": "steps: {a: {task: t, retries: -1}}",
    "wrong end": "steps: {a: {wait: s, on_timeout: {then: 1}}}",
    "wrong role": "steps: {a: {wait: s, roles: [boss]}}",
    "wrong group": "steps: {a: {wait: s, roles: ['group:']}}",
    "wrong list": "steps: {a: {task: t, needs: b}}",
    "wrong schedule": "schedule: {cron: '@daily', overlap: maybe}\nsteps: {a: {task: t}}",
    "stepless": "workflow: w\nsteps: {}",
}


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema_rs.Draft202012Validator(workflow_schema())


@pytest.mark.parametrize("name", _FILES)
def test_the_schema_accepts_what_the_reader_accepts(name: str, validator: Any) -> None:
    value = read_document(_FILES[name].encode(), "yaml").value
    try:
        read_workflow(_FILES[name].encode(), "yaml", name=value.get("workflow", "w"))
        is_read = True
    except InvalidWorkflow:
        is_read = False

    assert validator.is_valid(value) is is_read


def test_editors_get_a_description_of_each_field_and_no_default() -> None:
    schema = workflow_schema()

    step = schema["$defs"]["StepContent"]
    assert step["properties"]["if"]["description"] == "whether it runs once it may start."
    assert step["properties"]["retries"]["description"] == "retries of a failed job"
    assert schema["$defs"]["FileSchedule"]["properties"]["cron"]["description"].startswith("a cron expression")
    assert "default" not in step["properties"]["limit"]
