"""Invitations that came to a worker a second time, and jobs that came back from workers before."""

import asyncio
import json
from typing import Any

from taskmq.model.jobs.reports import Report, decode_reports
from taskmq.model.topology import ReportQueue
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, play, send, working
from tests.unit.worker.staged import StagedApp, settle_loop

REPORTS = "taskmq.reports.shop.0"
QUEUE = "work.jobs"


async def invite(app: StagedApp, label: str, *, task: str = "gated", **store: Any) -> None:
    invitation = {"id": label, "token": 7, "reports": REPORTS, "proof": "p", **store}
    body = {"task": task, "id": label, "args": [label], "store": invitation}
    await app.put(json.dumps(body).encode(), queue=QUEUE, job_id=label)


async def redeliver(app: StagedApp) -> None:
    """Take what is in the queue, and give it back."""
    await app.messages(QUEUE)


async def declare_reports(app: StagedApp) -> None:
    """Make the queue of reports, as the scheduler does."""
    await app.sessions.current().broker.declare_reports([ReportQueue(REPORTS)])


async def reports(app: StagedApp) -> list[Report]:
    await declare_reports(app)
    return [report for message in await app.messages(REPORTS) for report in decode_reports(message.body)]


async def settle(app: StagedApp, *, kinds: int) -> list[str]:
    """The kinds of reports, once there are so many."""
    found: list[Report] = []
    for _ in range(200):
        if len(found := await reports(app)) >= kinds:
            return [report.kind for report in found]
        await asyncio.sleep(0.001)
    raise AssertionError(f"there are {found}")


@run_by(play)
async def test_a_redelivered_invitation_is_returned_to_the_scheduler_and_not_run(
    app: StagedApp, gate: Gate, /
) -> None:
    gate.open.set()
    await invite(app, "again")
    await invite(app, "stranger", task="unknown")
    await redeliver(app)

    async with working(app):
        await settle(app, kinds=2)
        found = await reports(app)
        assert (await app.stats(QUEUE)).ready == 0

    assert gate.started == []
    assert found == [
        Report(id=name, token=7, proof="p", kind="interrupted", worker="w1", redelivered=True)
        for name in ("again", "stranger")
    ]
    assert f"acked {QUEUE}" in app.story()


@run_by(play)
async def test_a_redelivered_message_of_a_sent_job_runs_again(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    await send(app, "a")
    await app.messages("work")

    async with working(app):
        await settle_loop()
        assert gate.finished == ["a"]


@run_by(play)
async def test_the_start_of_a_job_that_came_back_is_reported_before_its_run(app: StagedApp, gate: Gate, /) -> None:
    await invite(app, "a", crashes=0)

    async with working(app):
        assert await settle(app, kinds=1) == ["started"]
        for _ in range(50):
            await settle_loop()
        assert gate.started == ["a"]
        gate.open.set()
        assert await settle(app, kinds=2) == ["started", "succeeded"]


@run_by(play)
async def test_a_job_at_its_crash_limit_fails_without_a_run(app: StagedApp, gate: Gate, /) -> None:
    await invite(app, "a", crashes=3)

    async with working(app):
        assert await settle(app, kinds=1) == ["failed"]
        (report,) = await reports(app)

    assert gate.started == []
    assert report.error is not None
    assert report.error.type_name == "taskmq.errors.WorkerLost"
    assert "was started 3 times" in report.error.message


@run_by(play)
async def test_the_last_start_of_a_job_is_alone_in_its_worker(app: StagedApp, gate: Gate, /) -> None:
    await invite(app, "poison", crashes=2)
    async with working(app, concurrency=4):
        await settle(app, kinds=1)
        for _ in range(50):
            await settle_loop()
        await send(app, "b", "c")
        for _ in range(50):
            await settle_loop()
        assert gate.started == ["poison"]
        gate.open.set()
        for _ in range(50):
            await settle_loop()
        assert gate.finished == ["poison", "b", "c"]


@run_by(play)
async def test_a_job_that_crashed_once_runs_beside_others(app: StagedApp, gate: Gate, /) -> None:
    await invite(app, "suspect", crashes=1)
    async with working(app, concurrency=4):
        await settle(app, kinds=1)
        await send(app, "b")
        for _ in range(50):
            await settle_loop()
        assert sorted(gate.started) == ["b", "suspect"]
        gate.open.set()


@run_by(play)
async def test_a_worker_without_a_crash_limit_runs_every_returned_job(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    await invite(app, "a", crashes=9)
    async with working(app, max_crashes=0):
        assert await settle(app, kinds=2) == ["started", "succeeded"]
