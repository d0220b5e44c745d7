"""Graphs that the first step of a run builds: its value is the content of the steps behind it.

    build  ->  build, and behind it the steps of its value

The run has the new content from then on, with the parameters and options of the old one.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from taskmq.model.runs.ends import end_step
from taskmq.model.runs.graphs import WorkflowContent, encode_workflow, load_graph, upstream_of
from taskmq.model.runs.records import StepRecord
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.validation import validate_workflow
from taskmq.model.runs.workspace import Workspace
from taskmq.model.values.light_values import LightValue, open_value


def begun_content(content: WorkflowContent) -> WorkflowContent:
    """Return the content with which a run began: without the steps that it has built."""
    build = {name: step for name, step in content.steps.items() if step.builds}
    return replace(content, steps=build, output=None) if build else content


def end_build(here: Workspace, step: StepRecord, value: bytes) -> None:
    """End a step that built the graph; it fails if the graph is invalid."""
    if here.run.cancelled is not None:
        # A redrive builds the graph.
        end_step(here, step, StepState.CANCELLED)
        return
    content, flaw = _join(here.graph.content, step.key.name, value)
    if content is None:
        end_step(here, step, StepState.FAILED, error=f"the graph is invalid: {flaw}")
        return
    version, text = encode_workflow(content)
    here.changes.content = text
    here.run.version = version
    here.graph = load_graph(text)
    here.run.unfinished = len(here.graph.order)
    end_step(here, step, StepState.SUCCEEDED, value=b"null")


def _join(begun: WorkflowContent, name: str, value: bytes) -> tuple[WorkflowContent | None, str]:
    """Return the content with the steps that a value describes, or what is wrong with the value."""
    found = open_value(value)
    if isinstance(found, LightValue):
        return None, f"it has {found.size:,} bytes and is kept at results_at="
    data: Any = msgspec.json.decode(found)
    if not isinstance(data, dict):
        return None, "it is not a content"
    built, faults = validate_workflow({**data, "params": begun.params})
    if built is None:
        return None, str(faults[0])
    if name in built.steps:
        return None, f"step {name}: the step that builds the graph has this name"
    behind = {each: step if upstream_of(step) else replace(step, needs=(name,)) for each, step in built.steps.items()}
    return replace(begun, steps={name: begun.steps[name], **behind}, output=built.output), ""
