"""`/runs`: list, inspect, signal, close, hold, cancel, redrive and clone runs of workflows."""

from typing import Annotated, Final, Literal

from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.history.logs import LineList
from taskmq.api.workflows.definitions import StartedRunView
from taskmq.api.workflows.runs import (
    CancelRunBody,
    CloneRunBody,
    HoldRunBody,
    RedriveBody,
    RedrivenRun,
    RunChildList,
    RunGraphView,
    RunLineList,
    RunStepList,
    RunTimeline,
    SignalBody,
    SignalledRun,
    WorkflowRunView,
)
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Cursor, FromLevel, Limit, OfStep, Text, number_of

RUNS: Final = Handlers("runs")


@RUNS.handle("GET /runs", "listRuns", Permission.WORKFLOWS_READ, "List runs", may_be_stale=True)
async def list_runs(
    api: ApiGiven,
    which: Annotated[
        str,
        QueryParameter(
            name="filter",
            max_length=4_000,
            description="A filter such as `workflow:nightly* status:failed started:>-24h label.team:ops`.",
        ),
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
    expand: Annotated[
        Literal["steps"] | None, QueryParameter(description="`steps` includes the first 100 steps of each run.")
    ] = None,
) -> RunLineList:
    """Return a tenant's runs, newest first; for an instance role, all tenants'.

    A page with `is_bounded` still has a `next`: the search stopped before it examined everything.
    """
    return await api.runs.page(which, limit=limit, cursor=cursor, expand=[expand] if expand else [])


@RUNS.handle("GET /runs/{run_id}", "getRun", Permission.WORKFLOWS_READ, "Get a run")
async def get_run(api: ApiGiven, run_id: FromPath[str]) -> WorkflowRunView:
    """Return a run with its parameters and, if it succeeded, its value."""
    return await api.runs.get(run_id)


@RUNS.handle("GET /runs/{run_id}/steps", "listRunSteps", Permission.WORKFLOWS_READ, "List the steps of a run")
async def list_steps(api: ApiGiven, run_id: FromPath[str], limit: Limit = 50, cursor: Cursor = None) -> RunStepList:
    """Return the steps of a run, ordered by name."""
    return await api.runs.steps(run_id, limit=limit, cursor=cursor)


@RUNS.handle(
    "GET /runs/{run_id}/steps/{step}/children",
    "listRunChildren",
    Permission.WORKFLOWS_READ,
    "List the children of a step",
)
async def list_children(
    api: ApiGiven,
    run_id: FromPath[str],
    step: FromPath[str],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RunChildList:
    """Return the started children of a step of a run: the calls of an `each` or a batch, in order."""
    return await api.runs.children(run_id, step, limit=limit, cursor=cursor)


@RUNS.handle("GET /runs/{run_id}/graph", "getRunGraph", Permission.WORKFLOWS_READ, "Get the graph of a run")
async def get_graph(api: ApiGiven, run_id: FromPath[str]) -> RunGraphView:
    """Return all steps of a run, each after the steps before it."""
    return await api.runs.graph(run_id)


@RUNS.handle("GET /runs/{run_id}/timeline", "getRunTimeline", Permission.WORKFLOWS_READ, "Get the timeline of a run")
async def get_timeline(
    api: ApiGiven,
    run_id: FromPath[str],
    step: Annotated[str, QueryParameter(description="Return the children of this step.", max_length=255)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RunTimeline:
    """Return the steps of a run over time: when each was ready, and how its jobs waited, ran and were interrupted."""
    return await api.runs.timeline(run_id, step=step, limit=limit, cursor=cursor)


@RUNS.handle("GET /runs/{run_id}/logs", "getRunLogs", Permission.LOGS_READ, "Get the log of a run")
async def get_logs(
    api: ApiGiven,
    run_id: FromPath[str],
    step: OfStep = "",
    level: FromLevel = "debug",
    text: Text = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> LineList:
    """Return log lines of all jobs of a run, oldest first. To follow it, repeat the request with `next`, even after
    an empty page.
    """
    number_of(cursor)
    return await api.runs.logs(run_id, step=step, level=level, text=text, limit=limit, cursor=cursor)


@RUNS.handle("POST /runs/{run_id}/signal", "signalRun", Permission.EVENTS_SEND, "Send a signal to a run")
async def signal(api: ApiGiven, run_id: FromPath[str], data: JSONBody[SignalBody]) -> SignalledRun:
    """Send a signal to a run, and wait up to ten seconds for its effect.

    409: no step takes it. 422: the value does not fit the form of the step.
    """
    return await api.runs.signal(run_id, data)


@RUNS.handle("POST /runs/{run_id}/close", "closeRun", Permission.WORKFLOWS_OPERATE, "Close a batch")
async def close(api: ApiGiven, run_id: FromPath[str]) -> dict[str, str]:
    """Close a batch to new jobs. It ends when its jobs have ended. 409: it is cancelled, or not a batch."""
    await api.runs.close(run_id)
    return {"status": "closed", "run_id": run_id}


@RUNS.handle("POST /runs/{run_id}/cancel", "cancelRun", Permission.WORKFLOWS_OPERATE, "Cancel a run")
async def cancel(api: ApiGiven, run_id: FromPath[str], data: JSONBody[CancelRunBody | None] = None) -> dict[str, str]:
    """Cancel a run: steps that have not started never will, and running ones are stopped. 409: it has ended."""
    await api.runs.cancel(run_id, reason=(data or CancelRunBody()).reason)
    return {"status": "cancelling", "run_id": run_id}


@RUNS.handle("POST /runs/{run_id}/redrive", "redriveRun", Permission.WORKFLOWS_OPERATE, "Redrive a run")
async def redrive(api: ApiGiven, run_id: FromPath[str], data: JSONBody[RedriveBody | None] = None) -> RedrivenRun:
    """Run steps of an ended run again: those without success, or one step and all below it. 409: it has not ended."""
    body = data or RedriveBody()
    return await api.runs.redrive(run_id, step=body.step, dry_run=body.dry_run)


@RUNS.handle("POST /runs/{run_id}/hold", "holdRun", Permission.WORKFLOWS_OPERATE, "Hold a run", repeats=True)
async def hold(api: ApiGiven, run_id: FromPath[str], data: JSONBody[HoldRunBody | None] = None) -> dict[str, str]:
    """Hold a run and its child runs: running jobs end, and no step starts until the run is released.

    409: it has ended.
    """
    await api.runs.hold(run_id, reason=(data or HoldRunBody()).reason)
    return {"status": "held", "run_id": run_id}


@RUNS.handle(
    "POST /runs/{run_id}/release", "releaseRun", Permission.WORKFLOWS_OPERATE, "Release a held run", repeats=True
)
async def release(api: ApiGiven, run_id: FromPath[str]) -> dict[str, str]:
    """Release a held run: the steps that became ready meanwhile start. 409: a run above it is held."""
    await api.runs.release(run_id)
    return {"status": "released", "run_id": run_id}


@RUNS.handle("POST /runs/{run_id}/clone", "cloneRun", Permission.JOBS_SUBMIT, "Clone a run", status_code=201)
async def clone(api: ApiGiven, run_id: FromPath[str], data: JSONBody[CloneRunBody | None] = None) -> StartedRunView:
    """Start a run of the same content, with the parameters of this one where the body has none. The same run id again
    changes nothing.

    409: another run has the id.
    """
    return await api.runs.clone(run_id, data or CloneRunBody())
