"""What a worker's log says about the tasks that write to it."""

from pathlib import Path

import pytest

from tests.e2e.kit import Project

_JOBS = """
import asyncio, logging, os
from taskmq import TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])
log = logging.getLogger("shop")


@app.task
async def by_coroutine(name: str) -> None:
    await asyncio.to_thread(log.warning, "%s in a thread of a coroutine", name)
    log.warning("%s in a coroutine", name, extra={"task": "own", "queue": 7})

@app.task
def by_thread(name: str) -> None:
    log.warning("%s in a thread", name)

@app.task(executor="process")
def by_process(name: str) -> None:
    log.warning("%s in a process", name)
"""


@pytest.fixture
def logging_project(local_project: Project) -> Project:
    local_project.write(_JOBS)
    for kind in ("coroutine", "thread", "process"):
        local_project.app.task(name=f"jobs.by_{kind}")(_takes_name)
    return local_project


async def _takes_name(name: str) -> None: ...


def test_every_line_that_a_task_logs_says_whose_it_is_wherever_the_task_runs(
    logging_project: Project, tmp_path: Path
) -> None:
    project = logging_project
    run = project.start()

    jobs = {kind: project.app.tasks[f"jobs.by_{kind}"].send(kind) for kind in ("coroutine", "thread", "process")}
    for job in jobs.values():
        job.result(timeout=30)

    def tail(kind: str, *, task: str = "", queue: str = "default") -> str:
        return f"[{task or f'jobs.by_{kind}'} job={jobs[kind].id} attempt=1 queue={queue}]"

    assert f"shop: coroutine in a thread of a coroutine {tail('coroutine')}\n" in run.log
    assert f"shop: coroutine in a coroutine {tail('coroutine', task='own', queue='7')}\n" in run.log
    assert f"shop: thread in a thread {tail('thread')}\n" in run.log
    assert f"shop: process in a process {tail('process')}\n" in run.log
