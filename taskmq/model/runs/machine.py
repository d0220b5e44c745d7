"""The state machine of runs: the effects of inbox rows, cut into transactions.

    row -> ends of steps -> agenda: visits of the steps that wait for them -> starts and more ends -> ... -> next row

A transition that is too large for one transaction leaves the rest of itself in the run's agenda, which precedes every
later row. So the result does not depend on where it was cut. Children of steps start last: a row that comes
meanwhile, such as a cancellation, does not wait for them.

While a run is held, rows apply, and the agenda and the children wait. So ends are recorded, and nothing starts. Only
the child runs get the hold: a part that precedes the rest of the agenda. A queued run starts its first steps after a
`begin` row, which the store adds when the run has a place.

A job needs room in its quotas. If there is none, its step waits for a timer and asks again; the cursor of a step with
children stays where it is.
"""

from collections.abc import Callable, Sequence
from typing import Final

from taskmq.model.runs.built_graphs import end_build
from taskmq.model.runs.ends import cancel_run, end_child, end_run, end_step, settle, time_out, wake
from taskmq.model.runs.fan_out import add_calls, close_batch, expand
from taskmq.model.runs.graphs import RunGraph
from taskmq.model.runs.records import AgendaItem, InboxRow, RunRecord, RunState, StepKey, StepRecord, StepTimer
from taskmq.model.runs.redrives import decide_all, opening_state, recount, redrive, revive
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.starts import begin, end_wait, evaluate, receive_signal
from taskmq.model.runs.workspace import Transition, Workspace


def open_run(run: RunRecord, graph: RunGraph) -> None:
    """Prepare a new run of a graph."""
    run.state = opening_state(run, graph)
    run.unfinished = len(graph.order)
    run.agenda = [AgendaItem("begin")]


def has_work(run: RunRecord) -> bool:
    """Return whether the run has more to do without another inbox row."""
    return bool(run.agenda or run.expanding) and not _is_still(run)


def _is_still(run: RunRecord) -> bool:
    """Return whether no step starts: the run is queued or held. Once all steps have ended, a held run may end."""
    if run.state is RunState.QUEUED:
        return run.agenda[0].kind in ("begin", "decide")
    is_passing = bool(run.agenda) and run.agenda[0].kind == "hold_runs"
    return run.hold is not None and run.unfinished > 0 and not is_passing


def advance(here: Workspace, rows: Sequence[InboxRow]) -> Transition[int]:
    """Apply rows of the run's inbox, the earliest first; return how many were applied.

    The run may have more work afterwards: call it again, in another transaction, while `has_work`.
    """
    applied = 0
    while here.has_room():
        is_still = _is_still(here.run)
        if here.run.agenda and not is_still:
            yield from _continue(here, here.run.agenda[0])
        elif applied < len(rows) and here.has_room(len(rows[applied].calls)):
            answer = yield from _apply(here, rows[applied])
            here.changes.answers[rows[applied].number] = answer
            applied += 1
        elif here.run.expanding and applied == len(rows) and not is_still:
            yield from expand(here, here.run.expanding[0])
        else:
            break
    here.return_budget()
    return applied


def _continue(here: Workspace, item: AgendaItem) -> Transition[None]:
    """Do parts of the first item of the agenda until it is done or the transaction is full."""
    names = yield from _targets(here, item)
    while item.cursor < len(names) and here.has_room():
        yield from _PARTS[item.kind](here, item, names)
        item.cursor += 1
    if item.cursor >= len(names):
        del here.run.agenda[0]
        if item.kind == "cancel_children":
            settle(here, here.edit(StepKey(item.step)))
        elif item.kind == "recount" and not here.run.unfinished:
            here.run.agenda = [AgendaItem("finish")]


def _targets(here: Workspace, item: AgendaItem) -> Transition[list[str]]:
    """Return the names that an item goes through, the same in each transaction."""
    graph = here.graph
    match item.kind:
        case "begin":
            return graph.roots
        case "visit":
            yield from here.load([StepKey(item.step)])
            return graph.downstream[item.step]
        case "cancel_children":
            yield from here.load([StepKey(item.step)])
            return [item.step] * here.find(StepKey(item.step)).cursor
        case "hold_runs":
            return _workflow_steps(here)
        case "revive" if item.step:
            below = graph.below(item.step)
            return [name for name in graph.order if name in below]
        case "retry":
            return [item.step]
        case "finish":
            return [""]
        case _:
            return graph.order


def _visit(here: Workspace, item: AgendaItem, names: list[str]) -> Transition[None]:
    """Let the step at the cursor see the end of an upstream step."""
    name = names[item.cursor]
    if not here.run.generation and len(here.graph.upstream[name]) == 1:
        # Nothing has changed it before.
        here.put_steps([StepRecord(key=StepKey(name))])
    else:
        yield from here.load_window(names, item.cursor)
    target = here.find(StepKey(name))
    if target.state is StepState.WAITING:
        here.edit(target.key).upstream.add(here.find(StepKey(item.step)).state)
        yield from evaluate(here, target)


def _cancel_step(here: Workspace, item: AgendaItem, names: list[str]) -> Transition[None]:
    """Cancel the step at the cursor: at once, or by a request to its jobs or its run."""
    yield from here.load_window(names, item.cursor)
    step = here.find(StepKey(names[item.cursor]))
    if step.state.has_ended:
        return
    kind = here.content(step.key).kind
    if step.state is StepState.WAITING or kind in ("wait", "sleep"):
        end_step(here, step, StepState.CANCELLED)
    elif kind == "task":
        here.changes.cancelled_jobs.append(step.job)
    elif kind == "workflow":
        here.changes.cancelled_runs.append(step.job)
    else:
        here.plan(AgendaItem("cancel_children", step.key.name))


