"""Lines precede the report of their run's end; a lost line is counted."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.model.history.logs import LONGEST_LINE, decode_logs
from taskmq.model.history.redaction import Redactor
from taskmq.model.topology import ReportQueue
from taskmq.testing import Confirmed, FakeClock, FlakyBroker
from taskmq.worker.run_logs import LoggedRun, RunLines
from taskmq_local import forget_memory, open_memory_broker
from tests.coroutines import run_by
from tests.unit.worker.staged import settle_loop
from tests.virtual_time import run

_QUEUE = "reports"


def _play(
    test: Callable[[RunLines, FlakyBroker], Coroutine[Any, Any, None]], redactor: Redactor | None = None
) -> None:
    name = uuid.uuid4().hex

    async def main() -> None:
        broker = FlakyBroker(open_memory_broker(f"memory://{name}", BrokerOptions()))
        await broker.connect(timeout=1)
        await broker.declare_reports([ReportQueue(_QUEUE)])
        lines = RunLines(broker, FakeClock(), worker="w", timeout=5, redactor=redactor or Redactor())
        try:
            await test(lines, broker)
        finally:
            await broker.aclose()

    try:
        run(main())
    finally:
        forget_memory(name)


def _build_run(job: str) -> LoggedRun:
    return LoggedRun(id=job, token=1, attempt=1, reports=_QUEUE)


def _fill(lines: RunLines) -> None:
    """Log more than one message holds: 40 lines of each of two runs."""
    for job in ("a", "b"):
        for _ in range(40):
            lines.add(_build_run(job), 20, "shop", "x" * 8_000)


def _sent_lines(broker: FlakyBroker) -> list[tuple[str, int]]:
    """Return the runs of the confirmed lines, and their number."""
    bodies = [entry.message.body for entry in broker.journal if isinstance(entry, Confirmed)]
    return [(log.id, len(log.lines)) for body in bodies for log in decode_logs(body)]


@run_by(_play)
async def test_a_report_waits_for_lines_of_its_run_that_are_being_sent(
    lines: RunLines, broker: FlakyBroker, /
) -> None:
    _fill(lines)
    broker.hang_publishes()
    flush = asyncio.create_task(lines.send(_QUEUE))
    await settle_loop()
    report = asyncio.create_task(lines.send(_QUEUE, [("b", 1)]))
    await settle_loop()
    assert (broker.hanging, report.done()) == (1, False)

    broker.release_publishes()
    await report

    assert _sent_lines(broker) == [("a", 40), ("b", 40)]
    await flush


@run_by(_play)
async def test_pending_lines_are_sent_when_the_worker_stops(lines: RunLines, broker: FlakyBroker, /) -> None:
    _fill(lines)
    broker.hang_publishes()
    await asyncio.sleep(0.6)
    closing = asyncio.create_task(lines.aclose())
    await settle_loop()
    assert (broker.hanging, closing.done()) == (1, False)

    broker.release_publishes()
    await closing

    assert (_sent_lines(broker), lines.dropped) == ([("a", 40), ("b", 40)], 0)


@run_by(_play)
async def test_lines_refused_by_the_broker_are_counted(
    lines: RunLines, broker: FlakyBroker, /, caplog: pytest.LogCaptureFixture
) -> None:
    _fill(lines)
    broker.hang_publishes()
    await asyncio.sleep(0.6)
    await lines.aclose()

    assert (_sent_lines(broker), lines.dropped) == ([], 80)
    assert "up to 80 log lines for reports are lost" in caplog.text


@run_by(_play)
async def test_lines_with_a_cancelled_send_are_counted(lines: RunLines, broker: FlakyBroker, /) -> None:
    _fill(lines)
    broker.hang_publishes()
    sending = asyncio.create_task(lines.send(_QUEUE))
    await settle_loop()
    sending.cancel()
    await asyncio.wait((sending,))

    assert lines.dropped == 80


@run_by(_play)
async def test_a_finaliser_that_logs_during_a_capture_does_not_deadlock(
    lines: RunLines, broker: FlakyBroker, /
) -> None:
    class Name(str):
        __slots__ = ()

        def __del__(self) -> None:
            lines.add(_build_run("of the finaliser"), 20, "shop", "gone")

    lines.add(_build_run(Name("oldest")), 20, "shop", "begun")
    # That many runs are remembered; the oldest is forgotten.
    for number in range(5_000):
        lines.add(_build_run(f"{number}"), 20, "shop", "another")
    await lines.aclose()

    assert ("of the finaliser", 1) in _sent_lines(broker)


def test_redaction_stops_at_the_size_limit() -> None:
    lengths: list[int] = []

    class Recording(Redactor):
        def redact(self, text: str) -> str:
            lengths.append(len(text))
            return super().redact(text)

    async def test(lines: RunLines, broker: FlakyBroker) -> None:
        lines.add(_build_run("a"), 20, "shop", "password=" + "x" * 1_000_000)
        lines.add(_build_run("a"), 20, "shop", "a" * 1_000_000)
        await lines.send(_QUEUE)

        (body,) = [entry.message.body for entry in broker.journal if isinstance(entry, Confirmed)]
        (log,) = decode_logs(body)
        assert [line.message[:20] for line in log.lines] == ["password=[redacted]", "a" * 20]
        assert max(lengths) == 2 * LONGEST_LINE

        lengths.clear()
        for _ in range(1_005):
            lines.add(_build_run("b"), 20, "shop", "too many")
        assert (len(lengths), lines.dropped) == (1_000, 5)

    _play(test, Recording())


@run_by(_play)
async def test_any_number_of_runs_may_print_without_a_newline(lines: RunLines, broker: FlakyBroker, /) -> None:
    for number in range(5_001):
        lines.write(_build_run(f"{number}"), 20, "stdout", "begun")
    await lines.send(_QUEUE, [("5000", 1), ("0", 1)])

    # The oldest run is forgotten.
    assert (_sent_lines(broker), lines.dropped) == ([("5000", 1)], 1)
    await lines.aclose()


@run_by(_play)
async def test_a_run_may_begin_to_log_during_a_capture(lines: RunLines, broker: FlakyBroker, /) -> None:
    class Queue(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            lines.add(_build_run("late"), 20, "shop", "as a finaliser may")
            return super().__eq__(other)

        __hash__ = str.__hash__

    lines.add(LoggedRun(id="early", token=1, attempt=1, reports=Queue(_QUEUE)), 20, "shop", "begun")
    lines.add(_build_run("other"), 20, "shop", "begun")
    await lines.send(_QUEUE)
    await lines.aclose()

    assert {job for job, _ in _sent_lines(broker)} == {"early", "other", "late"}
