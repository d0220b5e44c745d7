"""An outage of the state under long tasks: their runs are interrupted and resume at their checkpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq.model.states import JobState
from tests.e2e.kit import PATIENCE, Project, until
from tests.servers import Redis

_JOBS = """
import asyncio, os, time
from taskmq import Context, TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])


def note(*words):
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, (" ".join(map(str, words)) + "\\n").encode())
    os.close(ledger)


@app.task(retry=None)
async def by_coroutine(ctx: Context, kind: str) -> list:
    await ctx.resume()
    begin = ctx.last_checkpoint or 0
    note("run", kind, begin, ctx.attempt)
    for number in range(begin, 6):
        await ctx.acheckpoint(number)
        note("saved", kind, number)
        while number == 3 and not os.path.exists(f"open-{kind}"):
            await asyncio.sleep(0.01)
    return [begin, ctx.attempt]


def rows(ctx: Context, kind: str) -> list:
    begin = ctx.last_checkpoint or 0
    note("run", kind, begin, ctx.attempt)
    for number in range(begin, 6):
        ctx.checkpoint(number)
        note("saved", kind, number)
        while number == 3 and not os.path.exists(f"open-{kind}"):
            time.sleep(0.01)
    return [begin, ctx.attempt]


@app.task(retry=None)
def by_thread(ctx: Context, kind: str) -> list:
    return rows(ctx, kind)


@app.task(retry=None, executor="process")
def by_process(ctx: Context, kind: str) -> list:
    return rows(ctx, kind)
"""

_KINDS = ("coroutine", "thread", "process")


async def _takes_kind(kind: str) -> list[int]:
    return []


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Start a server for the test."""
    with Redis() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, redis: Redis) -> Iterator[Project]:
    it = Project(tmp_path, f"local://{tmp_path}/embedded", f"{redis.url}?timeout=0.5")
    it.write(_JOBS)
    for kind in _KINDS:
        it.app.task(name=f"jobs.by_{kind}")(_takes_kind)
    yield it
    it.close()


def test_tasks_without_retries_survive_an_outage_of_the_state(project: Project, redis: Redis) -> None:
    jobs = {kind: project.app.tasks[f"jobs.by_{kind}"].send(kind) for kind in _KINDS}
    worker = project.start()
    for kind in _KINDS:
        until(lambda kind=kind: ["3"] in project.ledger_lines("saved", kind), f"the {kind}'s checkpoint")  # type: ignore[misc]

    redis.stop()
    for kind in _KINDS:
        project.open(kind)
    worker.wait_for_log("interrupted, goes on in", count=3)
    redis.start()

    for kind, job in jobs.items():
        # From the last confirmed checkpoint, in the first attempt.
        assert job.result(timeout=PATIENCE) == [3, 1], kind
        outcome = job.outcome(timeout=PATIENCE)
        assert (outcome.state, outcome.attempts) == (JobState.SUCCEEDED, 1)
        runs = project.ledger_lines("run", kind)
        assert runs[0] == ["0", "1"]
        assert runs[-1] == ["3", "1"]
