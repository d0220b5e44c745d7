"""Progress and saved steps of a running task, and its dependencies."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AbstractContextManager
from typing import IO, Annotated, Any, TextIO, assert_never, assert_type

from taskmq import Context, Depends, Job, JobProgress, TaskMQ
from taskmq.testing import override

app = TaskMQ()


class Session:
    def look(self) -> int:
        return 1


def double(n: int, *, by: int = 2) -> str:
    return str(n * by)


async def adouble(n: int) -> str:
    return str(n)


@app.task
def tells(ctx: Context) -> None:
    ctx.progress(1)
    ctx.progress(0.5, 2, "half")
    ctx.heartbeat({"row": 1})
    ctx.checkpoint([1, 2])
    assert_type(ctx.last_checkpoint, Any)
    assert_type(ctx.last_heartbeat, Any)
    assert_type(ctx.fencing_token, int)
    assert_type(ctx.step("double", double, 2, by=3), str)
    assert_type(ctx.wait_for("ok", str, default=""), str)
    if ctx.attempt > 1:
        assert_never(ctx.continue_as_new(1, day=2))
    ctx.progress("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.step("double", double)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ctx.step("double", double, "2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.step(double, 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@app.task
async def tells_on_the_loop(ctx: Context) -> None:
    await ctx.resume()
    await ctx.acheckpoint(1)
    assert_type(await ctx.astep("double", adouble, 2), str)
    await ctx.asleep("2h")
    assert_type(await ctx.await_for("ok", int, timeout="2h"), int)
    assert_type(await ctx.await_for("ok"), Any)
    await ctx.astep("double", double, 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


assert_type(tells.send().progress(), JobProgress | None)


async def asks() -> None:
    progress = await app.job("a").aprogress()
    assert_type(progress, JobProgress | None)
    if progress is not None:
        assert_type(progress.fraction, float | None)


# Dependencies: of the provider's type, omitted by callers, and still accepted from them


def plain() -> Session:
    return Session()


async def coroutine() -> Session:
    return Session()


def generator() -> Generator[Session]:
    yield Session()


def iterator() -> Iterator[Session]:
    yield Session()


async def async_generator() -> AsyncGenerator[Session]:
    yield Session()


async def async_iterator() -> AsyncIterator[Session]:
    yield Session()


def file() -> TextIO:
    raise NotImplementedError


assert_type(Depends(plain), Session)
assert_type(Depends(coroutine), Session)
assert_type(Depends(generator), Session)
assert_type(Depends(iterator), Session)
assert_type(Depends(async_generator), Session)
assert_type(Depends(async_iterator, scope="worker"), Session)
assert_type(Depends(Session), Session)
assert_type(Depends(file), TextIO)
_file: IO[str] = Depends(file)
Depends(plain, scope="app")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@app.task
def sell(ctx: Context, item: str, count: int = 1, *, db: Session = Depends(plain)) -> int:
    return db.look() * count


@app.task(queue="sales")
async def asell(item: str, db: Session = Depends(async_generator), other: Session = Depends(generator)) -> int:
    return db.look()


assert_type(sell.send("hat", 2), Job[int])
assert_type(sell("hat", db=Session()), int)
assert_type(asell.send("hat"), Job[int])
sell.send(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
asell.send()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sell("hat", db=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@app.task
def wrong(item: str, *, db: str = Depends(plain)) -> None: ...  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]


# By its annotation alone the parameter is one of the caller for the checkers: only a default makes it optional.
@app.task
def annotated(item: str, db: Annotated[Session, Depends(plain)]) -> int:
    return db.look()


annotated.send("hat")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


assert_type(override(app, plain, Session), AbstractContextManager[None])