def _cancel_child(here: Workspace, item: AgendaItem, names: list[str]) -> Transition[None]:
    yield from here.load_children(item.step, item.cursor, len(names))
    child = here.find(StepKey(item.step, item.cursor))
    if child.state is StepState.RUNNING:
        here.changes.cancelled_jobs.append(child.job)


def _hold_run(here: Workspace, item: AgendaItem, names: list[str]) -> Transition[None]:
    yield from here.load_window(names, item.cursor)
    step = here.find(StepKey(names[item.cursor]))
    if step.state is StepState.RUNNING:
        here.changes.held_runs.append(step.job)


def _workflow_steps(here: Workspace) -> list[str]:
    return [name for name in here.graph.order if here.content(StepKey(name)).kind == "workflow"]


def _apply(here: Workspace, row: InboxRow) -> Transition[str]:
    """Apply a row; return the answer for its sender."""
    match row.kind:
        case "end":
            return (yield from _end(here, row))
        case "timer" if not row.step:
            return time_out(here, row)
        case "timer":
            yield from here.load([StepKey(row.step)])
            return _fire(here, here.find(StepKey(row.step)), row.generation)
        case "signal":
            return (yield from receive_signal(here, row))
        case "cancel":
            if here.run.ended is not None or here.run.cancelled is not None:
                return "ended"
            cancel_run(here, row.error)
            return "accepted"
        case "hold" | "release":
            return _hold(here, row)
        case "begin":
            return _begin(here.run, row, now=here.now)
        case "redrive":
            return (yield from redrive(here, row))
        case "add":
            return (yield from add_calls(here, row))
        case _:
            return (yield from close_batch(here, row))


def _fire(here: Workspace, step: StepRecord, generation: int | None) -> str:
    """End the wait of a step whose timer fired: for a signal, an instant, or room in a quota; return the answer."""
    if step.generation != generation:
        return "superseded"
    if step.quota and step.state is StepState.WAITING:
        here.plan(AgendaItem("retry", step.key.name))
    elif step.quota:
        here.edit(step.key).quota = ""
        wake(here, step)
    elif step.state is StepState.RUNNING:
        end_wait(here, step)
    else:
        return "superseded"
    return "applied"


def _retry(here: Workspace, _item: AgendaItem, names: list[str]) -> Transition[None]:
    """Start the step whose quota may have room."""
    key = StepKey(names[0])
    yield from here.load([key])
    yield from begin(here, here.find(key))


def _hold(here: Workspace, row: InboxRow) -> str:
    """Hold or release the run and its child runs; return the answer for the sender."""
    run = here.run
    is_hold = row.kind == "hold"
    if is_hold and (run.ended is not None or run.cancelled is not None):
        return "ended"
    before = run.hold
    if row.is_from_above:
        run.held_above = row.error if is_hold else None
    else:
        run.held = row.error if is_hold else None
    if before is None and run.hold is not None:
        run.held_since = here.now
    elif run.hold is None and run.held_since is not None:
        _resume_timeout(here, run.held_since)
    if run.hold != before and _workflow_steps(here):
        run.agenda.insert(0, AgendaItem("hold_runs"))
    return "accepted" if is_hold or run.hold is None else "held above"


def _resume_timeout(here: Workspace, held_since: int) -> None:
    """Postpone the deadline of the run by the time for which it was held, with a timer of its own."""
    run = here.run
    run.held_since = None
    run.releases += 1
    if run.deadline is not None:
        run.deadline += here.now - held_since
        here.changes.timers.append(StepTimer(run.deadline, "", run.timer))


def _begin(run: RunRecord, row: InboxRow, *, now: int) -> str:
    """Let a queued run begin, unless its place was of another generation; return the answer."""
    if run.state is not RunState.QUEUED or run.generation != row.generation:
        return "superseded"
    run.state, run.begun = RunState.RUNNING, now
    return "applied"


def _end(here: Workspace, row: InboxRow) -> Transition[str]:
    """End the step or child whose job ended; rows of other jobs are of no effect."""
    key = StepKey(row.step, row.child)
    yield from here.load(dict.fromkeys((key, StepKey(row.step))))
    step = here.find(key)
    if step.state is not StepState.RUNNING or step.job != row.job:
        return "superseded"
    value = row.value if row.state is StepState.SUCCEEDED else None
    if key.is_child:
        end_child(here, step, row.state, value=value, error=row.error)
    elif value is not None and here.content(key).builds:
        end_build(here, step, value)
    else:
        end_step(here, step, row.state, value=value, error=row.error)
    return "applied"


def _finish(here: Workspace, _item: AgendaItem, _names: list[str]) -> Transition[None]:
    yield from end_run(here)


_PARTS: Final[dict[str, Callable[[Workspace, AgendaItem, list[str]], Transition[None]]]] = {
    "begin": decide_all,
    "visit": _visit,
    "cancel": _cancel_step,
    "cancel_children": _cancel_child,
    "hold_runs": _hold_run,
    "retry": _retry,
    "revive": revive,
    "recount": recount,
    "decide": decide_all,
    "finish": _finish,
}
