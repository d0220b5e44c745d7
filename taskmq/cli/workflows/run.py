"""`taskmq run`: runs of workflows."""

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.workflows.runs import CloneRunBody, SignalBody
from taskmq.cli.actor import name_caller
from taskmq.cli.globals import current_globals
from taskmq.cli.jobs.logs import print_log, read_log
from taskmq.cli.noun import Noun
from taskmq.cli.output import note, printable, write_line
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import any_value, param_of
from taskmq.operations.workflow_graph import GraphFormat, GraphStep, format_graph

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from taskmq.api.history.logs import LineView
    from taskmq.api.workflows.runs import RunGraphView, RunLineView, RunStepView, TimelineRow, WorkflowRunView
    from taskmq.cli.server_link import Pages

app = Noun(name="run", help="Manage runs of workflows: list, inspect, signal, hold, release, cancel, redrive, clone.")

_COLUMNS: Final = ("run", "workflow", "state", "started", "ended", "unfinished", "error")
_STEP_COLUMNS: Final = ("step", "kind", "task", "state", "started", "ended", "children", "job", "error")
_TIME_COLUMNS: Final = ("step", "state", "ready", "started", "ended", "ran", "job", "attempt", "worker")
_Tenant = Annotated[str | None, Parameter(help="The tenant. Default: all tenants, or that of the token.")]


@app.command(name="list")
def list_runs(which: str = "", /, *, tenant: _Tenant = None, limit: int = 50) -> None:
    """List runs, newest first.

    Args:
        which: A filter such as 'workflow:nightly* status:failed started:>-24h label.team:ops'.
        limit: Maximum number of runs.
    """

    def pages(api: Api) -> "Pages[RunLineView]":
        return partial(api.runs.page, which)

    found = ask(lambda api: first_items(pages(api), limit), tenant=tenant, may_be_stale=True)
    show_rows(_COLUMNS, found.items, _row)


@app.command
def show(run: str, /) -> None:
    """Show a run with its parameters and its value. Exits with 3 if there is none.

    Args:
        run: The run's id.
    """
    found = ask(lambda api: api.runs.get(run))
    show_record(found, lambda: _record(found))


@app.command
def steps(run: str, /) -> None:
    """List the steps of a run, each after the steps before it.

    Args:
        run: The run's id.
    """
    show_rows(_STEP_COLUMNS, ask(lambda api: api.runs.graph(run)).steps, _step_row)


@app.command
def graph(run: str, /, *, form: Annotated[GraphFormat, Parameter(name="--format")] = "mermaid") -> None:
    """Print the graph of a run and the states of its steps, for Mermaid or Graphviz.

    Args:
        run: The run's id.
        form: mermaid, for Markdown pages, or dot: `taskmq run graph ID --format dot | dot -Tsvg`.
    """
    found: RunGraphView = ask(lambda api: api.runs.graph(run))
    if current_globals().output != "table":
        show_record(found, dict)
        return
    write_line(
        printable(format_graph([GraphStep(one.step, one.task, one.state, one.needs) for one in found.steps], form))
    )


@app.command
def timeline(run: str, /, *, step: str = "", limit: int = 200) -> None:
    """List the steps of a run over time: when each was ready, and each execution of its jobs.

    Args:
        run: The run's id.
        step: List the children of this step.
        limit: Maximum number of steps or children.
    """

    def pages(api: Api) -> "Pages[TimelineRow]":
        return partial(api.runs.timeline, run, step=step)

    found = ask(lambda api: first_items(pages(api), limit))
    if current_globals().output == "json":
        show_rows((), found.items, dict)
    else:
        show_rows(_TIME_COLUMNS, [row for one in found.items for row in _time_rows(one)], dict)


@app.command
def logs(
    run: str,
    /,
    *,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="")] = False,
    step: str = "",
    level: str = "debug",
    text: str = "",
    limit: int = 1_000,
) -> None:
    """Print the captured log lines of all jobs of a run, oldest first.

    Workers capture log lines with `--capture-logs`.

    Args:
        run: The run's id.
        follow: Keep printing new lines until the run has ended.
        step: Only lines of this step and its children.
        level: Minimum level: debug, info, warning, error.
        text: Only lines that contain this text.
        limit: Maximum number of lines; not with --follow.
    """

    def lines(api: Api) -> "Awaitable[list[LineView] | None]":
        async def is_over() -> bool:
            return (await api.runs.get(run)).ended is not None

        pages = partial(api.runs.logs, run, step=step, level=level, text=text)
        return read_log(pages, limit, is_over if follow else None)

    print_log(ask(lines), limit)


@app.command
@name_caller
def signal(
    run: str,
    signal: str,
    value: str = "null",
    /,
    *,
    step: str = "",
    signal_id: Annotated[str | None, Parameter(name="--id")] = None,
) -> None:
    """Send a signal to a run. Exits with 6 if no step takes it.

    Args:
        run: The run's id.
        signal: The name that a step waits for.
        value: The value of the step: JSON, or a text.
        step: The only step that may take it.
        signal_id: An id: sending it again changes nothing.
    """
    body = SignalBody(signal=signal, value=any_value(value), step=step, signal_id=signal_id)
    sent = ask(lambda api: api.runs.signal(run, body))
    show_record(sent, lambda: {"run": sent.run_id, "signal": signal, "id": sent.signal_id, "effect": sent.effect})


@app.command
@name_caller
def close(run: str, /) -> None:
    """Close a batch: it accepts no more jobs and ends when its last job has ended.

    Exits with 6 if it was cancelled, or is not a batch.

    Args:
        run: The run's id.
    """
    ask(lambda api: api.runs.close(run))
    note(f"run {run}: closed")


