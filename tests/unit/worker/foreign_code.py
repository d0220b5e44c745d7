"""Tasks that meet every border with the code of an app, and raise there what they are asked to raise."""

import asyncio
import contextvars
import gc
import logging
import os
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NoReturn

import pydantic

from taskmq import Depends, Execution, Middleware, Proceed, RetryPolicy, Task, TaskMQ
from taskmq.options.limits import RateLimit
from taskmq.options.task_options import ExecutorKind

__all__ = ["BORDERS", "EXECUTORS", "FAILURES", "FINE", "HARMLESS", "RUNS", "STARTS", "app", "fail", "ran"]

RUNS = "TASKMQ_TEST_RUNS"
"""Names the file that each run writes a line into."""

EXECUTORS: tuple[ExecutorKind, ...] = ("async", "thread", "process")


class ApiError(Exception):
    """An error as client libraries have it; Python 3.11 cannot write its traceback."""

    def __init__(self, body: dict[str, object]) -> None:
        super().__init__("no")
        self.body = body

    def __getattr__(self, name: str) -> object:
        return self.__dict__["body"][name]


class Closed(Exception):
    """An error of which nothing can be read."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


FAILURES: dict[str, Callable[[], BaseException]] = {
    "error": lambda: ValueError("no"),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "cancellation": asyncio.CancelledError,
    "api error": lambda: ApiError({"code": 7}),
    "closed": Closed,
}


def fail(how: str) -> NoReturn:
    error = FAILURES[how]()
    raise error


class Around(Middleware):
    """Raises before or after the runs of the tasks that are named so."""

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        task, *_ = execution.context.task.split(".")
        if task == "middleware-before":
            fail(execution.args[0])
        value = await proceed(execution)
        if task == "middleware-after":
            fail(execution.args[0])
        return value


class Picky(type):
    """Errors of a policy that decide by code of their own what they are."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise ValueError


class Never(Exception, metaclass=Picky):
    pass


class Model(pydantic.BaseModel):
    how: str

    @pydantic.model_serializer
    def written(self) -> dict[str, str]:
        fail(self.how)


class Items(set[str]):
    def __init__(self, how: str) -> None:
        super().__init__(["item"])
        self.how = how

    def __iter__(self) -> NoReturn:
        fail(self.how)

    def __reduce__(self) -> NoReturn:
        fail(self.how)


class Unpicklable(Exception):
    def __reduce__(self) -> NoReturn:
        raise SystemExit(5)


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise SystemExit(6)

    __hash__ = None  # type: ignore[assignment]


class Unrepresentable:
    def __repr__(self) -> str:
        raise SystemExit(7)


variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")
variable.set(Unequal())

# What the run that goes on was asked for; one goes on at a time.
_asked: list[str] = []

app = TaskMQ("memory://foreign-code", state="memory://foreign-code", name="foreign", middleware=[Around()])


def ran(task: str) -> None:
    with Path(os.environ[RUNS]).open("a", encoding="utf-8") as runs:
        runs.write(f"{task}\n")


def provides() -> Generator[str]:
    """Fail at its end, as the run that it is for was asked to."""
    yield "given"
    fail(_asked[-1])


def key_of(how: str) -> str:
    fail(how)


# Each is called with the name of a failure, in its own task.


def raises(how: str) -> None:
    fail(how)


def chains(how: str) -> None:
    """Raise an error whose parts cannot be written."""
    try:
        fail(how)
    except BaseException as error:
        raise BaseExceptionGroup("several", [error, ValueError("plain")]) from error


def iterates(how: str) -> object:
    return Items(how)


def writes(how: str) -> object:
    return Model(how=how)


def pickles(how: str) -> None:
    raise Unpicklable(how)


def compares(how: str) -> None:
    variable.set(Unequal())


def leaves(how: str) -> None:
    """Leave what raises when it is collected."""

    class Left:
        def __del__(self) -> None:
            fail(how)

    weakref.finalize(Left(), fail, how)
    gc.collect()


def logs(how: str) -> None:
    logging.getLogger("app").warning("of %r", Unrepresentable())


def stops(how: str) -> None:
    raise StopIteration(Unrepresentable())


def takes(how: str) -> None:
    """Do nothing: its key, its dependency or its middleware fails."""


BORDERS: dict[str, Callable[[str], Any]] = {
    "raises": raises,
    "raises-twice": raises,
    "chains": chains,
    "iterates": iterates,
    "writes": writes,
    "pickles": pickles,
    "compares": compares,
    "leaves": leaves,
    "logs": logs,
    "stops": stops,
    "teardown": takes,
    "key": takes,
    "middleware-before": takes,
    "middleware-after": takes,
    "never": raises,
}
HARMLESS = {"compares", "leaves"}
"""Their jobs succeed: nobody asked for what raises there."""
STARTS = {"raises-twice": 2, "key": 0, "middleware-before": 0}
"""How often a job of each runs, if that is not once."""

_OPTIONS: dict[str, dict[str, Any]] = {
    "raises-twice": {"retry": RetryPolicy(max_attempts=2, base=0)},
    "key": {"rate_limit": RateLimit("1000/s", key=key_of)},
    "never": {"retry": RetryPolicy(max_attempts=3, base=0, never=(Never,))},
}


def _define(border: str, function: Callable[[str], Any], executor: ExecutorKind) -> None:
    name = f"{border}.{executor}"
    options: dict[str, Any] = {"name": name, "queue": executor, "retry": None, **_OPTIONS.get(border, {})}

    def run(how: str) -> Any:
        _asked.append(how)
        ran(name)
        return function(how)

    def depend(how: str, given: str = Depends(provides)) -> Any:
        return run(how)

    async def run_async(how: str) -> Any:
        return run(how)

    async def depend_async(how: str, given: str = Depends(provides)) -> Any:
        return run(how)

    if executor == "async":
        app.task(**options)(depend_async if border == "teardown" else run_async)
    else:
        app.task(executor=executor, **options)(depend if border == "teardown" else run)


for _executor in EXECUTORS:
    for _border, _function in BORDERS.items():
        _define(_border, _function, _executor)


@app.task(queue="async", retry=None)
async def fine_in_async(n: int) -> int:
    return n


@app.task(queue="thread", retry=None)
def fine_in_thread(n: int) -> int:
    return n


@app.task(queue="process", retry=None, executor="process")
def fine_in_process(n: int) -> int:
    return n


FINE: dict[ExecutorKind, Task[..., int]] = {
    "async": fine_in_async,
    "thread": fine_in_thread,
    "process": fine_in_process,
}
"""A task of each executor that works."""
