"""Calls of tasks that a run may make, with those of its sub-workflows."""

from typing import NamedTuple

from taskmq.contracts.jobs import RunStore
from taskmq.model.runs.graphs import StepContent, WorkflowContent, load_graph
from taskmq.model.runs.starts import DEEPEST


class CallingStep(NamedTuple):
    """A step that calls a task.

    Attributes:
        name: its name, behind those of the steps that run its workflow, as `publish.resize`.
    """

    name: str
    step: StepContent


async def find_calls(runs: RunStore, tenant: str, content: WorkflowContent) -> list[CallingStep]:
    """Return the steps of a content that call tasks, and those of its sub-workflows at their current versions.

    Omits sub-workflows that do not exist, or that are nested too deeply to run, and the steps that a job is still to
    build.
    """
    found: list[CallingStep] = []
    seen: set[str] = set()
    level = [("", content)]
    for depth in range(DEEPEST + 1):
        below: list[tuple[str, WorkflowContent]] = []
        for prefix, each in level:
            for name, step in each.steps.items():
                if step.task:
                    found.append(CallingStep(prefix + name, step))
                elif step.workflow and depth < DEEPEST and step.workflow not in seen:
                    seen.add(step.workflow)
                    if (stored := await runs.workflow(tenant, step.workflow)) is not None:
                        below.append((f"{prefix}{name}.", load_graph(stored[1]).content))
        level = below
    return found
