"""Log lines of stored jobs' runs are stored with the job at its end; other lines are not captured."""

import asyncio
import contextlib
import gc
import io
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from taskmq import Context, RetryPolicy, TaskMQ
from taskmq.contracts.history import history_of
from taskmq.errors import TaskFailed
from taskmq.model.history.logs import LogFilter, StoredLine
from taskmq.run.log_capture import CaptureSettings, LogCapture
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory

_shop = logging.getLogger("shop.mail")


def _define(app: TaskMQ) -> None:
    @app.task(name="talk", queue="work", lane="store")
    async def talk(secret: str = "") -> None:
        _shop.info("begins with password=%s", secret)
        await asyncio.sleep(0)
        _shop.warning("goes on")
        for name in ("taskmq", "taskmq.worker"):
            logging.getLogger(name).warning("of taskmq's own")

    @app.task(name="thread", queue="work", lane="store")
    def thread() -> None:
        _shop.info("in a thread")
        print("printed", end=" ")
        print("twice")
        print("an error", file=sys.stderr)

    @app.task(name="begin", queue="work", lane="store")
    async def begin() -> None:
        print("whole\n\nno end: ", end="")
        print("password=hunter2", end="")
        print(" ", end="", file=sys.stderr)

    @app.task(name="fail", queue="work", lane="store", retry=RetryPolicy(max_attempts=2, base=0.01, jitter=False))
    async def fail(context: Context) -> None:
        try:
            raise ValueError("no")
        except ValueError:
            _shop.exception("attempt %d", context.attempt)
            raise

    @app.task(name="chatter", queue="work", lane="store")
    async def chatter(lines: int) -> None:
        for number in range(lines):
            _shop.info("line %d", number)

    @app.task(name="refuse", queue="work", lane="store", retry=RetryPolicy(max_attempts=2, base=0.01, jitter=False))
    async def refuse(iban: str) -> None:
        raise ValueError(f"of iban {iban}")

    @app.task(name="plain", queue="work", result=False)
    async def plain() -> None:
        _shop.info("of a plain job")


def _play(folder: Path, test: Callable[[TaskMQ], Coroutine[Any, Any, None]], **config: Any) -> None:
    """Run a test beside a worker and a scheduler; all of them on one broker and store."""
    name = uuid.uuid4().hex

    def app() -> TaskMQ:
        made = TaskMQ(f"memory://{name}", store=f"sqlite:///{folder}/jobs.db?synchronous=normal", name="shop")
        _define(made)
        return made

    async def main() -> None:
        worker, scheduler = Worker(app(), WorkerConfig(name="w", **config)), Scheduler(app())
        running = [asyncio.create_task(worker.run()), asyncio.create_task(scheduler.run())]
        try:
            async with asyncio.timeout(30), app() as asking:
                await test(asking)
        finally:
            worker.drain()
            scheduler.stop()
            await asyncio.gather(*running)

    before = _shop.level
    _shop.setLevel(logging.DEBUG)
    try:
        asyncio.run(main())
    finally:
        _shop.setLevel(before)
        forget_memory(name)


async def _lines(app: TaskMQ, task: str, *args: Any) -> list[StoredLine]:
    """Return the log lines of a job of the task at its end."""
    job = await app.tasks[task].asend(*args)
    with contextlib.suppress(TaskFailed):
        await job.aresult(timeout=20)
    return (await app.jobs.alogs(job.id)).lines


def test_log_lines_of_a_run_are_available_at_its_end(tmp_path: Path) -> None:
    async def test(app: TaskMQ) -> None:
        first, second = await _lines(app, "talk", "hunter2")

        assert (first.message, first.level, first.logger) == ("begins with password=[redacted]", 20, "shop.mail")
        assert (second.message, second.level, second.worker, second.attempt) == ("goes on", 30, "w", 1)
        assert (first.task, first.queue) == ("talk", "work")

    _play(tmp_path, test, capture_logs="info")


