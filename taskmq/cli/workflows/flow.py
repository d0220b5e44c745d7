"""`taskmq flow`: workflows that were sent to the state."""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import name_caller
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.output import note, print_rows, printable, write_line
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.errors import RequestRefused
from taskmq.operations.workflow_graph import GraphFormat, GraphStep, format_graph
from taskmq.workflow.workflows import read_states

if TYPE_CHECKING:
    from taskmq.api.workers import FlowLineView, FlowReportView
    from taskmq.cli.server_link import Pages

__all__ = ["app"]

app = App(
    name="flow",
    help="Manage workflows that were sent to the state: list, show, graph, close, cancel, redrive.",
    result_action="return_value",
)

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
    """List workflows, newest first.

    Parameters
    ----------
    name
        Only matching names; wildcards * and ?. The name is that given on sending, that of the schedule, or the task
        of the first step.
    state
        Only these states, separated by commas: running, succeeded, failed, cancelled.
    tenant
        Only this tenant. Default: all tenants.
    since
        Only workflows sent from this time on, such as 2027-01-31T08:00; UTC unless a zone is given.
    until
        Only workflows sent before this time.
    limit
        Maximum number of workflows.
    """
    states = sorted(read_states(state))

    def pages(api: Api) -> "Pages[FlowLineView]":
        return partial(api.flows.page, name=name, states=states, since=_in_utc(since), until=_in_utc(until))

    found = ask(lambda api: first_items(pages(api), limit), tenant=tenant)
    show_rows(_COLUMNS, found.items, _row)


@app.command
def show(workflow: str, /) -> None:
    """Show the progress of a workflow, step by step.

    Parameters
    ----------
    workflow
        The workflow's id.
    """
    _show(ask(lambda api: api.flows.get(workflow)))


@app.command
def graph(workflow: str, /, *, form: Annotated[GraphFormat, Parameter(name="--format")] = "mermaid") -> None:
    """Print the graph of a workflow and the states of its steps, for Mermaid or Graphviz.

    With -o json the output is that of `show`.

    Parameters
    ----------
    workflow
        The workflow's id.
    form
        mermaid, for Markdown pages, or dot: `taskmq flow graph ID --format dot | dot -Tsvg`.
    """
    found = ask(lambda api: api.flows.get(workflow))
    if current_globals().output != "table":
        _show(found)
        return
    steps = [GraphStep(step.step, step.task, step.state, step.after, step.part_of) for step in found.steps]
    write_line(printable(format_graph(steps, form)))


@app.command
@name_caller
def close(workflow: str, /) -> None:
    """Close a batch: it accepts no more jobs and ends when its last job has ended.

    Exits with 6 if the batch was cancelled, or the workflow is not a batch.

    Parameters
    ----------
    workflow
        The batch's id.
    """
    ask(lambda api: api.flows.close(workflow))
    note(f"batch {workflow} closed")


@app.command
@name_caller
def cancel(workflow: str, /, *, reason: str = "cancelled by an operator") -> int:
    """Cancel a workflow: pending steps never start, running jobs are stopped.

    Exits with 3 if the workflow has already ended or is unknown.

    Parameters
    ----------
    workflow
        The workflow's id.
    reason
        The reason, for callers that wait for its result.
    """
    try:
        ask(lambda api: api.flows.cancel(workflow, reason=reason))
    except RequestRefused as error:
        if error.code != "workflow_ended":
            raise
        note(f"workflow {workflow} has already ended")
        return NOT_FOUND
    note(f"workflow {workflow} cancelled")
    return OK


@app.command
@name_caller
def redrive(workflow: str, /) -> None:
    """Run the failed steps of a workflow again; succeeded steps are not repeated.

    Removes the dead letters of those steps, since replaying them would have no effect.

    Parameters
    ----------
    workflow
        The workflow's id.
    """
    done = ask(lambda api: api.flows.redrive(workflow))
    letters = f"{done.letters} dead letter{'' if done.letters == 1 else 's'} removed"
    if done.steps:
        note(f"workflow {workflow}: {done.steps} steps run again, {letters}")
    else:
        note(f"workflow {workflow}: nothing to run again, since it still runs or has succeeded; {letters}")


def _in_utc(given: datetime | None) -> datetime | None:
    """Return an instant of the command line in UTC, which is also the default zone."""
    return given if given is None or given.tzinfo else given.replace(tzinfo=UTC)


def _show(found: "FlowReportView") -> None:
    facts = {"workflow": found.workflow_id, "state": found.state, "cancelled": found.cancelled}
    show_record(found, lambda: {name: value for name, value in facts.items() if value is not None})
    if current_globals().output == "table":
        print_rows(_STEP_COLUMNS, [{name: getattr(step, name) for name in _STEP_COLUMNS} for step in found.steps])


def _row(line: "FlowLineView") -> dict[str, Any]:
    return {
        "workflow": line.workflow_id,
        "name": line.name,
        "state": line.state,
        "started": text_of_instant(line.started),
        "nodes": line.nodes,
        "unfinished": line.unfinished,
    }
