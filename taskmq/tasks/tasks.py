"""Tasks of an app by name: `app.tasks`."""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from types import ModuleType
from typing import Any, cast

from taskmq.client.producer import AppServices
from taskmq.client.queues import Queues
from taskmq.errors import DuplicateTask, InvalidOption
from taskmq.injection.resolve import Dependencies
from taskmq.model.topology import DEFAULT_QUEUE, WorkQueue, check_queue_name
from taskmq.options.plans import TaskPlan
from taskmq.tasks.task import Task


class Tasks(Mapping[str, Task[..., Any]]):
    """Tasks by name, including those of included modules, which the first access imports.

    Args:
        default_queue: the queue of tasks that do not name one.
        include: modules that define tasks.
    """

    def __init__(
        self, queues: Queues, *, default_queue: str = DEFAULT_QUEUE, include: Iterable[str | ModuleType] = ()
    ) -> None:
        self.default_queue: str = check_queue_name(default_queue)
        self.dependencies: Dependencies = Dependencies()
        self._queues = queues
        self._include: list[str | ModuleType] = list(include)
        self._tasks: dict[str, Task[..., Any]] = {}
        self._services: AppServices | None = None

    def __getitem__(self, name: str) -> Task[..., Any]:
        return self._load_included()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load_included())

    def __len__(self) -> int:
        return len(self._load_included())

    def __contains__(self, name: object) -> bool:
        return name in self._load_included()

    @property
    def queues(self) -> list[WorkQueue]:
        """Queues of all tasks, and those that the app describes."""
        return [self._queues.get(name) for name in sorted({task.queue for task in self.values()} | {*self._queues})]

    @property
    def by_name(self) -> dict[str, Task[..., Any]]:
        """The tasks as a plain dictionary, for a lookup per message."""
        return self._load_included()

    def plan_of(self, name: str) -> TaskPlan | None:
        """Return the plan of a task; None if no task has that name."""
        task = self._load_included().get(name)
        return None if task is None else task.plan

    def serve(self, services: AppServices) -> None:
        """Bind tasks that are registered from now on to these services."""
        self._services = services

    def with_tasks(self, tasks: Mapping[str, Task[..., Any]]) -> "Tasks":
        """Return a copy of this registry with other tasks, which keep their bindings; for tests."""
        twin = copy(self)
        twin._include, twin._tasks = [], dict(tasks)  # noqa: SLF001 - one of us
        return twin

    def register(self, task: Task[..., Any]) -> None:
        """Register the task with the app.

        Raises:
            DuplicateTask: the name is taken.
            InvalidOption: the task's options do not fit its queue.
        """
        if (known := self._tasks.get(task.name)) is not None:
            raise DuplicateTask(
                f"task {task.name!r} is defined twice: by {known.__name__} in {known.__module__} and "
                f"by {task.__name__} in {task.__module__}; give one of them a name="
            )
        if not task.plan.names_queue:
            task.with_default_queue(self.default_queue)
        _check_order(task, self._queues.get(task.queue))
        self._tasks[task.name] = task
        assert self._services is not None
        task.bind(self._services)

    def include(self, module: str | ModuleType) -> None:
        """Register the tasks that a module defines with `taskmq.task`.

        Raises:
            DuplicateTask: a name is taken.
        """
        loaded = importlib.import_module(module) if isinstance(module, str) else module
        for value in list(vars(loaded).values()):
            if isinstance(value, Task) and not value.is_bound:
                self.register(cast("Task[..., Any]", value))

    def _load_included(self) -> dict[str, Task[..., Any]]:
        while self._include:
            # Removed from the list only after success, so that a failed import is retried and reported again.
            self.include(self._include[-1])
            self._include.pop()
        return self._tasks


def _check_order(task: Task[..., Any], queue: WorkQueue) -> None:
    if queue.ordered is None:
        if task.order_key is not None:
            raise InvalidOption(
                f"task {task.name}: order_key needs an ordered queue, which {queue.name!r} is not: use "
                f"TaskMQ(queues=[WorkQueue({queue.name!r}, ordered=N)])"
            )
        if queue.lanes is not None and task.plan.call.priority is not None and task.plan.call.lane != "store":
            raise InvalidOption(f"task {task.name}: its queue {queue.name!r} has lanes, so omit priority=")
        return
    if task.order_key is None:
        raise InvalidOption(f"task {task.name}: its queue {queue.name!r} is ordered, so it needs an order_key=")
    if task.plan.call.priority is not None:
        raise InvalidOption(f"task {task.name}: its queue {queue.name!r} is ordered, so omit priority=")
    if task.plan.ack == "early":
        raise InvalidOption(
            f"task {task.name}: its queue {queue.name!r} is ordered; with ack='early' the next job of a key "
            "would start before this one has ended"
        )
