"""`/tasks`: what can be called, and with which arguments."""

from typing import Any, Final

import msgspec
from litestar import get
from litestar.params import FromPath

from taskmq.api.workers import TaskList, TaskView
from taskmq.app import TaskMQ
from taskmq.contracts.jobs import Catalogued
from taskmq.model.identity import Permission
from taskmq.model.jobs.registrations import TaskRegistration
from taskmq.server.inputs import Cursor, Limit, ServedApp
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.tasks.registration import registration_of_task, registrations_of

__all__ = ["TASKS"]


@get(f"{API}/tasks", permission=Permission.TASKS_READ, operation_id="listTasks", summary="List tasks", tags=["tasks"])
async def list_tasks(app: ServedApp, limit: Limit = 50, cursor: Cursor = None) -> TaskList:
    """The tasks of the app and those that were registered; which a caller may call is in their role and token."""
    after = cursor or ""
    own = {one.task: _view(one, is_own=True) for one in registrations_of(app.tasks) if one.task > after}
    found = {one.task: _view(one, is_own=False) for one in await _registered(app, after, limit + 1)} | own
    names = sorted(found)
    page = names[:limit]
    return TaskList([found[name] for name in page], page[-1] if len(names) > limit else None)


@get(
    f"{API}/tasks/{{name:str}}",
    permission=Permission.TASKS_READ,
    operation_id="getTask",
    summary="Get a task",
    tags=["tasks"],
)
async def get_task(app: ServedApp, name: FromPath[str]) -> TaskView:
    """One task, with the schema of its arguments."""
    if (own := app.tasks.get(name)) is not None:
        return _view(registration_of_task(own), is_own=True)
    found = await app.jobs.catalogue.afind(name) if _is_catalogued(app) else None
    if found is None:
        raise Problem(404, "task_not_found", f"there is no task {name[:128]!r}")
    return _view(found.registration, is_own=False)


TASKS: Final[tuple[Any, ...]] = (list_tasks, get_task)


async def _registered(app: TaskMQ, after: str, limit: int) -> list[TaskRegistration]:
    if not _is_catalogued(app):
        return []
    page = await app.jobs.catalogue.alist(after=after or None, limit=limit)
    return [one.registration for one in page.tasks]


def _is_catalogued(app: TaskMQ) -> bool:
    return isinstance(app.sessions.current().store, Catalogued)


def _view(registration: TaskRegistration, *, is_own: bool) -> TaskView:
    return TaskView(
        name=registration.task,
        queue=registration.queue,
        description=registration.description,
        is_own=is_own,
        positional=list(registration.positional),
        arguments=msgspec.json.decode(registration.schema),
    )
