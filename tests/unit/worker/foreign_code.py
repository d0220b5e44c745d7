"""Tasks that meet every border with code of the app, and raise there on request."""

import asyncio
import contextvars
import gc
import logging
import os
import signal
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import pydantic

from taskmq import Depends, Execution, Middleware, Proceed, RetryPolicy, Task, TaskMQ, WorkQueue
from taskmq.options.limits import RateLimit
from taskmq.options.task_options import ExecutorKind

RUNS = "TASKMQ_TEST_RUNS"
"""Names the file that each run writes a line into."""

EXECUTORS: tuple[ExecutorKind, ...] = ("async", "thread", "process")


class ApiError(Exception):
    """An error like those of client libraries; Python 3.11 cannot format its traceback."""

    def __init__(self, body: dict[str, object]) -> None:
        super().__init__("no")
        self.body = body

    def __getattr__(self, name: str) -> object:
        return self.__dict__["body"][name]


class Closed(Exception):
    """An error without any readable attribute."""

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
    """Middleware that raises before or after the runs of tasks with such a name."""

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        task, *_ = execution.context.task.split(".")
        if task == "middleware-before":
            fail(execution.args[0])
        value = await proceed(execution)
        if task == "middleware-after":
            fail(execution.args[0])
        return value


class Picky(type):
    """Errors of a policy whose own code decides on `isinstance`."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise ValueError


class Never(Exception, metaclass=Picky):
    pass


class Model(pydantic.BaseModel):
    how: str

    @pydantic.model_serializer
    def write_fields(self) -> dict[str, str]:
        fail(self.how)


class Items(set[str]):
    def __init__(self, how: str) -> None:
        super().__init__(["item"])
        self.how = how

    def __iter__(self) -> NoReturn:
        fail(self.how)

    def __reduce__(self) -> NoReturn:
        fail(self.how)


class Order(msgspec.Struct):
    """An argument whose attribute, used in a key template, is code of the app."""

    how: str

    @property
    def number(self) -> str:
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

# The request of the current run; only one runs at a time.
_asked: list[str] = []


def ordered_queue(executor: ExecutorKind) -> str:
    """Return the name of an executor's ordered queue."""
    return f"{executor}-ordered"


app = TaskMQ(
    "memory://foreign-code",
    state="memory://foreign-code",
    name="foreign",
    middleware=[Around()],
    queues=[WorkQueue(ordered_queue(executor), ordered=2) for executor in EXECUTORS],
)


def ran(task: str) -> None:
    with Path(os.environ[RUNS]).open("a", encoding="utf-8") as runs:
        runs.write(f"{task}\n")


def provides() -> Generator[str]:
    """Fail when closed, as its run requested."""
    yield "given"
    fail(_asked[-1])


def key_of(how: str) -> str:
    fail(how)


# Each is called with the name of a failure, in its own task.


def raises(how: str) -> None:
    fail(how)


def chains(how: str) -> None:
    """Raise an error with unprintable parts."""
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
    """Leave an object that raises when it is collected."""

    class Left:
        def __del__(self) -> None:
            fail(how)

    weakref.finalize(Left(), fail, how)
    gc.collect()


def logs(how: str) -> None:
    logging.getLogger("app").warning("of %r", Unrepresentable())


def stops(how: str) -> None:
    raise StopIteration(Unrepresentable())


def handles(how: str) -> None:
    """Let a signal handler raise, like libraries that implement timeouts."""
    earlier = signal.signal(signal.SIGUSR2, lambda *_: fail(how))
    try:
        signal.raise_signal(signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, earlier)


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
    "handles": handles,
    "early": raises,
    "early-writes": writes,
    "idempotency": takes,
    "template": takes,
    "ordered": raises,
    "ordered-twice": raises,
    "ordered-writes": writes,
    "ordered-key": takes,
}
KEYED: Final = ("idempotency", "key", "template")
"""The worker makes the keys of their jobs: a sender without the task's code has sent them."""
ORDERED: Final = tuple(border for border in BORDERS if border.startswith("ordered"))
"""Borders in ordered queues, which jobs of the store do not use."""
HARMLESS = {"compares", "leaves"}
"""Their jobs succeed: nobody asked for what raises there."""
STARTS = {
    "raises-twice": 2,
    "key": 0,
    "middleware-before": 0,
    "idempotency": 0,
    "template": 0,
    "ordered-twice": 2,
    "ordered-key": 0,
}
"""Number of runs of a job of each kind, if not one."""

_OPTIONS: dict[str, dict[str, Any]] = {
    "raises-twice": {"retry": RetryPolicy(max_attempts=2, base=0)},
    "key": {"rate_limit": RateLimit("1000/s", key=key_of)},
    "never": {"retry": RetryPolicy(max_attempts=3, base=0, never=(Never,))},
    "early": {"ack": "early"},
    "early-writes": {"ack": "early"},
    "idempotency": {"idempotency_key": key_of},
    "template": {"idempotency_key": "order:{order.number}"},
    "ordered-twice": {"retry": RetryPolicy(max_attempts=2, base=0)},
    "ordered-key": {"rate_limit": RateLimit("1000/s", key=key_of)},
}


def borders_of(executor: ExecutorKind, *, stored: bool) -> list[str]:
    """Return the borders that jobs of an executor meet.

    Args:
        stored: whether the jobs are stored jobs.
    """
    # Only the main thread may set a handler, and a handler runs only there.
    without = {"handles"} if executor == "thread" else set[str]()
    return [border for border in BORDERS if border not in without and not (stored and border in ORDERED)]


def _define(border: str, function: Callable[[str], Any], executor: ExecutorKind) -> None:
    name = f"{border}.{executor}"
    options: dict[str, Any] = {"name": name, "queue": executor, "retry": None, **_OPTIONS.get(border, {})}
    if border in ORDERED:
        options |= {"queue": ordered_queue(executor), "order_key": "how"}

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

    def run_order(order: Order) -> Any:
        return run(order.how)

    async def run_order_async(order: Order) -> Any:
        return run(order.how)

    chosen: Any
    if executor == "async":
        chosen = {"teardown": depend_async, "template": run_order_async}.get(border, run_async)
    else:
        chosen = {"teardown": depend, "template": run_order}.get(border, run)
    app.task(executor=executor, **options)(chosen)


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
