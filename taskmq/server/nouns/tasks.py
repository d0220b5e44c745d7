"""`/tasks`: what can be called."""

from typing import Any, Final

import msgspec
from litestar import get
from litestar.params import FromPath

from taskmq.model.identity import Permission
from taskmq.server.inputs import ServedApp
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.tasks.task import Task

__all__ = ["TASK_HANDLERS"]


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the app.

    Attributes:
        description: the first line of its documentation.
    """

    name: str
    queue: str
    description: str


class TaskList(msgspec.Struct, frozen=True):
    """The tasks of the app, by name."""

    items: list[TaskView]


@get(f"{API}/tasks", permission=Permission.TASKS_READ, operation_id="listTasks", summary="List tasks", tags=["tasks"])
async def list_tasks(app: ServedApp) -> TaskList:
    """The tasks of the app; what a caller may call of them is in their role and token."""
    return TaskList([_view(app.tasks[name]) for name in sorted(app.tasks)])


@get(
    f"{API}/tasks/{{name:str}}",
    permission=Permission.TASKS_READ,
    operation_id="getTask",
    summary="Get a task",
    tags=["tasks"],
)
async def get_task(app: ServedApp, name: FromPath[str]) -> TaskView:
    """One task of the app."""
    if (found := app.tasks.get(name)) is None:
        raise Problem(404, "task_not_found", f"the app has no task {name[:128]!r}")
    return _view(found)


TASK_HANDLERS: Final[tuple[Any, ...]] = (list_tasks, get_task)


def _view(task: Task[..., Any]) -> TaskView:
    text = (task.function.__doc__ or "").strip()
    return TaskView(name=task.name, queue=task.queue, description=text.partition("\n")[0])
