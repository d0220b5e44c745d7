"""Making a task of a function."""

import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from taskmq.errors import InvalidOption
from taskmq.options.task_options import TaskOptions, plan_task
from taskmq.run.context import Context
from taskmq.tasks.task import AsyncTask, SyncTask, Task

__all__ = ["TaskDecorator", "define", "task"]

P = ParamSpec("P")
R = TypeVar("R")


def define(function: Callable[..., Any], options: TaskOptions) -> Task[..., Any]:
    """A task of `function`, bound to nothing.

    Raises:
        InvalidOption: an option or the signature is not possible; names the function.
    """
    if isinstance(function, Task):
        raise InvalidOption(f"task {function.name}: it is a task already")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    label = f"{getattr(function, '__qualname__', function)}"
    if "name" not in options and not hasattr(function, "__qualname__"):
        raise InvalidOption(f"task {label}: it is not a function and has no name; give it a name=")
    # The functions themselves and what calls of an object come to. A decorator's plain wrapper may well run what is
    # behind it (`asyncio.run`), so that is left to the run, which fails where it has not.
    if any(
        inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called)
        for called in (function, type(function).__call__)
    ):
        raise InvalidOption(f"task {label}: a generator cannot be a task")
    name = options["name"] if "name" in options else _default_name(function)
    plan = plan_task(options, function=label, default_name=name, is_async=is_async)
    made: Task[..., Any] = AsyncTask(function, plan) if is_async else SyncTask(function, plan)
    if made.signature.is_resolved:
        _ = made.returns
    return made


def _default_name(function: Callable[..., Any]) -> str:
    module = function.__module__
    if module == "__main__":
        # A worker will import the file under its own name: use that name when it is run as a script, too.
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path: str | None = getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name
        elif path is not None and path != "<stdin>":
            module = os.path.splitext(os.path.basename(path))[0]  # noqa: PTH119, PTH122 - pathlib costs import time
    return f"{module}.{function.__qualname__}".replace("<locals>.", "").replace("<lambda>", "lambda")


class TaskDecorator(Protocol):
    """What `task(...)` with options returns.

    For the type checkers a first parameter that accepts a Context is one: annotate other first parameters with
    something narrower than `Any` or `object`.
    """

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


@overload
def task(function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
@overload
def task(function: Callable[Concatenate[Context, P], R], /) -> SyncTask[P, R]: ...
@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
@overload
def task(function: Callable[P, R], /) -> SyncTask[P, R]: ...
@overload
def task(**options: Unpack[TaskOptions]) -> TaskDecorator: ...
def task(function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
    """Make a task of a function, for modules that do not know the app; an app includes it later.

    Raises:
        InvalidOption: an option or the signature is not possible; names the function.
    """
    if function is not None:
        return define(function, options)
    return partial(_define_with, options)


def _define_with(options: TaskOptions, function: Callable[..., Any]) -> Task[..., Any]:
    return define(function, options)
