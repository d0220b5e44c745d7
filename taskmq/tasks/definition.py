"""Definition of tasks from functions."""

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, Unpack, overload

from taskmq.errors import InvalidOption
from taskmq.options.plans import plan_task
from taskmq.options.task_options import TaskOptions
from taskmq.run.context import Context
from taskmq.tasks.task import AsyncTask, SyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")

# A process that multiprocessing spawns imports the program under the second name.
_MAIN: Final = frozenset({"__main__", "__mp_main__"})


def define(function: Callable[..., Any], options: TaskOptions) -> Task[..., Any]:
    """Create a task from `function` that belongs to no app yet.

    Raises:
        InvalidOption: an option or the signature is invalid; the message names the function.
    """
    if isinstance(function, Task):
        raise InvalidOption(f"task {function.name}: it is a task already")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    label = f"{getattr(function, '__qualname__', function)}"
    if "name" not in options and not hasattr(function, "__qualname__"):
        raise InvalidOption(f"task {label}: it is not a function and has no name; give it a name=")
    # Checks the function itself, or the `__call__` of an object. A plain wrapper may run the coroutine that it wraps
    # (`asyncio.run`), so only the run can tell, and fails if it did not.
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
    if module in _MAIN:
        # A worker imports the file as a module, so use the module's name even if the file runs as a program.
        module = _program_name(_globals_of(function))
    name = f"{module}.{function.__qualname__}".replace("<locals>.", "").replace("<lambda>", "lambda")
    if module == "__main__":
        _warn_of_main(function, name)
    return name


def _globals_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the globals of the function's program, which under a profiler is not `sys.modules["__main__"]`."""
    found: Mapping[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return found if found.get("__name__") in _MAIN else vars(sys.modules["__main__"])


def _program_name(variables: Mapping[str, Any]) -> str:
    """Return the module name under which a worker imports the program; `__main__` if there is none."""
    spec = variables.get("__spec__")
    path: str = variables.get("__file__") or ""
    if spec is not None and spec.name not in _MAIN:
        name: str = spec.name
        return name
    if not path or path.startswith("<"):
        return "__main__"
    # os.path, since pathlib costs import time.
    folder, file = os.path.split(os.path.abspath(path))  # noqa: PTH100 - as the comment above says
    name = os.path.splitext(file)[0]  # noqa: PTH122 - as above
    if name == "__main__":
        # A folder or archive run as a program has no module name.
        return name
    while os.path.isfile(os.path.join(folder, "__init__.py")):  # noqa: PTH113, PTH118 - as above
        folder, package = os.path.split(folder)
        name = f"{package}.{name}"
    return name


def _warn_of_main(function: Callable[..., Any], name: str) -> None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    warnings.warn_explicit(
        f"task {name!r} is named after a program that no worker can import: put it into a module, or give it a name, "
        "@app.task(name=...), under which the worker has it",
        RuntimeWarning,
        filename=getattr(code, "co_filename", "<program>"),
        lineno=getattr(code, "co_firstlineno", 1),
    )


class TaskDecorator(Protocol):
    """Decorator that `task(...)` with options returns.

    Type checkers treat a first parameter that accepts a Context as the context: annotate other first parameters with
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
    """Create a task from a function in a module that does not know the app; an app includes it later.

    Raises:
        InvalidOption: an option or the signature is invalid; the message names the function.
    """
    if function is not None:
        return define(function, options)
    return partial(_define_with, options)


def _define_with(options: TaskOptions, function: Callable[..., Any]) -> Task[..., Any]:
    return define(function, options)
