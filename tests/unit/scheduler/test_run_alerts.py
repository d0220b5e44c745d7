"""Alerts on runs of workflows, by a real scheduler: each fires and is resolved."""

from typing import Any, Final

import pytest

from taskmq import TaskMQ, Workflow, chain
from taskmq.contracts.jobs import NewInboxRow
from taskmq.model.history.alerts import AlertRule
from taskmq.model.units import to_datetime
from taskmq.scheduler import AlertSettings
from taskmq.schedules.triggers import every
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from tests.coroutines import run_by
from tests.unit.scheduler.stage import START, Process, Stage, play_one, until

_WAITS: Final[dict[str, Any]] = {"ok": {"wait": "go"}}
# The first multiple of ten minutes.
_FIRST: Final = START + 400_000
_FAILS: Final[dict[str, Any]] = {"s": {"workflow": "unknown"}}


def _define(app: TaskMQ) -> None:
    @app.task(name="load", queue="work", retry=None)
    async def load() -> None: ...


def _play(test: Any) -> None:
    play_one(test, _define)


async def _start_scheduler(stage: Stage, **fields: Any) -> Process:
    rule: dict[str, Any] = {"name": "r", "threshold": 0, "channels": ("mailto:a@b.c",), "repeat": 0, **fields}
    await stage.store.history.alerts.put_rule(AlertRule(**rule))
    process = stage.start(alerts=AlertSettings())
    await until(lambda: process.scheduler.not_ready() is None and stage.holds_all(process))
    return process


async def _notices(stage: Stage) -> list[tuple[str, str]]:
    notices = sorted(await stage.store.history.alerts.notices(limit=100), key=lambda notice: notice.at)
    return [(change.kind, change.alert.subject) for notice in notices for change in notice.changes]


async def _signal(stage: Stage, run_id: str) -> None:
    assert await stage.store.runs.send(run_id, NewInboxRow(kind="signal", name="go"))


@run_by(_play)
async def test_a_failed_run_of_a_matching_workflow_raises_an_alert(stage: Stage, /) -> None:
    await _start_scheduler(stage, metric="runs_failed", workflow="night*", each="workflow", window=60)
    driver = RunDriver(stage.store)
    await driver.start(_FAILS, workflow="nightly", tenant="acme")
    await driver.start(_FAILS, workflow="hourly")
    await stage.pass_by(30)
    assert await _notices(stage) == [("firing", "workflow:nightly")]

    await stage.pass_by(60)
    assert await _notices(stage) == [("firing", "workflow:nightly"), ("resolved", "workflow:nightly")]


@run_by(_play)
async def test_a_rule_of_a_tenant_counts_only_its_runs(stage: Stage, /) -> None:
    await _start_scheduler(stage, metric="runs_failed", tenant="acme")
    driver = RunDriver(stage.store)
    await driver.start(_FAILS, workflow="nightly", tenant="other")
    await stage.pass_by(30)
    assert await _notices(stage) == []

    await driver.start(_FAILS, workflow="nightly", tenant="acme")
    await stage.pass_by(30)
    assert await _notices(stage) == [("firing", "")]


@run_by(_play)
async def test_a_scheduled_run_that_does_not_end_in_time_is_late_until_it_ends(stage: Stage, /) -> None:
    process = await _start_scheduler(stage, metric="run_late", threshold=120, each="workflow")
    load: Any = process.app.tasks["load"]
    await process.app.schedules.aadd("nightly", chain(load.s(), load.si()), every("600s"))
    await RunDriver(stage.store).start(_WAITS, workflow="by-hand")
    await stage.pass_by(410)
    await process.app.schedules.abackfill("nightly", to_datetime(_FIRST), to_datetime(_FIRST))
    await stage.pass_by(100)
    assert await _notices(stage) == []
    await stage.pass_by(40)
    assert await _notices(stage) == [("firing", "workflow:nightly")]

    await stage.playing()
    await stage.pass_by(30)
    assert await _notices(stage) == [("firing", "workflow:nightly"), ("resolved", "workflow:nightly")]


@pytest.mark.nightly(
    "tests/unit/scheduler/test_run_alerts.py::test_a_scheduled_run_that_does_not_end_in_time_is_late_until_it_ends"
)
@run_by(_play)
async def test_a_scheduled_run_that_cannot_start_is_late_until_it_starts_and_ends(stage: Stage, /) -> None:
    process = await _start_scheduler(stage, metric="run_late", threshold=60, workflow="report")
    app = process.app

    @app.workflow(name="report", queue="work")
    def report() -> Workflow[None]:
        flow: Workflow[None] = app.tasks["load"].s()
        return flow

    await app.schedules.aadd("reports", report, every("600s"))
    await stage.pass_by(450)
    assert await _notices(stage) == []
    await stage.pass_by(40)
    assert await _notices(stage) == [("firing", "")]

    # The start is refused until the store has the workflow, and then tried again less and less often.
    await app.workflows.store_in(stage.store.runs)
    await stage.pass_by(90)
    assert await _notices(stage) == [("firing", "")]
    await stage.playing()
    await stage.pass_by(30)
    assert await _notices(stage) == [("firing", ""), ("resolved", "")]


@run_by(_play)
async def test_a_run_that_takes_longer_than_usual_raises_an_alert_while_it_runs(stage: Stage, /) -> None:
    await _start_scheduler(stage, metric="run_duration", threshold=2, at_least=3, window=60)
    driver = RunDriver(stage.store)
    for _ in range(3):
        usual = await driver.start(_WAITS, workflow="report")
        await stage.pass_by(40)
        await _signal(stage, usual)
        await stage.pass_by(5)
    await stage.pass_by(60)
    slow = await driver.start(_WAITS, workflow="report")
    await stage.pass_by(75)
    assert await _notices(stage) == []
    await stage.pass_by(30)
    assert await _notices(stage) == [("firing", "")]

    await _signal(stage, slow)
    await stage.pass_by(30)
    assert await _notices(stage) == [("firing", "")]
    await stage.pass_by(60)
    assert await _notices(stage) == [("firing", ""), ("resolved", "")]