def test_records_are_captured_even_if_handlers_need_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(self: logging.Handler, record: logging.LogRecord) -> bool:
        """Handle the record as in Python 3.13."""
        assert self.lock is not None, "this handler lets errors through"
        with self.lock:
            self.emit(record)
        return True

    async def test(app: TaskMQ) -> None:
        assert len(await _lines(app, "talk")) == 2

    monkeypatch.setattr(logging.Handler, "handle", handle)
    _play(tmp_path, test, capture_logs="info")


def test_filters_of_the_handler_are_applied(tmp_path: Path) -> None:
    before = list(logging.getLogger().handlers)

    async def test(app: TaskMQ) -> None:
        while not (ours := [each for each in logging.getLogger().handlers if each not in before]):
            await asyncio.sleep(0)
        ours[0].addFilter(lambda record: record.levelno > logging.INFO)

        assert [line.message for line in await _lines(app, "talk")] == ["goes on"]

    _play(tmp_path, test, capture_logs="info")


def test_lines_below_the_level_are_not_captured(tmp_path: Path) -> None:
    async def test(app: TaskMQ) -> None:
        assert [line.message for line in await _lines(app, "talk")] == ["goes on"]

    _play(tmp_path, test, capture_logs="warning")


def test_a_worker_captures_nothing_by_default(tmp_path: Path) -> None:
    handlers = list(logging.getLogger().handlers)

    async def test(app: TaskMQ) -> None:
        assert await _lines(app, "talk") == []
        assert logging.getLogger().handlers == handlers

    _play(tmp_path, test)
    assert logging.getLogger().handlers == handlers


def test_threads_log_and_print_as_their_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stdout = sys.stdout

    async def test(app: TaskMQ) -> None:
        print("of nobody")
        lines = await _lines(app, "thread")

        assert [(line.logger, line.level, line.message) for line in lines] == [
            ("shop.mail", 20, "in a thread"),
            ("stdout", 20, "printed twice"),
            ("stderr", 40, "an error"),
        ]

    _play(tmp_path, test, capture_logs="debug", capture_output=True)
    assert sys.stdout is stdout
    assert capsys.readouterr() == ("of nobody\nprinted twice\n", "an error\n")


class _NoSink:
    """Requests no line, and gets none."""

    def is_wanted(self, context: Context) -> bool:
        del context
        return False

    def add(self, context: Context, level: int, logger: str, message: str) -> None:
        raise AssertionError((context, level, logger, message))

    write = add


def test_a_captured_stream_otherwise_behaves_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    capture = LogCapture(_NoSink(), CaptureSettings(10, output=True))
    capture.install()
    taken: Any = sys.stdout
    try:
        taken.reconfigure(encoding="utf-8", line_buffering=True)
        print("é")

        assert taken is not stream
        assert (taken.encoding, taken.line_buffering) == ("utf-8", True)
        assert stream.buffer.getvalue().decode() == "é\n"
        with pytest.raises(AttributeError):
            assert taken.nothing_of_the_kind
    finally:
        capture.remove()


