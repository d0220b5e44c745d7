"""Checks of the features of sent jobs in an app without a state: they work, or are refused by name."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from taskmq import Job, TaskMQ, UnsupportedFeature
from tests.features.feature import PATIENCE, Feature
from tests.servers.waiting import until


async def _check_sends(app: TaskMQ, folder: Path) -> None:
    await _writes(app, folder / "sent", delay=None)


async def _check_delays(app: TaskMQ, folder: Path) -> None:
    await _writes(app, folder / "delayed", delay="200ms")


async def _writes(app: TaskMQ, path: Path, *, delay: str | None) -> None:
    call = app.tasks["write"] if delay is None else app.tasks["write"].options(delay=delay)
    await call.asend(str(path), "sent")
    await until(path.exists, within=timedelta(seconds=PATIENCE))


def _check_refused(
    act: Callable[[TaskMQ, Job[object]], Awaitable[object]],
) -> Callable[[TaskMQ, Path], Awaitable[None]]:
    """Check that something is refused for want of a state."""

    async def check(app: TaskMQ, _: Path) -> None:
        sent = await app.tasks["double"].asend(1)
        with pytest.raises(UnsupportedFeature, match="state"):
            async with asyncio.timeout(PATIENCE):
                await act(app, sent)

    return check


def _send(task: str) -> Callable[[TaskMQ, Path], Awaitable[None]]:
    return _check_refused(lambda app, _: app.tasks[task].asend(1))


BROKER_ALONE = (
    Feature("`send`, retries, priorities, dead letters", _check_sends),
    Feature("delays", _check_delays),
)
NEEDING_STATE = (
    Feature("results", _check_refused(lambda _, job: job.aresult(timeout=1))),
    Feature("cancelling", _check_refused(lambda _, job: job.acancel())),
    Feature("progress", _check_refused(lambda _, job: job.aprogress())),
    Feature("idempotency keys", _send("pay")),
    Feature("concurrency limits", _send("alone")),
    Feature("rate limits", _send("paced")),
    Feature("unique jobs", _check_refused(lambda app, _: app.tasks["single"].options(lane="broker").asend(1))),
)
