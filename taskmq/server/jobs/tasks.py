"""`/tasks`: the callable tasks and their arguments."""

from typing import Annotated, Any, Final

from litestar import get
from litestar.params import FromPath, QueryParameter

from taskmq.api.workers import TaskList, TaskView
from taskmq.errors import UnknownTask
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven, Cursor, Limit
from taskmq.server.problems import Problem
from taskmq.server.settings import API


@get(f"{API}/tasks", permission=Permission.TASKS_READ, operation_id="listTasks", summary="List tasks", tags=["tasks"])
async def list_tasks(
    api: ApiGiven,
    prefix: Annotated[str, QueryParameter(max_length=255)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> TaskList:
    """Return the app's and all registered tasks. The caller's role and token limit which of them it may call."""
    return await api.tasks.page(prefix, limit=limit, cursor=cursor)


@get(
    f"{API}/tasks/{{name:str}}",
    permission=Permission.TASKS_READ,
    operation_id="getTask",
    summary="Get a task",
    tags=["tasks"],
)
async def get_task(api: ApiGiven, name: FromPath[str]) -> TaskView:
    """Return a task with the schema of its arguments."""
    try:
        return await api.tasks.get(name)
    except UnknownTask as error:
        # In other requests an unknown task is an invalid field of the body.
        raise Problem(404, "task_not_found", str(error)) from error


TASKS: Final[tuple[Any, ...]] = (list_tasks, get_task)