def test_a_capture_that_outlives_its_stream_ends_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 and later report an error raised while a file is deallocated."""
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    capture = LogCapture(_NoSink(), CaptureSettings(10, output=True))
    capture.install()
    capture.remove()
    stream.close()

    del capture
    gc.collect()

    assert reported == []


def test_text_without_a_newline_is_captured_at_the_end_of_the_run(tmp_path: Path) -> None:
    async def test(app: TaskMQ) -> None:
        lines = await _lines(app, "begin")
        assert [line.message for line in lines] == ["whole", "no end: password=[redacted]"]

    _play(tmp_path, test, capture_logs="info", capture_output=True)


def test_each_attempt_has_its_lines_with_their_tracebacks(tmp_path: Path) -> None:
    async def test(app: TaskMQ) -> None:
        lines = await _lines(app, "fail")

        assert [(line.attempt, line.message.splitlines()[0]) for line in lines] == [
            (1, "attempt 1"),
            (2, "attempt 2"),
        ]
        assert all(line.message.endswith("ValueError: no") for line in lines)
        followed = [line.message async for line in app.jobs.follow_logs(lines[0].job)]
        assert followed == [line.message for line in lines]

    _play(tmp_path, test, capture_logs="error")


@pytest.mark.nightly(
    "tests/unit/worker/run_logs/test_capture.py::test_each_attempt_has_its_lines_with_their_tracebacks"
)
def test_lines_of_every_attempt_are_found_by_its_number_even_after_a_resumption(tmp_path: Path) -> None:
    async def test(app: TaskMQ) -> None:
        (first, *_) = await _lines(app, "fail")
        await app.jobs.aretry(first.job, mode="resume")
        followed = [line.attempt async for line in app.jobs.follow_logs(first.job)]

        assert followed == [1, 2, 3, 4]
        assert [one.attempt for one in await app.jobs.aattempts(first.job)] == followed
        for number in followed:
            (line,) = (await app.jobs.alogs(first.job, attempt=number)).lines
            assert (line.attempt, line.message.splitlines()[0]) == (number, f"attempt {number}")
        assert (await app.jobs.alogs(first.job, attempt=5)).lines == []

    _play(tmp_path, test, capture_logs="error")


def test_the_lines_of_a_run_are_limited_and_the_rest_are_counted(tmp_path: Path) -> None:
    async def test(app: TaskMQ) -> None:
        lines = await _lines(app, "chatter", 12)

        assert [line.message for line in lines] == [
            *(f"line {number}" for number in range(5)),
            "7 further lines of this run were not kept: it may have 5",
        ]

    _play(tmp_path, test, capture_logs="debug", log_lines=5)


def test_a_text_is_found_behind_more_lines_than_a_search_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(app: TaskMQ) -> None:
        job = (await _lines(app, "chatter", 12))[0].job
        monkeypatch.setattr(history_of(app.sessions.store()).logs, "_search_lines", 4)

        assert [line.message async for line in app.jobs.follow_logs(job, text="line 11")] == ["line 11"]

    _play(tmp_path, test, capture_logs="debug")


def test_only_runs_of_stored_jobs_are_captured(tmp_path: Path) -> None:
    async def test(app: TaskMQ) -> None:
        await app.tasks["plain"].asend()
        _shop.info("of no job")
        thread = threading.Thread(target=_shop.info, args=("of a thread",))
        thread.start()
        await asyncio.to_thread(thread.join)
        await _lines(app, "talk")

        page = await app.sessions.store().history.logs.page(LogFilter())  # type: ignore[attr-defined]
        assert {line.task for line in page.lines} == {"talk"}

    _play(tmp_path, test, capture_logs="debug")


def test_custom_patterns_are_redacted_in_lines(tmp_path: Path) -> None:
    async def test(app: TaskMQ) -> None:
        assert [line.message for line in await _lines(app, "chatter", 1)] == ["[redacted] 0"]

    _play(tmp_path, test, capture_logs="debug", redact="line")


@pytest.mark.parametrize("capture", ["off", "debug"])
def test_custom_patterns_are_redacted_in_errors_and_their_log_lines(
    tmp_path: Path, capture: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(app: TaskMQ) -> None:
        job = await app.tasks["refuse"].asend("DE12-3456")
        with pytest.raises(TaskFailed) as failed:
            await job.aresult(timeout=20)

        attempt, _ = await app.jobs.aattempts(job.id)
        assert attempt.error is not None
        shown = f"{failed.value.message}{failed.value.traceback}{attempt.error.message}{attempt.error.traceback}"
        assert "of iban [redacted]" in shown
        assert "DE12" not in shown

    _play(tmp_path, test, capture_logs=capture, redact=r"(?P<keep>iban )[\w-]+")

    assert "dead (error): ValueError: of iban [redacted]" in caplog.text
    assert "raise ValueError(" in caplog.text
    assert "DE12" not in caplog.text
