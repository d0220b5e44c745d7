"""The first worker process, which is started before the command line is read."""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq import head_start
from taskmq.__main__ import _runs_worker
from taskmq.supervisor.child_process import ChildProcess
from taskmq.worker.config import WorkerConfig
from taskmq.worker.order import Order
from tests.e2e.kit import until

APP = """
from taskmq import TaskMQ

app = TaskMQ("memory://")


@app.task
def nothing() -> None: ...
"""


@pytest.fixture(autouse=True)
def _app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "small.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    yield
    assert head_start.take() is None


async def _start() -> ChildProcess:
    order = Order(target="small:app", config=WorkerConfig())
    return await ChildProcess.start(order, on_ready=lambda _: None, patience=30)


def test_the_first_process_is_the_one_with_the_head_start_and_the_second_another_one() -> None:
    async def body() -> None:
        head_start.begin()
        (waiting,) = head_start._waiting
        first = await _start()
        second = await _start()
        assert await first.becomes_ready(30)
        assert await second.becomes_ready(30)
        assert first.pid == waiting.process.pid != second.pid

        second.drain()
        first.drain()
        assert [await first.ended, await second.ended] == [0, 0]

    asyncio.run(body())


def test_how_it_ended_is_told_as_of_any_other() -> None:
    async def body() -> None:
        head_start.begin()
        child = await _start()
        assert await child.becomes_ready(30)
        child.kill()
        assert await child.ended == -signal.SIGKILL
        # There is nobody any more.
        child.send(signal.SIGTERM)

    asyncio.run(body())


def test_one_that_has_died_meanwhile_is_replaced() -> None:
    async def body() -> None:
        head_start.begin()
        (waiting,) = head_start._waiting
        waiting.process.kill()
        waiting.process.wait()
        child = await _start()
        assert await child.becomes_ready(30)
        assert child.pid != waiting.process.pid
        child.drain()
        assert await child.ended == 0

    asyncio.run(body())


def test_where_no_process_can_be_started_early_it_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    before = len([*Path("/proc/self/fd").iterdir()])
    monkeypatch.setattr(subprocess, "Popen", refuse)
    head_start.begin()
    assert head_start.take() is None
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_wrong_option_leaves_no_process_behind() -> None:
    mark = f"TASKMQ_TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")

    done = subprocess.run(
        [sys.executable, "-m", "taskmq", "worker", "small:app", "--concurrency", "0"],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert done.stderr == "taskmq: --concurrency and --prefetch: at least 1\n"
    until(lambda: not _marked(mark.encode()), "all of them have ended")


def _marked(mark: bytes) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        ("worker shop:app", True),
        ("-q worker shop:app -c 4", True),
        ("dev shop:app", True),
        ("worker --help", False),
        ("worker -h", False),
        ("workers", False),
        ("send worker", False),
        ("--version", False),
        ("", False),
    ],
)
def test_only_a_worker_has_a_head_start(line: str, *, starts: bool) -> None:
    assert _runs_worker(line.split()) is starts
