"""`/tasks`: the callable tasks and their arguments."""

from typing import Annotated, Final

from litestar.params import FromPath, QueryParameter

from taskmq.api.workers import TaskList, TaskView
from taskmq.errors import UnknownTask
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Cursor, Limit
from taskmq.server.problems import Problem

TASKS: Final = Handlers("tasks")


@TASKS.handle("GET /tasks", "listTasks", Permission.TASKS_READ, "List tasks")
async def list_tasks(
    api: ApiGiven,
    prefix: Annotated[str, QueryParameter(max_length=255)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> TaskList:
    """Return the app's and all registered tasks. The caller's role and token limit which of them it may call."""
    return await api.tasks.page(prefix, limit=limit, cursor=cursor)


@TASKS.handle("GET /tasks/{name}", "getTask", Permission.TASKS_READ, "Get a task")
async def get_task(api: ApiGiven, name: FromPath[str]) -> TaskView:
    """Return a task with the schema of its arguments."""
    try:
        return await api.tasks.get(name)
    except UnknownTask as error:
        # In other requests an unknown task is an invalid field of the body.
        raise Problem(404, "task_not_found", str(error)) from error
