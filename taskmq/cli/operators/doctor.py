"""`taskmq doctor`."""

import asyncio
import platform
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal

from taskmq.app import TaskMQ
from taskmq.cli.exits import FAILED, UNREACHABLE
from taskmq.cli.globals import open_app
from taskmq.cli.output import print_rows
from taskmq.contracts.broker import Diagnosable
from taskmq.contracts.stores import DiagnosableState, Timekeeper
from taskmq.errors import BrokerUnavailable, StateUnavailable
from taskmq.model.topology import PARKING, UNROUTABLE, WorkQueue, dead_letter_queue
from taskmq.model.units import parse_duration

__all__ = ["doctor"]

_TIMEOUT: Final = 10.0
_CLOCK_SECONDS: Final = 2.0
_CLOCK_LIMIT: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Finding:
    level: Literal["ok", "warning", "problem"]
    about: str
    finding: str
    remedy: str = ""


def doctor(*, watch: str | None = None) -> int:
    """Check settings, broker and state; each finding with its remedy. Exit code 1 when there is a problem.

    With --app the app's queues are looked at, too. Nothing is changed.

    Parameters
    ----------
    watch
        Look a second time after that long, for example 30s: shows what is stuck on its way out of a queue.
    """
    app = open_app()
    seconds = 0.0 if watch is None else parse_duration(watch, what="watch").total_seconds()
    findings, code = asyncio.run(_examine(app, seconds))
    columns = ("level", "about", "finding", "remedy")
    print_rows(columns, [{name: getattr(finding, name) for name in columns} for finding in findings])
    return code


async def _examine(app: TaskMQ, watch: float) -> tuple[list[_Finding], int]:
    findings = [_Finding("ok", "python", platform.python_version()), *_settings(app)]
    try:
        async with app:
            findings += [finding async for finding in _broker(app, watch)]
            findings += [finding async for finding in _state(app)]
    except BrokerUnavailable as error:
        findings.append(_Finding("problem", "broker", str(error), "is it running, and is the URL right? --url"))
        return findings, UNREACHABLE
    except StateUnavailable as error:
        findings.append(_Finding("problem", "state", str(error), "is it running, and is the URL right? --state"))
        return findings, UNREACHABLE
    return findings, FAILED if any(finding.level == "problem" for finding in findings) else 0


def _settings(app: TaskMQ) -> list[_Finding]:
    origin = app.sessions.settings.origin
    return [
        _Finding("ok", "settings", f"{key} comes from {source}" if key in ("url", "state") else f"{key}: {source}")
        for key, source in origin.items()
    ] or [_Finding("ok", "settings", "none given: the embedded broker in .taskmq")]


async def _broker(app: TaskMQ, watch: float) -> AsyncIterator[_Finding]:
    broker = app.sessions.current().broker
    await broker.connect(timeout=_TIMEOUT)
    yield _Finding("ok", "broker", broker.address)
    if isinstance(broker, Diagnosable):
        for level, about, finding, remedy in await broker.diagnose(_loads(app), watch=watch):
            yield _Finding(level, about, finding, remedy)
    for entry in await broker.stats([PARKING, UNROUTABLE]):
        if entry.ready:
            yield _Finding(
                "problem",
                entry.queue,
                f"{entry.ready} messages that nobody can run",
                f"taskmq dlq list {entry.queue}; once its cause is gone, taskmq dlq replay {entry.queue}",
            )
    for queue in app.tasks.queues:
        stats = {entry.queue: entry for entry in await broker.stats([*queue.physical, dead_letter_queue(queue.name)])}
        letters = stats.pop(dead_letter_queue(queue.name), None)
        if letters and letters.ready:
            yield _Finding("warning", queue.name, f"{letters.ready} dead letters", f"taskmq dlq groups {queue.name}")
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
    state = app.sessions.current().state
    if state is None:
        yield _Finding("warning", "state", "none: no results, no beat", "TaskMQ(..., state=...) or $TASKMQ_STATE")
        return
    try:
        async with asyncio.timeout(_TIMEOUT):
            await state.results.get("doctor")
    except (StateUnavailable, TimeoutError) as error:
        raise StateUnavailable(f"{state.address}: {str(error) or 'no answer'}") from error
    yield _Finding("ok", "state", state.address)
    if isinstance(state, DiagnosableState):
        for level, about, finding, remedy in await state.diagnose():
            yield _Finding(level, about, finding, remedy)
    if isinstance(state, Timekeeper):
        yield _clock(await state.server_now_ms() - app.sessions.clock.now_ms())


def _clock(offset: int) -> _Finding:
    seconds = abs(offset) / 1000
    if seconds < _CLOCK_SECONDS:
        return _Finding("ok", "state", f"clock: within {_CLOCK_SECONDS:g} s of this host's")
    side = "ahead of" if offset > 0 else "behind"
    return _Finding(
        "problem" if seconds >= _CLOCK_LIMIT else "warning",
        "state",
        f"clock: {seconds:.0f} s {side} this host's: expiry, schedules and leases are off by that",
        "let NTP (chrony, systemd-timesyncd) set the clock on every host",
    )


def _loads(app: TaskMQ) -> dict[WorkQueue, float | None]:
    """How long messages of each queue may stay in a worker's hands; None where a task has no time limit."""
    loads: dict[WorkQueue, float | None] = {}
    for queue in app.tasks.queues:
        limits = [task.plan.timeout for task in app.tasks.values() if task.queue == queue.name]
        known = [limit for limit in limits if limit is not None]
        loads[queue] = max(known) if known and len(known) == len(limits) else None
    return loads
