"""Progress seen from outside while a task runs, and steps that are not rerun after the worker's death."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kit import LoneWorker, Project, until

_JOBS = """
import asyncio, os, time
from pathlib import Path
from taskmq import Context, RunSuperseded, TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])


def note(*words):
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, (" ".join(map(str, words)) + "\\n").encode())
    os.close(ledger)


def work(kind: str, number: int) -> int:
    note("step", kind, number)
    return number * 10


async def awork(kind: str, number: int) -> int:
    return work(kind, number)


@app.task
async def by_coroutine(ctx: Context, kind: str) -> int:
    total = 0
    for number in range(5):
        total += await ctx.astep(f"part {number}", awork, kind, number)
        if number == 2:
            ctx.progress(number + 1, 5, kind)
            note("waits", kind, os.getpid())
            while not os.path.exists(f"open-{kind}"):
                await asyncio.sleep(0.01)
    ctx.progress(5, 5, "all")
    return total


def five_parts(ctx: Context, kind: str) -> int:
    total = 0
    for number in range(5):
        total += ctx.step(f"part {number}", work, kind, number)
        if number == 2:
            ctx.progress(number + 1, 5, kind)
            note("waits", kind, os.getpid())
            while not os.path.exists(f"open-{kind}"):
                time.sleep(0.01)
    ctx.progress(5, 5, "all")
    return total


@app.task
def by_thread(ctx: Context, kind: str) -> int:
    return five_parts(ctx, kind)


@app.task(executor="process")
def by_process(ctx: Context, kind: str) -> int:
    return five_parts(ctx, kind)


@app.task
async def many_by_coroutine(ctx: Context, kind: str) -> int:
    for number in range(40):
        await ctx.astep(f"part {number}", aslow, kind, number)
        note("saved", kind, number)
    return 40


def many(ctx: Context, kind: str) -> int:
    for number in range(40):
        ctx.step(f"part {number}", slow, kind, number)
        note("saved", kind, number)
    return 40


def slow(kind: str, number: int) -> None:
    note("run", kind, number)
    time.sleep(0.02)


async def aslow(kind: str, number: int) -> None:
    note("run", kind, number)
    await asyncio.sleep(0.02)


@app.task
def many_by_thread(ctx: Context, kind: str) -> int:
    return many(ctx, kind)


@app.task(executor="process")
def many_by_process(ctx: Context, kind: str) -> int:
    return many(ctx, kind)


@app.task
async def late(ctx: Context, kind: str) -> int:
    await ctx.astep("part 0", awork, kind, 0)
    note("waits", kind, os.getpid())
    while not os.path.exists(f"open-{os.getpid()}"):
        await asyncio.sleep(0.01)
    try:
        await ctx.acheckpoint(os.getpid())
    except RunSuperseded:
        note("superseded", kind, os.getpid(), ctx.cancelled)
        raise
    return ctx.last_checkpoint


@app.task(executor="process")
def counts(ctx: Context, kind: str) -> list:
    last, token = ctx.last_checkpoint, ctx.fencing_token
    ctx.heartbeat({"at": 1})
    ctx.checkpoint((last or 0) + 1)
    try:
        ctx.checkpoint({1, object()})
    except Exception as error:
        note("refused", kind, type(error).__name__)
    return [last, token > 0, ctx.last_checkpoint]
"""

_KILLS = int(os.environ.get("TASKMQ_TEST_STEP_KILLS", "2"))
_KINDS = ["coroutine", "thread", "process"]
_ON_SERVERS = pytest.param("rabbitmq and redis", marks=pytest.mark.rabbitmq)


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.matrix), _ON_SERVERS])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project on the embedded broker and state, and one on RabbitMQ with Redis."""
    url = state = f"local://{tmp_path}/embedded"
    if request.param != "local":
        url, state = str(request.getfixturevalue("amqp_url")), str(request.getfixturevalue("redis_url"))
    it = Project(tmp_path, url, state)
    it.write(_JOBS)
    for name in ("by_coroutine", "by_thread", "by_process", *(f"many_by_{kind}" for kind in _KINDS)):
        it.app.task(name=f"jobs.{name}")(_takes_kind)
    it.app.task(name="jobs.counts")(_counts)
    yield it
    it.close()


async def _takes_kind(kind: str) -> int:
    return 0


