"""Starts of steps: arguments, jobs, children, waits, sleeps and child runs."""

from datetime import datetime
from typing import Any, Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.runs.conditions import ConditionError, parse_condition
from taskmq.model.runs.ends import end_step
from taskmq.model.runs.fan_out import begin_children, make_job
from taskmq.model.runs.graphs import StepContent
from taskmq.model.runs.paths import KeptElsewhere, PathError, resolve
from taskmq.model.runs.records import ChildRun, InboxRow, StepJob, StepKey, StepRecord, StepTimer
from taskmq.model.runs.rules import StepState, decide
from taskmq.model.runs.workspace import ErasedValue, Transition, Workspace
from taskmq.model.units import parse_duration, to_ms
from taskmq.model.values.light_values import lighten

DEEPEST: Final = 10
"""Maximum of runs above a run."""
MOST_SIGNALS: Final = 1_000
"""Maximum of signals that wait in a run."""


def evaluate(here: Workspace, step: StepRecord) -> Transition[None]:
    """Start a waiting step, or end it without a start, if its rule decides so.

    One that waits for a quota starts when its timer fires.
    """
    if step.quota:
        return
    name = step.key.name
    after = decide(here.graph.rules[name], step.upstream, len(here.graph.upstream[name]))
    if after is StepState.RUNNING:
        yield from begin(here, step)
    elif after is not StepState.WAITING:
        end_step(here, step, after)


def begin(here: Workspace, step: StepRecord) -> Transition[None]:
    """Start a waiting step if its condition is met. It waits on if a quota has no room for its job."""
    content = here.content(step.key)
    yield from here.load_paths(content.paths())
    here.edit(step.key)
    try:
        if content.condition and not parse_condition(content.condition).is_met(here.look_up_data):
            end_step(here, step, StepState.SKIPPED, error=f"not met: {content.condition}")
            return
        step.state, step.started = StepState.RUNNING, here.now
        error = yield from _start(here, step, content)
    except ErasedValue as erased:
        end_step(here, step, StepState.UPSTREAM_FAILED, error=str(erased))
    except (ConditionError, InvalidOption, KeptElsewhere, PathError) as fault:
        end_step(here, step, StepState.FAILED, error=str(fault))
    else:
        if error:
            end_step(here, step, StepState.FAILED, error=error)


def _start(here: Workspace, step: StepRecord, content: StepContent) -> Transition[str]:
    """Start a step; return why it cannot start, "" if it did."""
    match content.kind:
        case "each" | "batch":
            return begin_children(here, step, content)
        case "task":
            job = _job_of(here, step, content)
            if (yield from here.submit(job, step)):
                step.job = job.id
            else:
                step.state, step.started = StepState.WAITING, None
        case "workflow":
            if here.run.depth >= DEEPEST:
                return f"workflow: the run has {here.run.depth} runs above it, the maximum"
            step.job = _start_run(here, step, content)
        case "sleep":
            at = _wake_time(resolve(content.sleep, here.look_up_data), here.now)
            here.changes.timers.append(StepTimer(at, step.key.name, step.generation))
        case "value":
            value = lighten(resolve(content.value, here.look_up))
            end_step(here, step, StepState.SUCCEEDED, value=value.store())
        case _:
            timeout = resolve(content.timeout, here.look_up_data)
            yield from _wait(here, step, content, timeout)
    return ""


def _job_of(here: Workspace, step: StepRecord, content: StepContent) -> StepJob:
    args, kwargs = resolve(content.args, here.look_up), resolve(content.arguments, here.look_up)
    return make_job(here, step, content, args, kwargs)


def _start_run(here: Workspace, step: StepRecord, content: StepContent) -> str:
    child = ChildRun(
        id=here.new_id(),
        key=step.key,
        generation=step.generation,
        workflow=content.workflow,
        params=here.encode("a parameter", content.arguments),
        depth=here.run.depth + 1,
    )
    here.changes.runs.append(child)
    return child.id


def _wake_time(value: Any, now: int) -> int:
    """Return the instant (ms) of a duration, or of an instant in ISO 8601."""
    if isinstance(value, str) and len(value) > len("2027-01-01"):
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidOption(f"sleep={value!r} is neither a duration nor an instant in ISO 8601") from None
        if instant.tzinfo is None:
            raise InvalidOption(f"sleep={value!r} has no time zone: write 'Z' or an offset behind it")
        return int(instant.timestamp() * 1000)
    return now + to_ms(parse_duration(value, what="sleep"))


def _wait(here: Workspace, step: StepRecord, content: StepContent, timeout: Any) -> Transition[None]:
    for row in (yield from here.load_signals(content.wait)):
        if _is_for(row, step) and not _refusal(row, content):
            here.consume_signal(row)
            end_step(here, step, StepState.SUCCEEDED, value=row.value)
            return
    if timeout is not None:
        at = here.now + to_ms(parse_duration(timeout, what="timeout"))
        here.changes.timers.append(StepTimer(at, step.key.name, step.generation))


def end_wait(here: Workspace, step: StepRecord) -> None:
    """End a running wait or sleep whose timer fired."""
    content = here.content(step.key)
    if content.kind == "sleep":
        end_step(here, step, StepState.SUCCEEDED, value=b"null")
    elif content.on_timeout == "skip":
        end_step(here, step, StepState.SKIPPED, error=f"no signal {content.wait} within {content.timeout}")
    elif content.on_timeout == "fail":
        end_step(here, step, StepState.FAILED, error=f"no signal {content.wait} within {content.timeout}")
    else:
        end_step(here, step, StepState.SUCCEEDED, value=msgspec.json.encode(content.on_timeout["value"]))


def receive_signal(here: Workspace, row: InboxRow) -> Transition[str]:
    """Give a signal to the first step that waits for it, or keep it; return the answer for the sender."""
    if here.run.ended is not None or here.run.cancelled is not None:
        return "refused: the run has ended"
    refusal = ""
    for name in here.graph.waits.get(row.name, ()):
        key = StepKey(name)
        yield from here.load([key])
        step = here.find(key)
        if step.state is not StepState.RUNNING or not _is_for(row, step):
            continue
        refusal = _refusal(row, here.content(key))
        if not refusal:
            end_step(here, step, StepState.SUCCEEDED, value=row.value)
            return "consumed"
    if refusal:
        return f"refused: {refusal}"
    if row.name not in here.graph.waits and here.graph.is_complete:
        return f"refused: no step waits for the signal {row.name!r}"
    if here.run.signals >= MOST_SIGNALS:
        return f"refused: {MOST_SIGNALS} signals wait already"
    here.keep_signal(row)
    return "waiting"


def _is_for(row: InboxRow, step: StepRecord) -> bool:
    return row.step in ("", step.key.name) and row.generation in (None, step.generation)


def _refusal(row: InboxRow, content: StepContent) -> str:
    """Return why a step does not take a signal; "" if it does."""
    if not content.roles:
        return ""
    if row.roles is None:
        return "only an identified user may send it"
    return "" if set(row.roles) & set(content.roles) else f"only {', '.join(content.roles)} may send it"
