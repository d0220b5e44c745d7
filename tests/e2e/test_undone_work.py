"""Tasks that return a coroutine or a generator instead of doing their work: each job fails, in every executor."""

import asyncio
from typing import Any

from taskmq.model.topology import DEFAULT_QUEUE
from taskmq.operations.dead_letters import DeadLetter, browse
from tests.e2e.kit import Project, until

JOBS = '''
import asyncio, functools, os
from taskmq import TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])


def traced(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner


def runs(function):
    """Make a plain function of a coroutine function, as many libraries do."""
    @functools.wraps(function)
    def inner(*args):
        return asyncio.run(function(*args))
    return inner


async def mail(to: str) -> str:
    open("done", "a").write(to)
    return to

def rows(to: str):
    open("done", "a").write(to)
    yield to

async def hands_on(to: str):
    return mail(to)

async def hands_on_later(to: str):
    await asyncio.sleep(0)
    return mail(to)

ways = {
    "coroutine": hands_on,
    "waiting": hands_on_later,
    "thread": traced(mail),
    "thread_rows": traced(rows),
    "partial": functools.partial(traced(mail)),
    "process": traced(mail),
    "process_rows": traced(rows),
}
for name, function in ways.items():
    options = {"executor": "process"} if name.startswith("process") else {}
    app.task(name=f"jobs.{name}", result=False, **options)(function)
    app.task(name=f"jobs.{name}_kept", **options)(function)
    app.task(name=f"jobs.{name}_softly", result=False, soft_timeout="20s", **options)(function)

app.task(name="jobs.runs")(runs(mail))
'''
_WAYS = ("coroutine", "waiting", "thread", "thread_rows", "partial", "process", "process_rows")
_NAMES = [f"jobs.{way}{more}" for way in _WAYS for more in ("", "_kept", "_softly")]


def test_a_job_that_only_returned_an_awaitable_is_a_dead_letter(project: Project) -> None:
    project.write(JOBS)
    for name in (*_NAMES, "jobs.runs"):
        project.app.task(name=name)(_call_task)
    worker = project.start()

    for name in _NAMES:
        project.app.tasks[name].send("nobody")
    until(lambda: len(_letters(project)) == len(_NAMES), "each is a dead letter", details=lambda: worker.log)

    letters = _letters(project)
    assert sorted(letter.task for letter in letters) == sorted(_NAMES)
    assert {letter.reason for letter in letters} == {"rejected"}
    assert {letter.attempt for letter in letters} == {1}
    assert not (project.folder / "done").exists()
    assert "RuntimeWarning" not in worker.log
    # A wrapper that runs the coroutine is a task like any other.
    assert project.app.tasks["jobs.runs"].send("somebody").result(timeout=30) == "somebody"


def _call_task(to: str) -> Any: ...


def _letters(project: Project) -> list[DeadLetter]:
    async def look() -> list[DeadLetter]:
        async with project.app as app:
            return await browse(app.sessions.current().broker, DEFAULT_QUEUE, limit=100)

    return asyncio.run(look())
