"""A tenant's rule over a window with very many figures: all of them count."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import JobStore
from taskmq.model.history.alerts import AlertRule
from taskmq.model.history.rollups import MINUTE, QUARTER
from taskmq.scheduler.alerts.figures import AlertFigures
from taskmq.scheduler.signals import LiveWorkers
from tests.servers import PostgreSQL
from tests.unit.app_kit import new_url

# With both tenants more than 200,000 figures.
_TASKS = 1_700
_NOW = 2_000_000 * QUARTER + MINUTE + 30_000
_BEGIN = _NOW // MINUTE * MINUTE - 60 * MINUTE
_FILL = """
with recursive task(n) as (select 1 union all select n + 1 from task where n < {tasks}),
     step(n) as (select 0 union all select n + 1 from step where n < 60)
insert into taskmq.rollup (minute, task, queue, tenant, figures)
select {begin} + step.n * {minute}, 'task-' || task.n, 'work', tenant.name, '[{{"dead":1}},{{}},{{}}]'
from task, step, (select 'acme' as name union all select 'other') tenant"""
_SUM = """
insert into taskmq.rollup_sum (kind, minute, task, queue, tenant, figures)
select 2, minute / {quarter} * {quarter}, task, queue, tenant, '[{{"dead":' || count(*) || '}},{{}},{{}}]'
from taskmq.rollup group by minute / {quarter} * {quarter}, task, queue, tenant"""


def _statements(tasks: int) -> list[str]:
    names = {"begin": _BEGIN, "tasks": tasks, "minute": MINUTE, "quarter": QUARTER}
    return [_FILL.format(**names), _SUM.format(**names)]


async def _failures(store: JobStore) -> dict[str, float] | None:
    rule = AlertRule(name="fails", metric="failures", threshold=0, tenant="acme", window=3_600)
    figures = AlertFigures(TaskMQ(new_url()), store, LiveWorkers(), [rule], now=_NOW)
    return await figures.samples(rule, ())


@pytest.mark.nightly(
    "tests/integration/test_alert_figures.py::test_a_rule_of_a_tenant_counts_all_figures_on_postgres"
)
@pytest.mark.real_time
async def test_a_rule_of_a_tenant_counts_all_figures_of_a_large_window(tmp_path: Path) -> None:
    async with TaskMQ(new_url(), store=f"sqlite:///{tmp_path}/jobs.db") as app:
        store = app.sessions.store()
        await store.now_ms()
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
            for statement in _statements(_TASKS):
                connection.execute(statement.replace("taskmq.", ""))

        assert await _failures(store) == {"": 61 * _TASKS}


@pytest.mark.real_time
async def test_a_rule_of_a_tenant_counts_all_figures_on_postgres(
    job_store_url: str, postgres_server: PostgreSQL
) -> None:
    for statement in _statements(_TASKS):
        postgres_server.sql(statement, url=job_store_url)

    async with TaskMQ(new_url(), store=job_store_url) as app:
        assert await _failures(app.sessions.store()) == {"": 61 * _TASKS}
