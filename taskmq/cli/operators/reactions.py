"""`taskmq reaction`."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from taskmq.api.schedules import PutReactionBody
from taskmq.cli.actor import name_caller
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note
from taskmq.cli.server_link import ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import object_of

if TYPE_CHECKING:
    from taskmq.api.schedules import ReactionConditionView, ReactionLine

app = Noun(name="reaction", help="List, show and change the app's reactions.")

_COLUMNS: Final = ("reaction", "task", "means")
_SEEN_BY: Final = {
    "beat": "a beat",
    "scheduler": "a scheduler",
    "worker": "the worker that runs the job; otherwise a scheduler",
}


@app.command(name="list")
def list_reactions(prefix: str = "", /, *, limit: int = 50, after: str | None = None) -> None:
    """List the app's reactions by name.

    Args:
        prefix: Only names with this prefix.
        limit: Maximum number of reactions.
        after: Continue after this name, printed at the end of an earlier list.
    """
    found = ask(lambda api: first_items(partial(api.reactions.page, prefix), limit, after=after))
    show_rows(_COLUMNS, found.items, _row)
    if found.next is not None:
        note(f"there are more: --after {found.next}")


@app.command
@name_caller
def put(
    name: str,
    task: str,
    /,
    *,
    when: str,
    debounce: str | None = None,
    limit: str | None = None,
    at_limit: Literal["drop", "call"] = "drop",
) -> None:
    """Create or replace a reaction to ends of stored jobs or runs.

    Args:
        name: The reaction's name.
        task: The task to call, as a stored job.
        when: The condition as JSON: {"kind": "job", "tasks": ["load"], "states": ["failed"]}, {"kind": "run",
            "workflow": "nightly", "states": ["failed"]}, or such conditions as "parts" of the kind "all_of", "any_of"
            or "at_least" (with a "count").
        debounce: Duration without further events before it calls the task.
        limit: Longest wait from its first event to the call.
        at_limit: At the limit, forget the events or call the task with them.
    """
    condition = object_of("--when", when)
    body = PutReactionBody(task=task, when=condition, debounce=debounce, limit=limit, at_limit=at_limit)
    found = ask(lambda api: api.reactions.put(name, body))
    note(f"reaction {name} calls {task} {found.rule}")


@app.command
@name_caller
@ask_first("Remove reaction {name}?")
def remove(name: str, /) -> None:
    """Remove a reaction that was created at run time, with its events.

    Args:
        name: The reaction's name.
    """
    ask(lambda api: api.reactions.remove(name))
    note(f"reaction {name} removed")


@app.command
def show(name: str, /) -> None:
    """Show a reaction, the events it waits for, and its calls.

    Args:
        name: The reaction's name.
    """
    found = ask(lambda api: api.reactions.get(name))

    def record() -> dict[str, Any]:
        facts: dict[str, Any] = {**_row(found), "seen by": _SEEN_BY[found.seen_by]}
        if found.queues:
            facts["queues"] = ", ".join(found.queues)
        if found.fired is not None:
            facts["conditions"] = "\n".join(f"  {_describe(each)}" for each in found.conditions)
            facts |= {each: getattr(found, each) for each in ("fired", "failed", "dropped", "waiting")}
            facts["last"] = text_of_instant(found.last)
        return facts

    show_record(found, record)


def _describe(one: "ReactionConditionView") -> str:
    if not one.is_met:
        return f"{one.condition}: waiting"
    return f"{one.condition}: met" + ("" if one.event is None else f" by {msgspec.json.encode(one.event).decode()}")


def _row(one: "ReactionLine") -> dict[str, Any]:
    return {"reaction": one.name, "task": one.starts, "means": one.rule}
