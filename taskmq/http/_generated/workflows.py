# Generated from taskmq/http/aio/workflows.py by `python -m tests.house.blocking_client`: change that one.
"""Workflows and their runs through the server."""

from collections.abc import Iterator, Sequence

from taskmq.api.history.logs import LineList
from taskmq.api.workflows.definitions import (
    ActivateBody,
    StartedRunView,
    StartRunBody,
    WorkflowBody,
    WorkflowLineView,
    WorkflowList,
    WorkflowVersions,
    WorkflowView,
)
from taskmq.api.workflows.runs import (
    CancelRunBody,
    CloneRunBody,
    HoldRunBody,
    RedriveBody,
    RedrivenRun,
    RunChildList,
    RunGraphView,
    RunLineList,
    RunLineView,
    RunStepList,
    RunTimeline,
    SignalBody,
    SignalledRun,
    WorkflowRunView,
)
from taskmq.http._generated.connection import Calls, every


class WorkflowCalls(Calls):
    """Workflows by name, their versions, and starts of runs.

    Methods raise `WorkflowNotFound`; changes and starts raise `NotPermitted` for tasks that are not allowed.
    """

    def put(self, name: str, body: WorkflowBody) -> WorkflowView:
        """Store the workflow of a file. New content becomes the current version; known content changes nothing.

        Raises:
            InvalidWorkflow: the file has faults.
        """
        return self._connection.ask("putWorkflow", WorkflowView, path={"name": name}, body=body)

    def get(self, name: str, *, version: str = "") -> WorkflowView:
        """Return the current version, or the given one."""
        query = {"version": version or None}
        return self._connection.ask("getWorkflow", WorkflowView, path={"name": name}, query=query)

    def versions(self, name: str) -> Sequence[WorkflowLineView]:
        """Return all versions, newest first."""
        return (self._connection.ask("listWorkflowVersions", WorkflowVersions, path={"name": name})).items

    def activate(self, name: str, version: str) -> WorkflowView:
        """Make a version the current one: runs without a version get it from now on."""
        body = ActivateBody(version=version)
        return self._connection.ask("activateWorkflow", WorkflowView, path={"name": name}, body=body)

    def start(self, name: str, body: StartRunBody) -> StartedRunView:
        """Start a run. The same run id again changes nothing.

        Raises:
            InvalidOption: a parameter is missing, unknown or does not fit its schema.
            RequestRefused: `run_exists`: another run has the id.
        """
        repeats = body.run_id is not None
        return self._connection.ask("startWorkflow", StartedRunView, path={"name": name}, body=body, repeats=repeats)

    def page(self, *, limit: int = 50, cursor: str | None = None) -> WorkflowList:
        """Return a page of the current versions, ordered by name."""
        query = {"limit": limit, "cursor": cursor}
        return self._connection.ask("listWorkflows", WorkflowList, query=query)

    def list(self, *, page_size: int = 200) -> Iterator[WorkflowLineView]:
        """Iterate over the current versions, ordered by name."""
        return every(lambda cursor: self.page(limit=page_size, cursor=cursor))


