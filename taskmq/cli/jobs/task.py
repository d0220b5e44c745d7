"""`taskmq task`: the tasks that workers and schedulers have registered at the store."""

from typing import TYPE_CHECKING, Any, Final

import msgspec
from cyclopts import App

from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.output import note, print_record, print_rows, when
from taskmq.cli.server_link import over_http

if TYPE_CHECKING:
    from taskmq.model.jobs.registrations import RegisteredTask

__all__ = ["TASK_COLUMNS", "app", "argument_names"]

app = App(
    name="task",
    help="Tasks that workers and schedulers have registered: their queues, and which arguments they take.",
    result_action="return_value",
)

TASK_COLUMNS: Final = ("task", "queue", "arguments", "registered", "by", "description")


@app.command(name="list")
@over_http("templates:list_tasks")
def list_tasks(prefix: str = "", /, *, limit: int = 50, after: str | None = None) -> int:
    """List tasks by name.

    Parameters
    ----------
    prefix
        Only those whose names begin so.
    limit
        How many at most.
    after
        Go on behind this name, where a list has ended.
    """
    page = run_with_app(lambda target: target.jobs.catalogue.alist(prefix, after=after, limit=limit))
    print_rows(TASK_COLUMNS, [_row(one) for one in page.tasks])
    if page.after is not None:
        note(f"there are more: --after {page.after}")
    return OK


@app.command
@over_http("templates:show_task")
def show(task: str, /) -> int:
    """Show a task with the JSON Schema of its arguments; ends with 3 where none has registered it.

    Parameters
    ----------
    task
        The task's name.
    """
    found = run_with_app(lambda target: target.jobs.catalogue.afind(task))
    if found is None:
        note(f"no worker or scheduler has registered a task {task!r}: `taskmq task list` says which there are")
        return NOT_FOUND
    registration = found.registration
    schema: Any = msgspec.json.decode(registration.schema)
    is_table = current_globals().output == "table"
    print_record(
        {
            **_row(found),
            "first": when(found.first),
            "origin": found.origin,
            "options": msgspec.to_builtins(registration.facts),
            "positional": list(registration.positional),
            "rest": registration.rest,
            "schema": msgspec.json.format(bytes(registration.schema)).decode() if is_table else schema,
        }
    )
    return OK


def _row(one: "RegisteredTask") -> dict[str, Any]:
    registration = one.registration
    schema: dict[str, Any] = msgspec.json.decode(registration.schema)
    required = schema.get("required", [])
    names = [name if name in required else f"[{name}]" for name in argument_names(registration.positional, schema)]
    return {
        "task": registration.task,
        "queue": registration.queue,
        "arguments": " ".join(names),
        "registered": when(one.last),
        "by": one.worker,
        "description": registration.description,
    }


def argument_names(positional: tuple[str, ...], schema: dict[str, Any]) -> list[str]:
    return [*positional, *(name for name in schema.get("properties", {}) if name not in positional)]
