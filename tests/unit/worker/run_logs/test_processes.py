"""Lines logged and printed by tasks in processes are in the same log, with the same limits."""

import asyncio
import contextlib
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskmq.errors import TaskFailed
from taskmq.load_app import load_app
from taskmq.model.history.logs import StoredLine
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory

_APP = """
import logging
import os
import sys

from taskmq import Context, TaskMQ

app = TaskMQ("memory://{name}", store="sqlite:///{folder}/jobs.db?synchronous=normal", name="shop")
log = logging.getLogger("shop.mail")
log.setLevel(logging.INFO)


def task(function):
    return app.task(name=function.__name__, queue="work", lane="store", executor="process", retry=None)(function)


@task
def talk(secret: str, context: Context) -> None:
    log.info("password=%s of %s", secret, context.job_id)
    print("printed", end=" ")
    print("twice")
    print("an error", file=sys.stderr)
    print("no end", end="")
    log.debug("too low")
    log.warning("ends")


@task
def chatter(lines: int) -> None:
    for number in range(lines):
        log.info("line %d", number)


@task
def name() -> None:
    log.info("caf\\udce9")
    print("na\\udcefve", file=sys.stderr)


@task
def fork() -> None:
    log.info("before the fork")
    pid = os.fork()
    if not pid:
        try:
            log.info("of the fork")
            print("of the fork")
        finally:
            # Nothing of the run is the fork's: it ends without waiting for its threads.
            os._exit(len(logging.getLogger().handlers))
    handlers = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    log.info("%d handler less", len(logging.getLogger().handlers) - handlers)


@task
def fail() -> None:
    log.error("before it fails")
    raise ValueError("no")


@app.task(name="plain", queue="work", executor="process")
def plain() -> bool:
    log.error("of a plain job")
    print("of a plain job")
    kinds = [type(handler).__module__ for handler in logging.getLogger().handlers]
    return "taskmq.run.log_capture" in kinds
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return `module:attribute` of the app."""
    name = f"shop_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        textwrap.dedent(_APP).replace("{name}", name).replace("{folder}", str(tmp_path))
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield f"{name}:app"
    sys.modules.pop(name, None)
    forget_memory(name)


async def _run(shop: str, task: str, *args: Any, **config: Any) -> tuple[str, Any, list[StoredLine]]:
    """Run a job of the task; return its outcome and its log lines."""
    app, _ = load_app(shop)
    worker, scheduler = Worker(app, WorkerConfig(name="w", **config), target=shop), Scheduler(app)
    running = [asyncio.create_task(worker.run()), asyncio.create_task(scheduler.run())]
    try:
        async with asyncio.timeout(40):
            job = await app.tasks[task].asend(*args)
            result: Any = None
            with contextlib.suppress(TaskFailed):
                result = await job.aresult(timeout=30)
            lines = (await app.jobs.alogs(job.id)).lines if task != "plain" else []
            return job.id, result, lines
    finally:
        worker.drain()
        scheduler.stop()
        await asyncio.gather(*running)


def test_records_and_prints_of_a_process_are_in_the_log_of_its_job(shop: str) -> None:
    job_id, _, lines = asyncio.run(_run(shop, "talk", "hunter2", capture_logs="info", capture_output=True))

    assert [(line.level, line.logger, line.message) for line in lines] == [
        (20, "shop.mail", f"password=[redacted] of {job_id}"),
        (20, "stdout", "printed twice"),
        (40, "stderr", "an error"),
        (30, "shop.mail", "ends"),
        (20, "stdout", "no end"),
    ]
    assert {(line.job, line.worker, line.attempt, line.task) for line in lines} == {(job_id, "w", 1, "talk")}


@pytest.mark.nightly(
    "tests/unit/worker/run_logs/test_processes.py::test_records_and_prints_of_a_process_are_in_the_log_of_its_job"
)
def test_unencodable_text_is_escaped(shop: str) -> None:
    _, _, lines = asyncio.run(_run(shop, "name", capture_logs="info", capture_output=True))

    assert [line.message for line in lines] == ["caf\\udce9", "na\\udcefve"]


def test_lines_of_a_fork_of_the_process_do_not_belong_to_the_run(shop: str) -> None:
    _, _, lines = asyncio.run(_run(shop, "fork", capture_logs="info", capture_output=True))

    assert [line.message for line in lines] == ["before the fork", "1 handler less"]


@pytest.mark.nightly(
    "tests/unit/worker/run_logs/test_capture.py::test_the_lines_of_a_run_are_limited_and_the_rest_are_counted"
)
def test_the_lines_of_a_run_in_a_process_are_limited_and_the_rest_are_counted(shop: str) -> None:
    _, _, lines = asyncio.run(_run(shop, "chatter", 50_000, capture_logs="info", log_lines=20))

    assert [line.message for line in lines[:-1]] == [f"line {number}" for number in range(20)]
    assert lines[-1].message.startswith("49980 further lines of this run were not kept")


@pytest.mark.nightly(
    "tests/unit/worker/run_logs/test_capture.py::test_each_attempt_has_its_lines_with_their_tracebacks"
)
def test_lines_logged_before_a_failure_are_kept(shop: str) -> None:
    _, _, lines = asyncio.run(_run(shop, "fail", capture_logs="info"))

    assert [line.message for line in lines] == ["before it fails"]


@pytest.mark.parametrize(("level", "is_installed"), [("off", False), ("info", True)])
def test_a_process_captures_only_if_its_worker_does(shop: str, level: str, is_installed: bool) -> None:
    _, result, _ = asyncio.run(_run(shop, "plain", capture_logs=level))

    assert result is is_installed
