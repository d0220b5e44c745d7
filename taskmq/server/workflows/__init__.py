"""Handlers of workflows.

definitions    workflows by name, their versions, and starts of runs
runs           runs of workflows on the job store
"""

from typing import Any, Final

from taskmq.server.workflows.definitions import WORKFLOWS
from taskmq.server.workflows.runs import RUNS

__all__ = ["WORKFLOW_HANDLERS"]

WORKFLOW_HANDLERS: Final[tuple[Any, ...]] = (*WORKFLOWS, *RUNS)
