"""Ends of steps, and what they mean for their children, their run and the steps that wait for them."""

from taskmq.model.runs.paths import KeptElsewhere, PathError, paths_in, resolve
from taskmq.model.runs.records import AgendaItem, InboxRow, RunState, StepKey, StepRecord
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.workspace import ErasedValue, Transition, Workspace
from taskmq.model.values.light_values import lighten


def end_step(
    here: Workspace, step: StepRecord, state: StepState, *, value: bytes | None = None, error: str = ""
) -> None:
    """End a step, and plan the visits of those that wait for it."""
    here.edit(step.key)
    step.state, step.error, step.ended, step.quota = state, error, here.now, ""
    if value is not None:
        here.put_end_value(step.key, value)
    run, name = here.run, step.key.name
    run.unfinished -= 1
    if step.has_failed and not here.content(step.key).may_fail:
        run.failures += 1
        run.error = run.error or f"step {name} has failed"
    # Steps of a cancelled run are cancelled one by one.
    if run.cancelled is None and here.graph.downstream[name]:
        here.plan(AgendaItem("visit", name))
    if not run.unfinished:
        here.plan(AgendaItem("finish"))


def end_child(
    here: Workspace, child: StepRecord, state: StepState, *, value: bytes | None = None, error: str = ""
) -> None:
    """End a running child, whose parent was read."""
    here.edit(child.key)
    child.state, child.error, child.ended = state, error, here.now
    if value is not None:
        here.put_end_value(child.key, value)
    parent = here.edit(StepKey(child.key.name))
    parent.active -= 1
    parent.done += state is StepState.SUCCEEDED
    settle(here, parent)


def settle(here: Workspace, parent: StepRecord) -> None:
    """End a step with children once no more of them will run; else let it start more."""
    is_stopped = here.run.cancelled is not None
    total = parent.total or 0
    if parent.active or not (is_stopped or (not parent.is_open and parent.cursor >= total)):
        wake(here, parent)
    elif parent.done == total and not parent.is_open:
        end_step(here, parent, StepState.SUCCEEDED)
    elif is_stopped:
        end_step(here, parent, StepState.CANCELLED)
    else:
        end_step(here, parent, StepState.FAILED, error=f"{total - parent.done} of {total} jobs have not succeeded")


def wake(here: Workspace, parent: StepRecord) -> None:
    """Let a step start more children if it may."""
    name = parent.key.name
    if can_start_child(here, parent) and name not in here.run.expanding:
        here.run.expanding.append(name)


def can_start_child(here: Workspace, parent: StepRecord) -> bool:
    """Return whether a running step may start another child."""
    limit = here.content(parent.key).limit
    is_below = not limit or parent.active < limit
    has_next = parent.cursor < (parent.total or 0)
    return here.run.cancelled is None and has_next and is_below and not parent.quota


def time_out(here: Workspace, row: InboxRow) -> str:
    """Cancel a run whose timer fired, unless the run is held or has another timer; return the answer."""
    run = here.run
    # The release of a held run sets another timer.
    if (
        run.timer != row.generation
        or run.held_since is not None
        or run.ended is not None
        or run.cancelled is not None
    ):
        return "superseded"
    run.is_timed_out = True
    run.error = f"timeout: it has not ended within {(run.timeout or 0) / 1000:g} s"
    cancel_run(here, "timeout")
    return "applied"


def cancel_run(here: Workspace, reason: str) -> None:
    """Plan the cancellation of all steps."""
    here.run.cancelled, here.run.held, here.run.held_above, here.run.held_since = reason, None, None, None
    here.run.state = RunState.RUNNING
    here.run.expanding.clear()
    # Those of a held run: the steps that became ready are cancelled instead of started.
    here.run.agenda.clear()
    here.plan(AgendaItem("cancel"))


def end_run(here: Workspace) -> Transition[None]:
    """End the run, whose steps have all ended."""
    run = here.run
    if run.is_timed_out:
        run.state = RunState.FAILED
    elif run.cancelled is not None:
        run.state = RunState.CANCELLED
    elif run.failures:
        run.state = RunState.FAILED
    else:
        run.state = RunState.SUCCEEDED
        output = here.graph.output()
        yield from here.load_paths(paths_in(output))
        try:
            here.changes.value = lighten(resolve(output, here.look_up)).store()
        except (PathError, ErasedValue, KeptElsewhere) as error:
            run.state, run.error = RunState.FAILED, f"output: {error}"
    run.ended, run.held, run.held_above, run.held_since, run.deadline = here.now, None, None, None, None
    here.changes.has_ended = True
