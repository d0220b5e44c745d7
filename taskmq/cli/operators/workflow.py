"""`taskmq workflow`."""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import audited
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.output import note, print_rows, printable, write_line
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.errors import RequestRefused
from taskmq.operations.workflow_graph import GraphFormat, GraphStep, format_graph
from taskmq.workflow.workflows import read_states

if TYPE_CHECKING:
    from taskmq.api.workers import WorkflowLineView, WorkflowView
    from taskmq.cli.server_link import Pages

__all__ = ["app"]

app = App(name="workflow", help="Workflows: list, show, graph, close, cancel, redrive.", result_action="return_value")

_COLUMNS: Final = ("workflow", "name", "state", "started", "nodes", "unfinished")
_STEP_COLUMNS: Final = ("step", "task", "state", "attempts", "error")


@app.command(name="list")
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
    states = sorted(read_states(state))

    def pages(api: Api) -> "Pages[WorkflowLineView]":
        return partial(api.workflows.page, name=name, states=states, since=_in_utc(since), until=_in_utc(until))

    found = ask(lambda api: first_items(pages(api), limit), tenant=tenant)
    show_rows(_COLUMNS, found.items, _row)


@app.command
def show(workflow: str, /) -> None:
    """Show how far a workflow is, step by step.

    Parameters
    ----------
    workflow
        Its id.
    """
    _show(ask(lambda api: api.workflows.get(workflow)))


@app.command
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
    found = ask(lambda api: api.workflows.get(workflow))
    if current_globals().output != "table":
        _show(found)
        return
    steps = [GraphStep(step.step, step.task, step.state, step.after, step.part_of) for step in found.steps]
    write_line(printable(format_graph(steps, form)))


@app.command
@audited
def close(workflow: str, /) -> None:
    """Close a batch: no more jobs come, so it ends when those that it has have ended.

    Ends with 6 where it was cancelled, or is no batch.

    Parameters
    ----------
    workflow
        Its id.
    """
    ask(lambda api: api.workflows.close(workflow))
    note(f"batch {workflow} is closed")


@app.command
@audited
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
    try:
        ask(lambda api: api.workflows.cancel(workflow, reason=reason))
    except RequestRefused as error:
        if error.code != "workflow_ended":
            raise
        note(f"workflow {workflow} has ended already")
        return NOT_FOUND
    note(f"workflow {workflow} is cancelled")
    return OK


@app.command
@audited
def redrive(workflow: str, /) -> None:
    """Run again what has not succeeded; what has is not run again.

    The dead letters of the steps that run again are removed, since a replay would not run them.

    Parameters
    ----------
    workflow
        Its id.
    """
    done = ask(lambda api: api.workflows.redrive(workflow))
    letters = f"{done.letters} dead letter{'' if done.letters == 1 else 's'} removed"
    if done.steps:
        note(f"workflow {workflow}: {done.steps} steps run again, {letters}")
    else:
        note(f"workflow {workflow}: nothing to run again, it has not ended or everything has succeeded; {letters}")


def _in_utc(given: datetime | None) -> datetime | None:
    """An instant that was given on the command line: in UTC unless it says otherwise."""
    return given if given is None or given.tzinfo else given.replace(tzinfo=UTC)


def _show(found: "WorkflowView") -> None:
    facts = {"workflow": found.workflow_id, "state": found.state, "cancelled": found.cancelled}
    show_record(found, lambda: {name: value for name, value in facts.items() if value is not None})
    if current_globals().output == "table":
        print_rows(_STEP_COLUMNS, [{name: getattr(step, name) for name in _STEP_COLUMNS} for step in found.steps])


def _row(line: "WorkflowLineView") -> dict[str, Any]:
    return {
        "workflow": line.workflow_id,
        "name": line.name,
        "state": line.state,
        "started": text_of_instant(line.started),
        "nodes": line.nodes,
        "unfinished": line.unfinished,
    }