async def _counts(kind: str) -> list[object]:
    return []


@pytest.mark.parametrize("parts", ["local", _ON_SERVERS], indirect=True)
def test_saved_steps_of_a_killed_worker_are_not_rerun_and_progress_is_seen(
    parts: Project,
) -> None:
    jobs = {kind: parts.app.tasks[f"jobs.by_{kind}"].send(kind) for kind in _KINDS}
    first = LoneWorker(parts, parts.folder / "log-first")
    for kind in _KINDS:
        parts.wait_for("waits", kind)
    for kind, job in jobs.items():
        until(lambda job=job: job.progress() is not None, f"progress of the {kind}")  # type: ignore[misc]
        progress = job.progress()
        assert progress is not None
        assert (progress.done, progress.total, progress.note, progress.attempt) == (3, 5, kind, 1)

    first.end(signal.SIGKILL)
    parts.start()
    for kind in _KINDS:
        assert len(parts.wait_for("waits", kind, count=2)) == 2
        parts.open(kind)

    for kind, job in jobs.items():
        assert job.result(timeout=30) == 100
        # Each of the five once, whatever happened to the first worker.
        assert parts.ledger_lines("step", kind) == [[str(number)] for number in range(5)]
        progress = job.progress()
        assert progress is not None
        assert (progress.done, progress.fraction, progress.note) == (5, 1.0, "all")


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * _KILLS)
def test_no_saved_step_runs_again_whenever_workers_are_killed(parts: Project) -> None:
    jobs = {kind: parts.app.tasks[f"jobs.many_by_{kind}"].send(kind) for kind in _KINDS}
    dice = random.Random(7)
    for _ in range(_KILLS):
        limit = len(parts.ledger) + dice.randint(2, 30)
        worker = LoneWorker(parts, parts.folder / "log-killed", max_crashes=0)
        # In the middle of any step.
        until(lambda limit=limit: len(parts.ledger) >= limit or _has_ended(parts), "steps")  # type: ignore[misc]
        worker.end(signal.SIGKILL)
    parts.start(max_crashes=0)

    for kind, job in jobs.items():
        assert job.result(timeout=60) == 40
        words = [(line[0], int(line[2])) for line in parts.ledger if line[1] == kind]
        saved: set[int] = set()
        for word, number in words:
            assert number not in saved or word == "saved", f"step {number} of the {kind} ran after it was saved"
            if word == "saved":
                saved.add(number)
        assert saved == set(range(40))
        runs = sum(word == "run" for word, _ in words)
        # The jobs that ran when the worker was killed, and no more.
        assert runs <= 40 + _KILLS


def _has_ended(parts: Project) -> bool:
    return all(len(parts.ledger_lines("saved", kind)) >= 40 for kind in _KINDS)


def test_a_task_in_a_process_reads_and_saves_through_its_worker(parts: Project) -> None:
    parts.start()

    job = parts.app.tasks["jobs.counts"].send("a")

    assert job.result(timeout=30) == [None, True, 1]
    assert parts.ledger_lines("refused", "a") == [["EncodeError"]]


@pytest.mark.slow
@pytest.mark.rabbitmq
def test_a_worker_that_wakes_up_late_overwrites_nothing_of_its_successor(
    tmp_path: Path, amqp_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, f"{amqp_url}?heartbeat=2", redis_url)
    project.write(_JOBS)
    project.app.task(name="jobs.late")(_takes_kind)
    job = project.app.tasks["jobs.late"].send("a")
    frozen = LoneWorker(project, tmp_path / "log-frozen")
    try:
        project.wait_for("waits", "a")

        # Two heartbeats later the broker redelivers the message to another worker.
        frozen.process.send_signal(signal.SIGSTOP)
        project.start()
        (_, (other,)) = project.wait_for("waits", "a", count=2)
        project.open(str(frozen.pid))
        frozen.process.send_signal(signal.SIGCONT)

        assert project.wait_for("superseded", "a") == [[str(frozen.pid), "True"]]
        project.open(other)
        assert job.result(timeout=30) == int(other)
        assert project.ledger_lines("step", "a") == [["0"]]
        until(lambda: project.waiting() == 0, "nothing is left at the broker")
    finally:
        frozen.end(signal.SIGKILL)
        project.close()
