"""Locks in tasks of all three kinds, in several processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kit import Project

JOBS = """
import asyncio, os, time
from taskmq import Context, TaskMQ, UnsupportedFeature

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])
_ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(*words):
    os.write(_ledger, (" ".join(map(str, words)) + "\\n").encode())

@app.task
async def looping(context: Context, name: str) -> None:
    async with context.lock("one") as lock:
        note("took", "lock", lock.token, "looping")
        await asyncio.sleep(0.02)
        note("left", "lock", lock.token)

@app.task
def threaded(context: Context, name: str) -> None:
    with context.lock("one") as lock:
        note("took", "lock", lock.token, "threaded")
        time.sleep(0.02)
        note("left", "lock", lock.token)

@app.task(executor="process")
def apart(context: Context, name: str) -> None:
    try:
        context.lock("one")
    except UnsupportedFeature as error:
        note("refused", "lock", str(error).replace(" ", "_"))
    with app.lock("one") as lock:
        note("took", "lock", lock.token, "apart")
        time.sleep(0.02)
        note("left", "lock", lock.token)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    it = Project(tmp_path, f"local://{tmp_path}/embedded", f"local://{tmp_path}/embedded")
    it.write(JOBS)

    async def takes_name(name: str) -> None: ...

    for task in ("looping", "apart"):
        it.app.task(name=f"jobs.{task}")(takes_name)
    yield it
    it.close()


def test_one_holder_at_a_time_has_the_lock_for_any_kind_of_task(project: Project) -> None:
    for number in range(4):
        for task in ("looping", "threaded", "apart"):
            project.send(task, f"{number}")
    project.start(processes=2, concurrency=4)

    project.wait_for("left", "lock", count=12)

    words = [(line[0], line[2]) for line in project.ledger if line[0] in ("took", "left")]
    # Each is released before the next one is acquired, and tokens grow.
    assert [token for word, token in words if word == "took"] == [token for word, token in words if word == "left"]
    assert [word for word, _ in words] == ["took", "left"] * 12
    tokens = [int(token) for word, token in words if word == "took"]
    assert tokens == sorted(set(tokens))
    assert {line[3] for line in project.ledger if line[0] == "took"} == {"looping", "threaded", "apart"}
    (refusal, *_) = {line[2] for line in project.ledger if line[0] == "refused"}
    assert "app.lock" in refusal
