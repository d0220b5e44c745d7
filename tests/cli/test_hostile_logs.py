"""The logs of every kind of process: no foreign id, name or message forges a line or controls a terminal."""

import json
import re
import signal
import unicodedata
from pathlib import Path
from typing import Any, Final

import pytest

from taskmq.contracts.broker import Broker, Outgoing
from tests.cli.kit import PATIENCE, Started, at_broker, declare, exists, run_here
from tests.servers import eventually

_PWN: Final = "x\x1b]0;PWN\x07\x1b[2J\nERROR forged: root logged in\r\x9b2J\u2028\u202e"
_STORE: Final = {"TASKMQ_STORE": "sqlite:///jobs.db"}

_APP: Final = (
    """\
import logging
import os
import time

from taskmq import Middleware, TaskMQ

PWN = """
    + repr(_PWN)
    + """
log = logging.getLogger("shop" + PWN)
log.warning("imported %s", PWN)


class Loud(Middleware):
    def send(self, sending):
        log.warning("sends %s", PWN)


app = TaskMQ(middleware=[Loud()])


def raises():
    try:
        raise KeyError(PWN)
    except KeyError as cause:
        raise type("Bad" + PWN, (ValueError,), {})(PWN) from cause


@app.task(retry=None)
async def fail() -> None:
    log.error("fails %s", PWN)
    raises()


@app.task(retry=None, executor="process")
def fail_apart() -> None:
    log.error("fails apart %s", PWN)
    raises()


@app.task(retry=None)
async def stand(stamp: str) -> None:
    time.sleep(0.3)


@app.task(retry=None)
def die(stamp: str) -> None:
    os._exit(9)


@app.every("100ms")
@app.task
async def tick() -> None: ...
"""
)


@pytest.fixture
def hostile(home: Path) -> Path:
    (home / "shop.py").write_text(_APP)
    assert run_here(home, "store", "upgrade", env=_STORE).code == 0
    return home


def _publish(*messages: Outgoing) -> None:
    async def publish(broker: Broker) -> None:
        for message in messages:
            await broker.publish(message, timeout=10)

    at_broker(publish)


def _message(task: str, number: int, body: dict[str, Any] | bytes | None = None) -> Outgoing:
    name = f"{number}{_PWN}"
    content: dict[str, Any] | bytes = {"id": name, "task": task, "args": [], "attempt": 1} if body is None else body
    return Outgoing(
        queue="default",
        body=content if isinstance(content, bytes) else json.dumps(content).encode(),
        content_type="application/json",
        job_id=name,
        task=task,
    )


def _assert_is_clean(log: str) -> None:
    """Assert that each line is a record, a banner, or indented, without control characters."""
    assert "ERROR forged" in log
    assert not [char for char in log if char != "\n" and unicodedata.category(char) in {"Cc", "Zl", "Zp"}]
    assert "\u202e" not in log
    for line in log.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ +\d+ |taskmq |  |waiting for ", line), line


def test_the_log_of_workers_has_no_forged_line(hostile: Path) -> None:
    declare("default")

    with Started(hostile, "worker", "shop:app", "--name", "w", "--slow-loop-warning", "50ms") as worker:
        worker.says("waiting for jobs")
        _publish(
            _message("shop.fail", 1),
            _message("shop.fail_apart", 2),
            _message(f"shop.{_PWN}", 3),
            _message("shop.fail", 4, b"no message at all\n\x1b[2J"),
            _message("shop.stand", 5, {"id": _PWN, "task": "shop.stand", "args": [_PWN], "attempt": 1}),
            _message("shop.fail", 6, {"id": f"6{_PWN}", "task": "shop.fail", "args": [_PWN], "attempt": 1}),
        )
        for text in ("fails x", "fails apart x", "job 1x", "job 2x", "is not a task", "event loop blocked", "job 6x"):
            worker.says(text)
        worker.signal_and_wait(signal.SIGTERM)

    _assert_is_clean(worker.said)
    assert "    ERROR forged: root logged in\\r\\x9b2J\\u2028\\u202e" in worker.said


@pytest.mark.nightly("tests/cli/test_hostile_logs.py::test_the_log_of_workers_has_no_forged_line")
def test_the_log_of_schedulers_has_no_forged_line(hostile: Path) -> None:
    name = f"7{_PWN}"
    report = {"id": name, "token": 3, "kind": "succeeded", "worker": _PWN}

    with Started(hostile, "scheduler", "shop:app", env=_STORE) as scheduler:
        scheduler.says("imported x")
        scheduler.says("taskmq scheduler: app")
        eventually(lambda: exists("taskmq.reports.taskmq.0"), "taking reports", within=PATIENCE)
        reports = [
            Outgoing(
                queue="taskmq.reports.taskmq.0",
                body=body,
                content_type="application/json",
                job_id=name,
                task="taskmq.report",
            )
            for body in (json.dumps([report]).encode(), b"[{\n\x1b[2J")
        ]
        _publish(*reports)
        scheduler.says("message 7x")
        scheduler.says("job 7x")
        scheduler.says("sends x")
        scheduler.signal_and_wait(signal.SIGTERM)

    _assert_is_clean(scheduler.said)


@pytest.mark.nightly("tests/cli/test_hostile_logs.py::test_the_log_of_workers_has_no_forged_line")
def test_the_log_of_beats_has_no_forged_line(hostile: Path) -> None:
    declare("default")

    with Started(hostile, "beat", "shop:app") as beat:
        beat.says("imported x")
        beat.says("sends x")
        beat.signal_and_wait(signal.SIGTERM)

    _assert_is_clean(beat.said)


@pytest.mark.nightly("tests/cli/test_hostile_logs.py::test_the_log_of_workers_has_no_forged_line")
def test_the_log_of_servers_has_no_forged_line(hostile: Path) -> None:
    with Started(hostile, "server", "shop:app", "--port", "0", "--development", env=_STORE) as server:
        server.says("imported x")
        server.says("taskmq server: app")
        server.signal_and_wait(signal.SIGTERM)

    _assert_is_clean(server.said)


@pytest.mark.nightly("tests/cli/test_hostile_logs.py::test_the_log_of_workers_has_no_forged_line")
def test_the_log_of_supervisors_has_no_forged_line(hostile: Path) -> None:
    declare("default")

    with Started(hostile, "worker", "shop:app", "--name", "w") as worker:
        worker.says("waiting for jobs")
        _publish(_message("shop.die", 8, {"id": f"8{_PWN}", "task": "shop.die", "args": [_PWN], "attempt": 1}))
        worker.says("exit")
        worker.signal_and_wait(signal.SIGTERM)

    _assert_is_clean(worker.said)
