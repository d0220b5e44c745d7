"""`taskmq workflow`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import audited, change_with_app
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.output import note, print_record, print_rows, printable, when, write_line
from taskmq.cli.server_link import over_http
from taskmq.operations.workflow_graph import GraphFormat, GraphStep, graph_text
from taskmq.operations.workflows import WorkflowReport, cancel_workflow, redrive_workflow, report_workflow
from taskmq.workflow.catalogue import WorkflowFilter, WorkflowLine, read_states

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.workflow.handle import FlowStep

__all__ = ["STEP_COLUMNS", "WORKFLOW_COLUMNS", "app", "in_utc"]

app = App(name="workflow", help="Workflows: list, show, graph, close, cancel, redrive.", result_action="return_value")

WORKFLOW_COLUMNS: Final = ("workflow", "name", "state", "started", "nodes", "unfinished")
STEP_COLUMNS: Final = ("step", "task", "state", "attempts", "error")


@app.command(name="list")
@over_http("queues:list_workflows")
def list_all(
    *,
    name: str | None = None,
    state: str = "",
    tenant: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
) -> None:
    """List workflows, the newest first.

    Parameters
    ----------
    name
        Only those of this name, with * and ?: the one that they were sent with, their schedule's, or the task of
        their first step.
    state
        Only those: running, succeeded, failed, cancelled; several with commas between.
    tenant
        Whose. Default: everybody's.
    since
        Sent from when on, such as 2027-01-31T08:00; UTC unless it says otherwise.
    until
        Sent before when.
    limit
        How many at most.
    """
    which = WorkflowFilter(
        name=name, states=read_states(state), tenant=tenant, since=in_utc(since), until=in_utc(until)
    )
    lines = run_with_app(lambda target: _list(target, which, limit))
    is_table = current_globals().output == "table"
    print_rows(
        WORKFLOW_COLUMNS,
        [
            {
                "workflow": line.id,
                "name": line.name,
                "state": line.state,
                "started": when(line.started) if is_table else line.started,
                "nodes": line.nodes,
                "unfinished": line.unfinished,
            }
            for line in lines
        ],
    )


@app.command
@over_http("queues:show_workflow")
def show(workflow: str, /) -> None:
    """Show how far a workflow is, step by step.

    Parameters
    ----------
    workflow
        Its id.
    """
    _print_report(run_with_app(lambda target: report_workflow(target, workflow)))


@app.command
@over_http("queues:show_graph")
def graph(workflow: str, /, *, form: Annotated[GraphFormat, Parameter(name="--format")] = "mermaid") -> None:
    """Print the graph of a workflow with the states of its steps, to be drawn by Mermaid or Graphviz.

    With -o json it is the same as `show`.

    Parameters
    ----------
    workflow
        Its id.
    form
        mermaid, which Markdown pages draw, or dot: `taskmq workflow graph ID --format dot | dot -Tsvg`.
    """
    report = run_with_app(lambda target: report_workflow(target, workflow))
    if current_globals().output != "table":
        _print_report(report)
        return
    steps = [GraphStep(step.name, step.task, step.state, step.after, step.part_of) for step in report.steps]
    write_line(printable(graph_text(steps, form)))


@app.command
@audited
@over_http("queues:close_workflow")
def close(workflow: str, /) -> None:
    """Close a batch: no more jobs come, so it ends when those that it has have ended.

    Ends with 6 where it was cancelled, or is no batch.

    Parameters
    ----------
    workflow
        Its id.
    """
    change_with_app(lambda target: target.flow(workflow).aclose(), "workflow.close", [workflow])
    note(f"batch {workflow} is closed")


@app.command
@audited
@over_http("queues:cancel_workflow")
def cancel(workflow: str, /, *, reason: str = "cancelled by an operator") -> int:
    """End a workflow: what has not started never will, what runs is stopped.

    Ends with 3 where it has ended already, or is unknown.

    Parameters
    ----------
    workflow
        Its id.
    reason
        The reason for callers that await its result.
    """
    if change_with_app(
        lambda target: cancel_workflow(target, workflow, reason=reason), "workflow.cancel", [workflow], why=reason
    ):
        note(f"workflow {workflow} is cancelled")
        return OK
    note(f"workflow {workflow} has ended already")
    return NOT_FOUND


@app.command
@audited
@over_http("queues:redrive_workflow")
def redrive(workflow: str, /) -> None:
    """Run again what has not succeeded; what has is not run again.

    The dead letters of the steps that run again are removed, since a replay would not run them.

    Parameters
    ----------
    workflow
        Its id.
    """
    done = change_with_app(lambda target: redrive_workflow(target, workflow), "workflow.redrive", [workflow])
    letters = f"{done.letters} dead letter{'' if done.letters == 1 else 's'} removed"
    if done.steps:
        note(f"workflow {workflow}: {done.steps} steps run again, {letters}")
    else:
        note(f"workflow {workflow}: nothing to run again, it has not ended or everything has succeeded; {letters}")


def in_utc(given: datetime | None) -> datetime | None:
    """An instant that was given on the command line: in UTC unless it says otherwise."""
    return given if given is None or given.tzinfo else given.replace(tzinfo=UTC)


async def _list(target: "TaskMQ", which: WorkflowFilter, limit: int) -> list[WorkflowLine]:
    found: list[WorkflowLine] = []
    after: str | None = None
    while len(found) < limit:
        page = await target.workflows.alist(**which, after=after, limit=limit - len(found))
        found += page.lines
        if (after := page.after) is None:
            break
    return found


def _print_report(report: WorkflowReport) -> None:
    facts = {"workflow": report.id, "state": report.state, "cancelled": report.cancelled}
    if current_globals().output != "table":
        steps = [{**_row(step), "after": step.after, "part_of": step.part_of} for step in report.steps]
        print_record({**facts, "steps": steps})
        return
    print_record({name: value for name, value in facts.items() if value is not None})
    print_rows(STEP_COLUMNS, [_row(step) for step in report.steps])


def _row(step: "FlowStep") -> dict[str, Any]:
    error = step.error
    return {
        "step": step.name,
        "task": step.task,
        "state": step.state,
        "attempts": step.attempts,
        "error": None if error is None else f"{error.type_name}: {error.message}",
    }
