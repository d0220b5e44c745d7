"""Code of the app that a scheduler runs, its middleware: an error delays only its own schedule."""

import itertools
import logging
from typing import Any

import pytest

from taskmq import Middleware, TaskMQ, chain
from taskmq.contracts.jobs import JobRecord
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import decode_envelope
from taskmq.run.facts import SCHEDULED_FOR
from taskmq.schedules.triggers import every
from tests.unit.scheduler.stage import START, Process, Stage, play_one, until
from tests.unit.worker.foreign_code import FAILURES, fail


class _Refusing(Middleware):
    """Middleware that raises for one task as a test says."""

    def __init__(self, how: str) -> None:
        self._how = how

    def send(self, sending: Sending) -> None:
        if sending.envelope.task == "refused":
            fail(self._how)


def _define(app: TaskMQ, how: str) -> None:
    @app.task(name="fine", queue="work")
    async def fine() -> None: ...

    @app.task(name="refused", queue="work")
    async def refused(name: str = "") -> str:
        return name

    app.producer.use_middleware([_Refusing(how)])


async def _start_scheduler(stage: Stage) -> Process:
    process = stage.start()
    await until(lambda: stage.holds_all(process))
    await process.app.schedules.aadd("fine", process.app.tasks["fine"], every("1s"))
    return process


def _instants(stage: Stage) -> list[int]:
    return sorted(_instant(job) for job in stage.database.jobs.values() if job.task == "fine")


def _instant(job: JobRecord) -> int:
    return int((decode_envelope(job.body).meta or {})[SCHEDULED_FOR]) - START


def _check_fired_each_second(stage: Stage, process: Process) -> None:
    instants = _instants(stage)
    assert len(instants) >= 15
    assert {later - earlier for earlier, later in itertools.pairwise(instants)} == {1000}
    assert not process.task.done()
    assert not any(job.task == "refused" for job in stage.database.jobs.values())


# The gate runs the worst: an error that ends a process, and one without a readable attribute.
_LATER = pytest.mark.nightly(
    "tests/unit/scheduler/test_foreign_code.py::test_raising_middleware_delays_only_its_own_schedule"
)
HOWEVER = pytest.mark.parametrize(
    "how", [pytest.param(how, marks=() if how in ("exit", "closed") else _LATER) for how in FAILURES]
)


@HOWEVER
def test_raising_middleware_delays_only_its_own_schedule(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Stage) -> None:
        process = await _start_scheduler(stage)
        await process.app.schedules.aadd("refused", process.app.tasks["refused"], every("1s"))
        await stage.pass_by(20)
        _check_fired_each_second(stage, process)

    play_one(test, lambda app: _define(app, how))
    assert any(_names(record, "firing failed", "refused") for record in caplog.records)
    assert not any("failed; restarting it" in record.msg for record in caplog.records)


@HOWEVER
def test_a_run_with_raising_middleware_fails_and_delays_no_schedule(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(stage: Stage) -> None:
        process = await _start_scheduler(stage)
        refused = process.app.tasks["refused"]
        flow: Any = chain(refused.s("a"), refused.s("b"))
        await process.app.schedules.aadd("flow", flow, every("5s"))
        await stage.pass_by(20)
        _check_fired_each_second(stage, process)

    play_one(test, lambda app: _define(app, how))
    assert not any("failed; restarting it" in record.msg for record in caplog.records)


def _names(record: logging.LogRecord, words: str, name: str) -> bool:
    """Whether a log line reports it for that name, in a text that every handler can write."""
    return words in record.getMessage() and f"schedule {name}" in record.getMessage()
