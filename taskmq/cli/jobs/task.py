"""`taskmq task`: tasks of the app, or registered by workers and schedulers at the store."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from taskmq.cli.noun import Noun
from taskmq.cli.output import note
from taskmq.cli.server_link import ask, first_items, show_record, show_rows, text_of_instant

if TYPE_CHECKING:
    from taskmq.api.workers import TaskView

app = Noun(
    name="task", help="List and show tasks of the app, or registered by workers and schedulers: queues and arguments."
)

_COLUMNS: Final = ("task", "queue", "arguments", "registered", "by", "description")


@app.command(name="list")
def list_tasks(prefix: str = "", /, *, limit: int = 50, after: str | None = None) -> None:
    """List tasks by name.

    Args:
        prefix: Only names with this prefix.
        limit: Maximum number of tasks.
        after: Continue after this name, printed at the end of an earlier list.
    """
    found = ask(lambda api: first_items(partial(api.tasks.page, prefix), limit, after=after))
    show_rows(_COLUMNS, found.items, _row)
    if found.next is not None:
        note(f"there are more: --after {found.next}")


@app.command
def show(task: str, /) -> None:
    """Show a task with the JSON Schema of its arguments. Exits with 3 if neither the app nor the store knows it.

    Args:
        task: The task's name.
    """
    found = ask(lambda api: api.tasks.get(task))

    def record() -> dict[str, Any]:
        return {
            **_row(found),
            "first": text_of_instant(found.first),
            "origin": found.origin,
            "options": found.options,
            "positional": found.positional,
            "rest": found.rest,
            "schema": msgspec.json.format(msgspec.json.encode(found.arguments)).decode(),
        }

    show_record(found, record)


def _row(one: "TaskView") -> dict[str, Any]:
    required = one.arguments.get("required", [])
    names = [*one.positional, *(name for name in one.arguments.get("properties", {}) if name not in one.positional)]
    return {
        "task": one.name,
        "queue": one.queue,
        "arguments": " ".join(name if name in required else f"[{name}]" for name in names),
        "registered": text_of_instant(one.registered),
        "by": one.by,
        "description": one.description,
    }
