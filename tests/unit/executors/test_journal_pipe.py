"""Progress and saved steps of tasks in processes; they go through the worker, whose store is a dictionary here."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskmq.contracts.stores import BegunRun
from taskmq.errors import RunSuperseded, SoftTimeout, StateUnavailable
from taskmq.executors import ProcessExecutor
from taskmq.model.envelope import JSON, Envelope
from taskmq.run.context import Context
from taskmq.run.execution import Execution
from taskmq.run.journal import RunJournal
from tests.coroutines import run_by
from tests.servers.waiting import until
from tests.unit.executors.kit import run

_TASKS = """
import logging, multiprocessing, os, threading, time, warnings
from pathlib import Path
from taskmq import Context, Depends, TaskMQ

app = TaskMQ("memory://in-the-code")

def task(function):
    return app.task(name=function.__name__, executor="process", result=False)(function)

@task
def tells(ctx: Context) -> None:
    for n in range(100_000):
        ctx.progress(n, 100_000, "counting")
    Path("told").touch()
    while not os.path.exists("go on"):
        time.sleep(0.005)
    ctx.progress(100_000, 100_000, "done")
    ctx.heartbeat([1, 2])

@task
def saves(ctx: Context) -> object:
    before, token = ctx.last_checkpoint, ctx.fencing_token
    value = ctx.step("work", lambda: 5)
    ctx.checkpoint({"a": value})
    return before, token, value, ctx.last_checkpoint

@task
def waits_softly(ctx: Context) -> object:
    try:
        ctx.step("slow", lambda: 1)
    finally:
        Path("interrupted").touch()

@task
def from_many_threads(ctx: Context) -> object:
    values = {}
    def work(n):
        values[n] = ctx.step(f"part {n}", lambda: n)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return values

LEFT = []

@task
def leaves_a_thread(ctx: Context) -> None:
    LEFT.append(ctx)

@task
def what_is_left_tells() -> str:
    LEFT[0].progress(77)
    LEFT[0].heartbeat()
    try:
        LEFT[0].checkpoint(1)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def saves_in_a_fork(ctx, answers):
    ctx.progress(1)
    try:
        ctx.checkpoint(1)
    except Exception as error:
        answers.put(f"{type(error).__name__}: {error}")

@task
def forks(ctx: Context, begun: bool) -> object:
    if begun:
        ctx.step("first", lambda: 1)
    forked = multiprocessing.get_context("fork")
    answers = forked.SimpleQueue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process = forked.Process(target=saves_in_a_fork, args=(ctx, answers))
        process.start()
    words = answers.get()
    process.join()
    ctx.checkpoint(words)
    return words

@task
def logs() -> None:
    logging.getLogger("shop").warning("sold")

def pool():
    Path("pool").write_text("open")
    yield "pool"
    Path("pool").write_text("closed")

def lent(of: str = Depends(pool, scope="worker")):
    yield f"lent from the {of}"
    Path("lent").write_text("closed")

@task
def depends(x: str = Depends(lent)) -> str:
    return x
"""


class Shelf:
    """A store of saved steps in the worker."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.journals: list[RunJournal] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    def mark_changed(self, journal: RunJournal) -> None:
        journal.is_dirty = False
        self.journals.append(journal)

    def now_ms(self) -> int:
        return 0

    async def begin(self, journal: RunJournal) -> BegunRun:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        journal.run = journal.run or BegunRun(7, dict(self.values))
        return journal.run

    async def save(self, journal: RunJournal, name: str, value: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.values[name] = value

    def begin_blocking(self, journal: RunJournal) -> BegunRun:
        raise NotImplementedError

    def save_blocking(self, journal: RunJournal, name: str, value: bytes) -> None:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "telling_tasks.py").write_text(_TASKS)
    monkeypatch.chdir(tmp_path)


def _execution(task: str, writer: Shelf, *, args: bytes = b"[]", soft_timeout: float | None = None) -> Execution:
    envelope = Envelope(task=task, args=msgspec.Raw(args), kwargs=msgspec.Raw(b"{}"))
    context = Context(envelope, job_id="job-1", max_attempts=4, queue="work", redelivered=False, _writer=writer)
    return Execution(context, print, (), {}, envelope, JSON, None, soft_timeout=soft_timeout)


def _play(test: Callable[[ProcessExecutor, Shelf], Any]) -> None:
    async def main() -> None:
        executor = ProcessExecutor("telling_tasks:app", size=1, url="memory://given", state=None)
        try:
            await test(executor, Shelf())
        finally:
            await executor.aclose()

    run(main())


