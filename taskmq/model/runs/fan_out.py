"""Children of `each` and of batches: started by a cursor, in portions, at most `limit` at a time."""

from typing import Any, Final

import msgspec

from taskmq.model.runs.ends import can_start_child, settle
from taskmq.model.runs.graphs import StepContent
from taskmq.model.runs.paths import KeptElsewhere, Path, PathError, find_value, paths_in, resolve
from taskmq.model.runs.records import InboxRow, StepJob, StepKey, StepRecord
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.workspace import ErasedValue, Transition, Workspace
from taskmq.model.values.light_values import lighten

MOST_CALLS: Final = 200
"""Maximum of calls that one inbox row adds to a batch."""


class BatchCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that was added to a batch."""

    task: str
    args: tuple[msgspec.Raw, ...] = ()
    kwargs: dict[str, msgspec.Raw] = {}
    options: dict[str, Any] = {}


_decoder: Final = msgspec.json.Decoder(BatchCall)


def begin_children(here: Workspace, step: StepRecord, content: StepContent) -> str:
    """Let a running step start its children; return why it cannot, "" if it can.

    Raises:
        PathError: a reference leads to nothing.
        ErasedValue: a value that it needs was erased.
        KeptElsewhere: parts of the list are kept elsewhere.
    """
    if not content.batch:
        count = here.count_items(step.key.name)
        if count is None:
            return "each: the value is not a list"
        if count > content.max_width:
            return f"each: the list has {count} items, and max_width is {content.max_width}"
        step.total = count
    elif step.total is None:
        step.total, step.is_open = 0, True
    step.cursor = 0
    if not step.is_partial:
        step.done, step.since = 0, step.generation
    settle(here, step)
    return ""


def expand(here: Workspace, name: str) -> Transition[None]:
    """Start children of a step, as many as its limit and the transaction have room for.

    The cursor also passes the children that a redrive keeps, so that a step ends with the last one that runs.
    """
    key = StepKey(name)
    yield from here.load([key])
    parent, content = here.find(key), here.content(key)
    yield from here.load_paths(content.paths())
    while parent.cursor < (parent.total or 0):
        if not here.has_room():
            return
        child = StepKey(name, parent.cursor)
        before = StepRecord(key=child)
        if parent.is_partial or content.batch:
            yield from here.load_children(name, parent.cursor, parent.total or 0)
            before = here.find(child)
        is_kept = parent.is_partial and before.state is StepState.SUCCEEDED and before.generation >= parent.since
        if not is_kept and not (can_start_child(here, parent) and (yield from _start_child(here, parent, before))):
            break
        here.edit(key)
        parent.cursor += 1
    here.run.expanding.remove(name)
    settle(here, parent)


def add_calls(here: Workspace, row: InboxRow) -> Transition[str]:
    """Add calls to an open batch; return the answer for the sender."""
    key = StepKey(row.step)
    yield from here.load([key])
    parent = here.find(key)
    if parent.state is not StepState.RUNNING or not parent.is_open or here.run.cancelled is not None:
        return "closed"
    here.edit(key)
    for call in row.calls:
        here.replace(
            StepRecord(key=StepKey(row.step, parent.total or 0), generation=parent.generation, call=bytes(call))
        )
        parent.total = (parent.total or 0) + 1
    settle(here, parent)
    return "added"


def close_batch(here: Workspace, row: InboxRow) -> Transition[str]:
    """Close a batch; return the answer for the sender."""
    key = StepKey(row.step)
    yield from here.load([key])
    parent = here.find(key)
    if parent.state is StepState.RUNNING and parent.is_open and here.run.cancelled is None:
        here.edit(key).is_open = False
        settle(here, parent)
    return "closed"


def _start_child(here: Workspace, parent: StepRecord, before: StepRecord) -> Transition[bool]:
    """Start a child; return whether the quotas had room for its job."""
    child = StepRecord(
        key=before.key,
        state=StepState.RUNNING,
        generation=parent.generation,
        earlier=before.jobs,
        call=before.call,
        started=here.now,
    )
    try:
        job = _call_of_batch(here, child) if child.call else _call_of_item(here, child)
    except (PathError, ErasedValue, KeptElsewhere) as error:
        child.state, child.error, child.ended = StepState.FAILED, str(error), here.now
    else:
        if not (yield from here.submit(job, parent)):
            return False
        child.job = job.id
        parent.active += 1
    here.replace(child)
    return True


def _call_of_batch(here: Workspace, child: StepRecord) -> StepJob:
    call = _decoder.decode(child.call)
    return StepJob(
        id=here.new_id(),
        key=child.key,
        generation=child.generation,
        task=call.task,
        args=msgspec.json.encode(call.args),
        kwargs=msgspec.json.encode(call.kwargs),
        options=call.options,
    )


def _call_of_item(here: Workspace, child: StepRecord) -> StepJob:
    content = here.content(child.key)
    item = here.find_item(*child.key)

    def look_up(path: Path) -> Any:
        if path.root != "item":
            return here.look_up(path)
        return find_value(msgspec.json.decode(item), path) if path.keys else item

    args: list[Any] = resolve(content.args, look_up)
    if not any(path.root == "item" for path in paths_in([content.args, content.arguments])):
        first: Any = msgspec.json.decode(item) if content.spread else [item]
        if not isinstance(first, list):
            raise PathError("spread: the item is not a list of arguments")
        args = [*first, *args]
    return make_job(here, child, content, args, resolve(content.arguments, look_up))


def make_job(here: Workspace, step: StepRecord, content: StepContent, args: Any, kwargs: Any) -> StepJob:
    """Return the job of a step or a child.

    Args:
        args, kwargs: resolved templates.
    """
    positional, named = lighten(args, "args"), lighten(kwargs, "kwargs")
    return StepJob(
        id=here.new_id(),
        key=step.key,
        generation=step.generation,
        task=content.task,
        args=bytes(positional.value),
        kwargs=bytes(named.value),
        options=content.options if content.timeout is None else {**content.options, "timeout": content.timeout},
        parts=positional.parts + named.parts,
    )
