"""`taskmq reaction`."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from cyclopts import App

from taskmq.cli.output import note
from taskmq.cli.server_link import ask, first_items, show_record, show_rows, text_of_instant

if TYPE_CHECKING:
    from taskmq.api.schedules import ReactionConditionView, ReactionLine

__all__ = ["app", "show"]

app = App(
    name="reaction",
    help="List and show the app's reactions.",
    result_action="return_value",
)

_COLUMNS: Final = ("reaction", "task", "means")


@app.command(name="list")
def list_reactions(prefix: str = "", /, *, limit: int = 50, after: str | None = None) -> None:
    """List the app's reactions by name.

    Parameters
    ----------
    prefix
        Only names with this prefix.
    limit
        Maximum number of reactions.
    after
        Continue after this name, printed at the end of an earlier list.
    """
    found = ask(lambda api: first_items(partial(api.reactions.page, prefix), limit, after=after))
    show_rows(_COLUMNS, found.items, _row)
    if found.next is not None:
        note(f"there are more: --after {found.next}")


@app.command
def show(name: str, /) -> None:
    """Show a reaction, the events it waits for, and its calls.

    Parameters
    ----------
    name
        The reaction's name.
    """
    found = ask(lambda api: api.reactions.get(name))

    def record() -> dict[str, Any]:
        seen_by = "a beat" if found.seen_by == "beat" else "the worker that runs the job; a scheduler if none does"
        facts: dict[str, Any] = {**_row(found), "seen by": seen_by}
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
