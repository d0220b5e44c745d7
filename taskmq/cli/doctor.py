"""`taskmq doctor`."""

import asyncio
import platform
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal

from taskmq.app import TaskMQ
from taskmq.broker import Diagnosable
from taskmq.cli.exits import FAILED, UNREACHABLE
from taskmq.cli.globals import open_app
from taskmq.cli.output import print_rows
from taskmq.errors import BrokerUnavailable, StateUnavailable
from taskmq.topology import PARKING, UNROUTABLE, dead_letter_queue

__all__ = ["doctor"]

_TIMEOUT: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Finding:
    level: Literal["ok", "warning", "problem"]
    about: str
    finding: str
    remedy: str = ""


def doctor() -> int:
    """Check settings, broker and state; each finding with its remedy. Exit code 1 when there is a problem.

    With --app the app's queues are looked at, too.
    """
    app = open_app()
    findings, code = asyncio.run(_examine(app))
    columns = ("level", "about", "finding", "remedy")
    print_rows(columns, [{name: getattr(finding, name) for name in columns} for finding in findings])
    return code


async def _examine(app: TaskMQ) -> tuple[list[_Finding], int]:
    findings = [_Finding("ok", "python", platform.python_version()), *_settings(app)]
    try:
        async with app:
            findings += [finding async for finding in _broker(app)]
            findings += [finding async for finding in _state(app)]
    except BrokerUnavailable as error:
        findings.append(_Finding("problem", "broker", str(error), "is it running, and is the URL right? --url"))
        return findings, UNREACHABLE
    except StateUnavailable as error:
        findings.append(_Finding("problem", "state", str(error), "is it running, and is the URL right? --state"))
        return findings, UNREACHABLE
    return findings, FAILED if any(finding.level == "problem" for finding in findings) else 0


def _settings(app: TaskMQ) -> list[_Finding]:
    origin = app.settings.origin
    return [
        _Finding("ok", "settings", f"{key} comes from {source}" if key in ("url", "state") else f"{key}: {source}")
        for key, source in origin.items()
    ] or [_Finding("ok", "settings", "none given: the embedded broker in .taskmq")]


async def _broker(app: TaskMQ) -> AsyncIterator[_Finding]:
    broker = app.session().broker
    await broker.connect(timeout=_TIMEOUT)
    yield _Finding("ok", "broker", broker.address)
    if isinstance(broker, Diagnosable):
        for level, about, finding, remedy in await broker.diagnose():
            yield _Finding(level, about, finding, remedy)
    for entry in await broker.stats([PARKING, UNROUTABLE]):
        if entry.ready:
            yield _Finding(
                "problem",
                entry.queue,
                f"{entry.ready} messages that nobody can run",
                f"taskmq dlq list {entry.queue}",
            )
    for queue in app.queues:
        stats = {entry.queue: entry for entry in await broker.stats([*queue.physical, dead_letter_queue(queue.name)])}
        letters = stats.pop(dead_letter_queue(queue.name), None)
        if letters and letters.ready:
            yield _Finding("warning", queue.name, f"{letters.ready} dead letters", f"taskmq dlq list {queue.name}")
        if not stats:
            yield _Finding("warning", queue.name, "the queue does not exist yet", "start a worker")
        elif sum(entry.consumers for entry in stats.values()) == 0:
            waiting = sum(entry.ready for entry in stats.values())
            yield _Finding(
                "problem" if waiting else "warning",
                queue.name,
                f"no consumer, {waiting} messages wait",
                "start a worker",
            )


async def _state(app: TaskMQ) -> AsyncIterator[_Finding]:
    state = app.session().state
    if state is None:
        yield _Finding("warning", "state", "none: no results, no beat", "TaskMQ(..., state=...) or $TASKMQ_STATE")
        return
    try:
        async with asyncio.timeout(_TIMEOUT):
            await state.results.get("doctor")
    except (StateUnavailable, TimeoutError) as error:
        raise StateUnavailable(f"{state.address}: {str(error) or 'no answer'}") from error
    yield _Finding("ok", "state", state.address)
