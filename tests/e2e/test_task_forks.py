"""A task's fork of its worker ends with the task: it runs, settles and acknowledges nothing."""

from tests.e2e.kit import Project

JOBS = """
import asyncio, os, sys
from jobs import app, note


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.task(name="jobs.fork_in_coroutine")
async def fork_in_coroutine(how: str) -> int:
    note("ran", how)
    if how.startswith("later"):
        await asyncio.sleep(0.01)
    if (pid := os.fork()) == 0:
        if how.endswith("waits"):
            await asyncio.sleep(0)
        if how.endswith("raises"):
            raise ValueError("in the fork")
        return -1
    return ended(pid)


@app.task(name="jobs.fork_in_thread")
def fork_in_thread(how: str) -> int:
    note("ran", how)
    if (pid := os.fork()) == 0:
        if how.endswith("exits"):
            sys.exit(7)
        return -1
    return ended(pid)


@app.task(name="jobs.fork_in_child_task")
async def fork_in_child_task(how: str) -> int:
    note("ran", how)

    async def fork() -> int:
        return os.fork()

    return ended(await asyncio.create_task(fork()))
"""

FORKS = {
    "fork_in_coroutine": {
        "returns": 0,
        "raises": 1,
        "waits": 1,
        "later-returns": 0,
        "later-raises": 1,
        "later-waits": 1,
    },
    "fork_in_thread": {"thread-returns": 0, "thread-exits": 7},
    "fork_in_child_task": {"child": 0},
}


def test_a_fork_in_a_task_ends_with_it_and_its_worker_continues(project: Project) -> None:
    project.write(JOBS, "forks.py")
    run = project.start("forks:app")
    codes: dict[str, int] = {}
    expected: dict[str, int] = {}

    for task, cases in FORKS.items():
        called = project.app.task(name=f"jobs.{task}")(_placeholder)
        for how, code in cases.items():
            expected[how] = code
            codes[how] = called.send(how).result(timeout=30)

    assert codes == expected
    assert project.app.tasks["jobs.quick"].send(21).result(timeout=30) == 42
    ran = [line[1] for line in project.ledger if line[0] == "ran"]
    assert sorted(ran) == sorted([*expected, "21"]), run.log
    assert len(run.children) == 1


async def _placeholder(how: str) -> int:
    raise NotImplementedError(how)