@app.command
@name_caller
def cancel(run: str, /, *, reason: str = "cancelled by an operator") -> None:
    """Cancel a run: pending steps never start, running jobs are stopped. Exits with 6 if it has ended.

    Args:
        run: The run's id.
        reason: The reason, shown with the run.
    """
    ask(lambda api: api.runs.cancel(run, reason=reason))
    note(f"run {run}: cancellation requested")


@app.command
@name_caller
def redrive(run: str, /, *, step: str = "", dry_run: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Run steps of an ended run again: those without success. Exits with 6 if it has not ended.

    Args:
        run: The run's id.
        step: Run this step and all below it again, whether they succeeded or not.
        dry_run: Only list the steps that would run again.
    """
    found = ask(lambda api: api.runs.redrive(run, step=step, dry_run=dry_run))
    if dry_run:
        show_rows(("step",), found.steps, lambda name: {"step": name})
    note(f"run {run}: {len(found.steps)} steps {'would run' if dry_run else 'run'} again")


@app.command
@name_caller
def hold(run: str, /, *, reason: str = "held by an operator") -> None:
    """Hold a run and its child runs: running jobs end, and no step starts until it is released.

    Exits with 6 if the run has ended.

    Args:
        run: The run's id.
        reason: The reason, shown with the run.
    """
    ask(lambda api: api.runs.hold(run, reason=reason))
    note(f"run {run}: held")


@app.command
@name_caller
def release(run: str, /) -> None:
    """Release a held run: the steps that became ready meanwhile start. Exits with 6 if a run above it is held.

    Args:
        run: The run's id.
    """
    ask(lambda api: api.runs.release(run))
    note(f"run {run}: released")


@app.command
@name_caller
def clone(
    run: str,
    /,
    *,
    param: Annotated[
        list[str] | None,
        Parameter(name=["--param", "-p"], negative="", help="A parameter, as KEY=VALUE; repeatable."),
    ] = None,
    run_id: Annotated[str | None, Parameter(name="--id")] = None,
) -> None:
    """Start a run of the same content; print its id. Parameters that are not given are those of the first run.

    Args:
        run: The id of the first run.
        run_id: An id: cloning to it again changes nothing.
    """
    body = CloneRunBody(params=dict(map(param_of, param or [])), run_id=run_id)
    made = ask(lambda api: api.runs.clone(run, body))
    show_record(
        made, lambda: {"run": made.run_id, "workflow": made.workflow, "version": made.version, "new": made.is_new}
    )


def _row(run: "RunLineView") -> dict[str, Any]:
    return {
        "run": run.run_id,
        "workflow": run.workflow,
        "state": "held" if run.held is not None and run.state == "running" else run.state,
        "started": text_of_instant(run.started),
        "ended": text_of_instant(run.ended),
        "unfinished": run.unfinished,
        "error": run.error or run.cancelled or run.held or "",
    }


def _record(run: "WorkflowRunView") -> dict[str, Any]:
    facts = _row(run) | {
        "version": run.version,
        "tenant": run.tenant,
        "generation": run.generation,
        "scheduled_for": run.scheduled_for,
        "parent": run.parent,
        "begun": text_of_instant(run.begun),
        "waits": _waits(run),
        "value_problem": None if run.value_problem is None else run.value_problem.detail,
        **{name: _as_json(getattr(run, name)) for name in ("labels", "params", "value")},
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _waits(run: "WorkflowRunView") -> str:
    """Return why a queued run waits; "" for any other run."""
    if run.place is None:
        return ""
    ahead = f", {run.place.ahead} wait before it" if run.place.ahead else ""
    return f"{run.place.active} of {run.place.most} runs are active{ahead}"


def _time_rows(row: "TimelineRow") -> list[dict[str, Any]]:
    """Return a line for each execution, or for a job without one; one for the step if it has no job."""
    facts = {
        "step": row.step if row.child is None else f"{row.step}[{row.child}]",
        "ready": text_of_instant(row.ready),
    }
    runs: list[tuple[str, str, str | None, str | None, int | str, str]] = []
    for job in row.jobs:
        runs += [(job.job_id, one.state, one.started, one.ended, one.attempt, one.worker) for one in job.attempts]
        runs += [(job.job_id, "interrupted", one.started, one.at, "", one.worker) for one in job.interruptions]
        if not (job.attempts or job.interruptions):
            runs.append((job.job_id, job.state, None, job.ended, "", ""))
    return [
        facts
        | {"state": state, "started": text_of_instant(started), "ended": text_of_instant(ended)}
        | {"ran": _seconds(started, ended), "job": job, "attempt": attempt, "worker": worker}
        for job, state, started, ended, attempt, worker in sorted(runs, key=lambda run: run[2] or "~")
        or [("", row.state, row.started, row.ended, "", "")]
    ]


def _seconds(started: str | None, ended: str | None) -> str:
    """Return the seconds between two instants of the API; "" if one is missing."""
    if not started or not ended:
        return ""
    return f"{(datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds():.3f}"


def _as_json(value: Any) -> str:
    return "" if value in (None, {}) else msgspec.json.encode(value).decode()


def _step_row(step: "RunStepView") -> dict[str, Any]:
    children = "" if step.total is None else f"{step.done} of {step.total}"
    return {
        "step": step.step,
        "kind": step.kind,
        "task": step.task or step.signal,
        "state": step.state,
        "started": text_of_instant(step.started),
        "ended": text_of_instant(step.ended),
        "children": children,
        "job": step.job_id,
        "error": step.error or step.quota,
    }
