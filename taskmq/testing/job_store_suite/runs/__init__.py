"""Tests of `RunStore`."""

from taskmq.testing.job_store_suite.runs.dispatches import RunDispatches
from taskmq.testing.job_store_suite.runs.ends import RunEnds
from taskmq.testing.job_store_suite.runs.figures import RunFigureCases
from taskmq.testing.job_store_suite.runs.history import RunsByModel
from taskmq.testing.job_store_suite.runs.inbox import RunInboxes
from taskmq.testing.job_store_suite.runs.lifecycle import RunLifecycles
from taskmq.testing.job_store_suite.runs.lists import RunLists
from taskmq.testing.job_store_suite.runs.places import RunPlaces
from taskmq.testing.job_store_suite.runs.versions import WorkflowVersions

__all__ = ["RunCases"]


class RunCases(
    RunLifecycles,
    RunDispatches,
    RunEnds,
    RunInboxes,
    WorkflowVersions,
    RunLists,
    RunPlaces,
    RunFigureCases,
    RunsByModel,
):
    """Every guarantee of `RunStore`."""
