"""Tasks made by the decorators: every form, both kinds of functions, with and without a Context."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

from taskmq import Context, Job, RetryPolicy, Task, TaskMQ, task
from taskmq.tasks.task import AsyncTask, SyncTask

app = TaskMQ("memory://")


# A plain function, in every form


@app.task
def app_bare(item: str, count: int = 1) -> float:
    return count


@app.task()
def app_called(item: str, count: int = 1) -> float:
    return count


@app.task(queue="sales", priority=5, retry=RetryPolicy(max_attempts=5), timeout="30s")
def app_options(item: str, count: int = 1) -> float:
    return count


@task
def free_bare(item: str, count: int = 1) -> float:
    return count


@task()
def free_called(item: str, count: int = 1) -> float:
    return count


@task(queue="sales", ack="early", executor="process", result=False)
def free_options(item: str, count: int = 1) -> float:
    return count


for each in (app_bare, app_called, app_options, free_bare, free_called, free_options):
    assert_type(each("a"), float)
    assert_type(each("a", 2), float)
    assert_type(each(item="a", count=2), float)
    assert_type(each.send("a", count=2), Job[float])

_plain: Callable[[str], float] = app_bare
_full: Callable[[str, int], float] = app_options

app_bare()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app_called(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app_options("a", "b")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
free_bare("a", 2, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
free_called("a", amount=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
free_options(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# A coroutine function, in every form


@app.task
async def aapp_bare(item: str, count: int = 1) -> float:
    return count


@app.task()
async def aapp_called(item: str, count: int = 1) -> float:
    return count


@app.task(queue="sales", retry=None, timeout=timedelta(seconds=30))
async def aapp_options(item: str, count: int = 1) -> float:
    return count


@task
async def afree_bare(item: str, count: int = 1) -> float:
    return count


@task()
async def afree_called(item: str, count: int = 1) -> float:
    return count


@task(name="free", delay=5, expires="1h", tenant="acme", meta={"a": "b"})
async def afree_options(item: str, count: int = 1) -> float:
    return count


async def calls_of_coroutines() -> None:
    for each in (aapp_bare, aapp_called, aapp_options, afree_bare, afree_called, afree_options):
        _calls: list[Coroutine[Any, Any, float]] = [each("a")]
        assert_type(await each("a", 2), float)
        assert_type(each.send("a", count=2), Job[float])
        assert_type(await each.asend("a", count=2), Job[float])


aapp_bare()  # type: ignore[call-arg, unused-coroutine]  # pyright: ignore[reportCallIssue]
_not_awaited: float = aapp_called("a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
afree_options.send(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# With a Context first: taskmq passes it, and callers do not


@app.task
def with_context(ctx: Context, item: str, *, count: int = 1) -> bytes:
    return ctx.job_id.encode()


@app.task(queue="sales")
def with_context_and_options(ctx: Context, item: str) -> bytes:
    return b""


@task
async def awith_context(ctx: Context, item: str) -> bytes:
    return b""


@task(executor="async")
async def awith_context_and_options(ctx: Context, item: str) -> bytes:
    return b""


@app.task
def only_context(ctx: Context) -> None: ...


assert_type(with_context("a"), bytes)
assert_type(with_context("a", count=2), bytes)
assert_type(with_context.send("a"), Job[bytes])
assert_type(with_context_and_options("a"), bytes)
assert_type(with_context_and_options.options(delay=5).send("a"), Job[bytes])
_ = assert_type(awith_context("a"), Coroutine[Any, Any, bytes])
_ = assert_type(awith_context_and_options("a"), Coroutine[Any, Any, bytes])
assert_type(only_context.send(), Job[None])

with_context(Context.create_detached("t"), "a")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
with_context.send(Context.create_detached("t"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
with_context_and_options.send()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
awith_context.send(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
only_context.send("a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# All kinds of parameters


@app.task
def parameters(a: int, /, b: str = "", *c: bytes, d: float, **e: bool) -> None: ...


parameters.send(1, "b", b"c", b"c", d=1.5, e=True, f=False)
parameters.send(1, d=1.5)
parameters.send(a=1, d=1.5)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
parameters.send(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
parameters.send(1, "b", "c", d=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
parameters.send(1, d=1.5, f="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def body(item: str) -> int:
    return 1


assert_type(app.task(body)("a"), int)
assert_type(app.task(queue="q")(body).send("a"), Job[int])

app.task(quue="q")(body)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
task(quue="q")(body)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
app.task(queue=5)(body)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
app.task(priority="high")(body)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
app.task(ack="never")(body)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
app.task(executor="gpu")(body)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
app.task(retry=3)(body)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
app.task(meta={"a": 1})(body)  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
app.task(eta=5)(body)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
app.task(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


# Attributes of a task


def takes_any_task(some: Task[..., object]) -> str:
    return some.name


takes_any_task(app_bare)
takes_any_task(afree_options)

_sync: SyncTask[[str], int] = app.task(body)
_wrong: SyncTask[[int], int] = app.task(body)  # type: ignore[arg-type, assignment]  # pyright: ignore[reportAssignmentType]
_async: AsyncTask[[str], int] = app.task(body)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
_wider: SyncTask[[str], object] = _sync
_narrower: SyncTask[[str], bool] = _sync  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
