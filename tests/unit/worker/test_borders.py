"""A job ends with a reason whatever code of the app raises at a border, and the worker continues."""

import contextlib
import logging
from collections.abc import Generator
from pathlib import Path

import pytest

from taskmq.options.task_options import ExecutorKind
from tests.unit.worker.border_kit import check_every_border, watch_runs
from tests.unit.worker.foreign_code import EXECUTORS, fail

pytestmark = pytest.mark.real_time


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return watch_runs(tmp_path, monkeypatch)


class Chat(logging.Handler):
    """A handler that fails at each taskmq record with an unprintable error."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("taskmq"):
            fail("closed")


@contextlib.contextmanager
def handled_by_a_broken_chat() -> Generator[None]:
    chat = Chat()
    logging.getLogger().addHandler(chat)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(chat)


# The gate runs coroutines on RabbitMQ, and below each of the other executors once.
_LATER = {("async", False), ("async", True), ("thread", True), ("process", False)}


@pytest.mark.parametrize(
    ("executor", "stored"),
    [
        pytest.param(
            executor,
            stored,
            marks=pytest.mark.matrix if (executor, stored) in _LATER else (),
            id=f"{executor}-{'store' if stored else 'broker'}",
        )
        for executor in EXECUTORS
        for stored in (False, True)
    ],
)
async def test_each_job_ends_once_whatever_is_raised_at_a_border(
    executor: ExecutorKind, runs: Path, *, stored: bool
) -> None:
    await check_every_border(executor, runs, stored=stored)


@pytest.mark.nightly("tests/unit/worker/test_borders.py::test_each_job_ends_once_whatever_is_raised_at_a_border")
@pytest.mark.parametrize(
    "stored",
    [pytest.param(False, id="broker"), pytest.param(True, id="store", marks=pytest.mark.matrix)],
)
async def test_a_failing_log_handler_affects_no_job_and_no_worker(runs: Path, *, stored: bool) -> None:
    with handled_by_a_broken_chat():
        await check_every_border("async", runs, stored=stored)
