"""`python -m benchmarks.log_lines`: a worker's cost of one log line, with and without storing it with the job.

One process uses the parts of the worker on `memory://`. The processor time covers the logging call and, if lines are
stored, redaction, encoding and sending in batches of 500. The ways run in turns and are compared with plain logging
of the same round: a handler that writes to the null device.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import platform
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cell import spread_text
from taskmq.client.plugins import open_broker
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.history.redaction import Redactor
from taskmq.model.topology import ReportQueue
from taskmq.run.context import Context, current_context
from taskmq.run.log_capture import CaptureSettings, LogCapture
from taskmq.worker.run_logs import KeptRuns, RunLines

PLAIN: Final = "a handler alone: `--capture-logs off`"
_RESULTS: Final = Path(__file__).with_name("results") / "log_lines.json"
_QUEUE: Final = "reports"
# The size of a busy worker's flush, and the most short lines that fit in one message.
_BATCH: Final = 500
_WARM: Final = 1_000
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_log: Final = logging.getLogger("shop.orders")


@dataclass(frozen=True, slots=True)
class Way:
    """A row.

    Attributes:
        has_handler: whether a handler writes the line to the null device.
        level: the lowest level that is stored; None: capturing is off.
        most: the limit of stored lines per run.
        redact: the pattern of `--redact`.
        text: the format of the line, with a number.
        is_logged: whether the logger's level lets the line pass.
    """

    what: str
    has_handler: bool = True
    level: int | None = logging.INFO
    most: int = sys.maxsize
    redact: str = ""
    text: str = "order %d is charged"
    is_logged: bool = True


WAYS: Final = (
    Way(PLAIN, level=None),
    Way("the same a second time: how far the rounds differ", level=None),
    Way("its logger lets it not pass", level=None, is_logged=False),
    Way("kept, beside the handler"),
    Way("kept, no handler", has_handler=False),
    Way("kept, with a password in it", text="order %d is charged, password=hunter2"),
    Way("kept, with `--redact`", redact=r"(?P<keep>iban )\w+"),
    Way("below the level of `--capture-logs`", level=logging.WARNING),
    Way("beyond `--log-lines`", most=1),
)


def main() -> int:
    arguments = _arguments()
    found: dict[Way, list[float]] = {way: [] for way in WAYS}
    for number in range(1, arguments.rounds + 1):
        for way in WAYS:
            found[way].append(asyncio.run(_measure(way, arguments.count)))
        shown = ", ".join(f"{found[way][-1]:.2f}" for way in WAYS)
        print(f"round {number}: {shown} us", file=sys.stderr, flush=True)
    _RESULTS.write_text(json.dumps(_record(found, arguments.count), indent=1) + "\n")
    print("\n".join(table(found)))
    return 0


def table(found: Mapping[Way, Sequence[float]]) -> list[str]:
    """Format the microseconds per line, and their ratio to plain logging within each round, as Markdown."""
    plain = next(times for way, times in found.items() if way.what == PLAIN)
    return [
        "| a line | us | plain logging x |",
        "|---|---|---|",
        *(
            f"| {way.what} | {spread_text(times)} | {spread_text(_ratios(times, plain))} |"
            for way, times in found.items()
        ),
    ]


def _ratios(times: Sequence[float], by: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(times, by, strict=True)]


def _record(found: Mapping[Way, Sequence[float]], count: int) -> dict[str, object]:
    return {
        "at": time.strftime("%Y-%m-%d %H:%M"),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "lines": count,
        "us a line": {way.what: times for way, times in found.items()},
    }


async def _measure(way: Way, count: int) -> float:
    """Return the processor time of one line in microseconds."""
    broker = open_broker(f"memory://{uuid.uuid4().hex}", BrokerOptions())
    await broker.connect(timeout=5)
    await broker.declare_reports([ReportQueue(_QUEUE)])
    redactor = Redactor([way.redact] if way.redact else [])
    lines = RunLines(broker, SystemClock(), worker="w", timeout=5, redactor=redactor, most=way.most)
    handler = logging.FileHandler(os.devnull)
    handler.setFormatter(logging.Formatter(_FORMAT))
    capture = None
    if way.level is not None:
        capture = LogCapture(KeptRuns(lines), CaptureSettings(way.level, most=way.most))
        capture.install()
    if way.has_handler:
        logging.getLogger().addHandler(handler)
    _log.setLevel(logging.INFO if way.is_logged else logging.WARNING)
    current_context.set(_context())
    gc.collect()
    try:
        await _log_lines(way.text, _WARM, lines)
        began = time.process_time()
        await _log_lines(way.text, count, lines)
        return (time.process_time() - began) / count * 1e6
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
        if capture is not None:
            capture.remove()
        await lines.aclose()
        await broker.aclose()


async def _log_lines(text: str, count: int, lines: RunLines) -> None:
    for start in range(0, count, _BATCH):
        for number in range(start, start + _BATCH):
            _log.info(text, number)
        await lines.send(_QUEUE)


def _context() -> Context:
    envelope = Envelope(id="order", task="charge", store=Invitation(id="order", token=1, reports=_QUEUE))
    return Context(envelope, job_id="order", max_attempts=1, queue="orders", redelivered=False)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log_lines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="number of runs of each way, in turns")
    parser.add_argument("--count", type=int, default=20_000, help="lines per run; a multiple of 500")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