@run_by(_play)
async def test_progress_arrives_while_the_task_runs_and_the_last_update_before_its_end(
    executor: ProcessExecutor, writer: Shelf, /, tmp_path: Path
) -> None:
    running = asyncio.create_task(executor.run(_execution("tells", writer)))
    await until((tmp_path / "told").exists)
    # Updates shortly after an earlier one are included.
    await until(lambda: bool(writer.journals) and writer.journals[-1].done == 99_999)
    # The first update at once, then one every half second: never one for each call.
    assert len(writer.journals) < 20
    (tmp_path / "go on").touch()
    await running
    journal = writer.journals[-1]
    assert (journal.done, journal.total, journal.note, journal.details) == (100_000, 100_000, "done", b"[1,2]")


@run_by(_play)
async def test_the_worker_saves_steps_and_checkpoints_and_the_next_run_reads_them(
    executor: ProcessExecutor, writer: Shelf, /
) -> None:
    assert await executor.run(_execution("saves", writer)) == (None, 7, 5, {"a": 5})
    assert writer.values == {"step work": b"5", "checkpoint": b'{"a":5}'}
    writer.values["step work"] = b"6"

    assert await executor.run(_execution("saves", writer)) == ({"a": 5}, 7, 6, {"a": 6})


@run_by(_play)
async def test_threads_of_a_task_may_save_concurrently(executor: ProcessExecutor, writer: Shelf, /) -> None:
    assert await executor.run(_execution("from_many_threads", writer)) == {n: n for n in range(10)}
    assert len(writer.values) == 10


@run_by(_play)
async def test_an_unsavable_value_is_an_error_of_the_task_in_its_process(
    executor: ProcessExecutor, writer: Shelf, /
) -> None:
    for error in (StateUnavailable("down", is_certain=False), RunSuperseded("another one")):
        writer.error = error
        with pytest.raises(type(error), match=str(error)) as caught:
            await executor.run(_execution("saves", writer))
        assert getattr(caught.value, "is_certain", None) == getattr(error, "is_certain", None)

    writer.error = None
    assert (await executor.run(_execution("saves", writer)))[2] == 5  # type: ignore[index]


@run_by(_play)
async def test_a_soft_timeout_while_waiting_for_the_state_leaves_no_reply_for_the_next_run(
    executor: ProcessExecutor, writer: Shelf, /, tmp_path: Path
) -> None:
    writer.gate.clear()
    running = asyncio.create_task(executor.run(_execution("waits_softly", writer, soft_timeout=0.2)))
    await until((tmp_path / "interrupted").exists)
    writer.gate.set()
    with pytest.raises(SoftTimeout):
        await running

    writer.values["checkpoint"] = b'"from before"'
    assert (await executor.run(_execution("saves", writer)))[0] == "from before"  # type: ignore[index]


@run_by(_play)
async def test_code_left_running_after_its_task_is_ignored_and_told_so(
    executor: ProcessExecutor, writer: Shelf, /
) -> None:
    await executor.run(_execution("leaves_a_thread", writer))

    words = await executor.run(_execution("what_is_left_tells", writer))

    assert words == "StateUnavailable: the task has ended: code that it left running cannot save"
    assert writer.journals == []
    assert writer.values == {}


@run_by(_play)
async def test_a_fork_of_a_task_cannot_save_and_the_task_still_can(
    executor: ProcessExecutor, writer: Shelf, /
) -> None:
    for begun in (b"[false]", b"[true]"):
        writer.values.clear()
        words = await executor.run(_execution("forks", writer, args=begun))

        assert str(words).startswith("UnsupportedFeature: a fork of the task's process cannot save: ")
        assert json.loads(writer.values["checkpoint"]) == words
        # Messages of a fork would corrupt the frames of its parent.
        assert writer.journals == []


@pytest.mark.real_time
async def test_dependencies_resolve_in_the_task_process_and_worker_scoped_ones_end_with_it(tmp_path: Path) -> None:
    # Each process runs one task, so that it ends afterwards.
    executor = ProcessExecutor("telling_tasks:app", size=1, url="memory://given", state=None, max_tasks=1)
    try:
        assert await executor.run(_execution("depends", Shelf())) == "lent from the pool"
        assert (tmp_path / "lent").read_text() == "closed"
        await until(lambda: (tmp_path / "pool").read_text() == "closed")
    finally:
        await executor.aclose()
