"""Redrives: steps of an ended run that run again, under a new generation.

    revive    the steps wait again
    recount   each counts the upstream steps that do not run again
    decide    those that may start do

The three phases are not mixed: a step that ended in the middle would be counted twice. A run that is queued again
waits before the last one.
"""

from collections.abc import Mapping

from taskmq.model.runs.graphs import RunGraph
from taskmq.model.runs.records import AgendaItem, InboxRow, RunRecord, RunState, StepKey, StepRecord, StepTimer
from taskmq.model.runs.rules import StepState, UpstreamCounts
from taskmq.model.runs.starts import evaluate
from taskmq.model.runs.workspace import Transition, Workspace


def opening_state(run: RunRecord, graph: RunGraph) -> RunState:
    """Return the state of a run that was started or redriven: `queued` if it needs a place to begin.

    A run that a step started needs none: its parent may have the place that it would wait for.
    """
    is_limited = graph.content.max_active_runs is not None and not run.parent
    return RunState.QUEUED if is_limited else RunState.RUNNING


def redrive(here: Workspace, row: InboxRow) -> Transition[str]:
    """Plan a redrive; return the answer for the sender."""
    run = here.run
    first = StepKey(row.step)
    if row.step in here.graph.rules and here.graph.step(row.step).builds:
        yield from here.load([first])
        state = here.find(first).state
    else:
        state = StepState.WAITING
    if refusal := explain_refusal(run, here.graph, row.step, state):
        return f"refused: {refusal}"
    run.state, run.ended, run.cancelled, run.error = opening_state(run, here.graph), None, None, ""
    run.is_timed_out = False
    run.generation += 1
    here.plan(AgendaItem("revive", row.step))
    here.plan(AgendaItem("recount"))
    here.plan(AgendaItem("decide"))
    return "accepted"


def explain_refusal(run: RunRecord, graph: RunGraph, first: str, state: StepState) -> str:
    """Return why a redrive that begins at a step is refused; "" if it is not.

    Args:
        first: the first step that runs again; "": all without success.
        state: state of that step.
    """
    if run.ended is None:
        return "the run has not ended; cancel it first"
    if first and first not in graph.rules:
        return f"there is no step {first!r}"
    if first and graph.step(first).builds and state is StepState.SUCCEEDED:
        return f"step {first} has built the graph of the run; start a new run"
    return ""


def find_revived(graph: RunGraph, steps: Mapping[str, StepRecord], first: str) -> list[str]:
    """Return the steps that run again in a redrive that begins at a step, "" for all without success."""
    below = graph.below(first) if first else {name for name in steps if steps[name].state is not StepState.SUCCEEDED}
    return [name for name in graph.order if name in below]


def revive(here: Workspace, item: AgendaItem, names: list[str]) -> Transition[None]:
    """Let the step at the cursor wait again, if the redrive includes it."""
    key = StepKey(names[item.cursor])
    yield from here.load_window(names, item.cursor)
    step = here.find(key)
    if not item.step and step.state is StepState.SUCCEEDED:
        return
    content, run = here.content(key), here.run
    run.unfinished += 1
    if step.has_failed and not content.may_fail:
        run.failures -= 1
    is_partial = content.has_children and not item.step and step.total is not None
    keeps = is_partial or content.batch
    here.replace(
        StepRecord(
            key=key,
            generation=run.generation,
            earlier=step.jobs,
            total=step.total if keeps else None,
            done=step.done if is_partial else 0,
            is_open=step.is_open,
            is_partial=is_partial,
            since=step.since if is_partial else run.generation,
        )
    )


def recount(here: Workspace, item: AgendaItem, names: list[str]) -> Transition[None]:
    """Count the ends of the upstream steps of the step at the cursor, if it was revived."""
    key = StepKey(names[item.cursor])
    upstream = [StepKey(each) for each in here.graph.upstream[key.name]]
    yield from here.load([key, *upstream])
    if here.find(key).generation != here.run.generation:
        return
    step = here.edit(key)
    step.upstream = UpstreamCounts()
    for each in upstream:
        if here.find(each).state is StepState.WAITING:
            # Its value may change, and with it the children.
            step.is_partial, step.total = False, None
        else:
            step.upstream.add(here.find(each).state)


def decide_all(here: Workspace, item: AgendaItem, names: list[str]) -> Transition[None]:
    """Start the step at the cursor if it belongs to this generation and may start.

    The first step begins the time of the run, if it has a timeout.
    """
    run = here.run
    if not item.cursor and run.timeout is not None:
        run.deadline = here.now + run.timeout
        here.changes.timers.append(StepTimer(run.deadline, "", run.timer))
    key = StepKey(names[item.cursor])
    yield from here.load_window(names, item.cursor)
    step = here.find(key)
    if step.state is StepState.WAITING and step.generation == run.generation:
        yield from evaluate(here, step)
