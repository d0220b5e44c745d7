"""Tasks: functions that can be called here, or sent to a worker."""

from collections.abc import Callable, Coroutine
from typing import Any, Unpack, cast

from taskmq.options.plans import TaskPlan
from taskmq.run.context import Context, current_context
from taskmq.tasks.call import Call, P, R_co
from taskmq.tasks.function import TaskFunction
from taskmq.tasks.job_options import JobOptions


class Task(TaskFunction, Call[P, R_co]):
    """A registered function: call it to run it here, or `send` it to run it in a worker."""

    def __init__(self, function: Callable[..., Any], plan: TaskPlan) -> None:
        super().__init__(function, plan)
        # A task is a call of itself with its default options.
        self._task = self
        self.__doc__ = function.__doc__
        self.__name__: str = getattr(function, "__name__", plan.name)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __reduce__(self) -> str:
        """Pickle by reference like a function, so that another process finds the task in its own module."""
        return self.function.__qualname__

    def __copy__(self) -> "Task[P, R_co]":
        """Return a copy, because `__reduce__` would return the same object."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    @property
    def queue(self) -> str:
        """Default queue of calls."""
        return self.call_plan.queue

    def options(self, **options: Unpack[JobOptions]) -> Call[P, R_co]:
        """Return a call of the task with other options; the task itself does not change.

        Raises:
            InvalidOption: an option is unknown or has an invalid value.
        """
        return self.with_options(options)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def _local(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.signature.takes_context:
            context = current_context.get() or Context.create_detached(self.name)
            args, kwargs = self.signature.with_context((args, kwargs), context)
        return self.call(*args, **kwargs)


class SyncTask(Task[P, R_co]):
    """A task whose function is a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here and return its value."""
        return cast("R_co", self._local(args, kwargs))


class AsyncTask(Task[P, R_co]):
    """A task whose function is a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call the function here and return its coroutine."""
        return cast("Coroutine[Any, Any, R_co]", self._local(args, kwargs))