class RunCalls(Calls):
    """Runs of workflows by id.

    Methods raise `RunNotFound`; changes raise `NotPermitted` for tasks that are not allowed. A scheduler applies a
    change. Methods wait for it up to ten seconds; later it still applies.
    """

    def get(self, run_id: str) -> WorkflowRunView:
        """Return a run with its parameters and its value."""
        return self._connection.ask("getRun", WorkflowRunView, path={"run_id": run_id})

    def steps(self, run_id: str, *, limit: int = 50, cursor: str | None = None) -> RunStepList:
        """Return a page of a run's steps, ordered by name."""
        query = {"limit": limit, "cursor": cursor}
        return self._connection.ask("listRunSteps", RunStepList, path={"run_id": run_id}, query=query)

    def children(self, run_id: str, step: str, *, limit: int = 50, cursor: str | None = None) -> RunChildList:
        """Return a page of the children of a step that have started, in order.

        Raises:
            InvalidOption: the cursor is malformed.
        """
        path, query = {"run_id": run_id, "step": step}, {"limit": limit, "cursor": cursor}
        return self._connection.ask("listRunChildren", RunChildList, path=path, query=query)

    def graph(self, run_id: str) -> RunGraphView:
        """Return the graph of a run with the state of each step."""
        return self._connection.ask("getRunGraph", RunGraphView, path={"run_id": run_id})

    def timeline(self, run_id: str, *, step: str = "", limit: int = 50, cursor: str | None = None) -> RunTimeline:
        """Return a page of the steps of a run over time, each after the steps before it.

        Args:
            step: return the children of this step.

        Raises:
            InvalidOption: the cursor is malformed.
        """
        query = {"step": step or None, "limit": limit, "cursor": cursor}
        return self._connection.ask("getRunTimeline", RunTimeline, path={"run_id": run_id}, query=query)

    def logs(
        self,
        run_id: str,
        *,
        step: str = "",
        level: str = "debug",
        text: str = "",
        limit: int = 50,
        cursor: str | None = None,
    ) -> LineList:
        """Return log lines of all jobs of a run; continue with `cursor=page.next`, even after the last one.

        Pages follow the order in which the lines were stored, and the lines of a page that of their times.

        Args:
            step: only lines of this step and its children.
        """
        query = {"step": step or None, "level": level, "text": text, "limit": limit, "cursor": cursor}
        return self._connection.ask("getRunLogs", LineList, path={"run_id": run_id}, query=query)

    def signal(self, run_id: str, body: SignalBody) -> SignalledRun:
        """Send a signal to a run. The same signal id again changes nothing, and returns the first answer.

        Raises:
            InvalidArguments: the value does not fit the form of the step.
            RequestRefused: `signal_refused`: no step may take it; the message says why.
        """
        repeats = body.signal_id is not None
        return self._connection.ask("signalRun", SignalledRun, path={"run_id": run_id}, body=body, repeats=repeats)

    def close(self, run_id: str) -> None:
        """Close a batch to new jobs. It ends when its jobs have ended.

        Raises:
            RunClosed: it is cancelled, or not a batch.
        """
        self._connection.ask("closeRun", dict[str, str], path={"run_id": run_id})

    def cancel(self, run_id: str, *, reason: str = "cancelled by an operator") -> None:
        """Cancel a run: steps that have not started never will, and running ones are stopped.

        Raises:
            RequestRefused: `workflow_ended`: it has already ended.
        """
        body = CancelRunBody(reason=reason)
        self._connection.ask("cancelRun", dict[str, str], path={"run_id": run_id}, body=body)

    def redrive(self, run_id: str, *, step: str = "", dry_run: bool = False) -> RedrivenRun:
        """Run steps of an ended run again: those without success, or one step and all below it.

        Args:
            dry_run: only return the steps that would run again.

        Raises:
            RequestRefused: `redrive_refused`: the run has not ended, or has no such step.
        """
        body = RedriveBody(step=step, dry_run=dry_run)
        return self._connection.ask("redriveRun", RedrivenRun, path={"run_id": run_id}, body=body, repeats=dry_run)

    def hold(self, run_id: str, *, reason: str = "held by an operator") -> None:
        """Hold a run and its child runs: running jobs end, and no step starts until the run is released.

        Raises:
            RequestRefused: `workflow_ended`: it has already ended, or is being cancelled.
        """
        body = HoldRunBody(reason=reason)
        self._connection.ask("holdRun", dict[str, str], path={"run_id": run_id}, body=body)

    def release(self, run_id: str) -> None:
        """Release a run: the steps that became ready meanwhile start. One that is not held stays as it is.

        Raises:
            RequestRefused: `held_above`: a run above it is held; it starts no step until that one is released too.
        """
        self._connection.ask("releaseRun", dict[str, str], path={"run_id": run_id})

    def clone(self, run_id: str, body: CloneRunBody) -> StartedRunView:
        """Start a run of the same content, with the parameters of this one where the body has none.

        Raises:
            InvalidOption: a parameter is unknown or does not fit its schema.
            RequestRefused: `run_exists`: another run has the id.
        """
        repeats = body.run_id is not None
        return self._connection.ask("cloneRun", StartedRunView, path={"run_id": run_id}, body=body, repeats=repeats)

    def page(
        self, which: str = "", *, limit: int = 50, cursor: str | None = None, expand: Sequence[str] = ()
    ) -> RunLineList:
        """Return a page of runs, newest first.

        Args:
            which: the filter, such as `workflow:nightly* status:failed started:>-24h label.team:ops`.
            expand: parts to include: `steps`, the first 100 of each run.

        Raises:
            InvalidFilter: the filter cannot be parsed.
        """
        query = {"filter": which or None, "limit": limit, "cursor": cursor, "expand": ",".join(expand) or None}
        return self._connection.ask("listRuns", RunLineList, query=query)

    def list(self, which: str = "", *, page_size: int = 200) -> Iterator[RunLineView]:
        """Iterate over runs, newest first."""
        return every(lambda cursor: self.page(which, limit=page_size, cursor=cursor))
