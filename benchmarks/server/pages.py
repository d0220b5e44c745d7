"""Requests of the dashboard's pages among millions of ended jobs.

Besides the jobs, the database gets figures by the minute and failures, as schedulers would have recorded them, and
labels of one in ten of the newest jobs.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from benchmarks.job_store.loading import connected
from benchmarks.job_store.stage import Stage
from taskmq import TaskMQ
from taskmq.contracts.history import history_of
from taskmq.model.history.rollups import Buckets, Rollup, RollupKey

_DAYS: Final = 7
_LABELLED_DAYS: Final = 2
_SECONDS: Final = (0.02, 0.02, 0.03, 0.05, 0.2)
_FAILED: Final = "status:failed,expired,upstream_failed"
_FILTERS: Final = {
    "all": "",
    "last night's failed": "status:failed created:>-24h",
    "last night's failed of a tenant, by error": "status:failed created:>-24h tenant:t3 error:ValueError",
    "an error that is rare": "error:KeyError",
    "a tenant": "tenant:t3",
    "a small tenant": "tenant:t900",
    "a task": "task:task-1",
    "tasks by their first letters": "task:task-1*",
    "not so common a state": "status:cancelled",
    "a label": "label.team:ops",
    "a label that is rare": "label.team:none",
    "an id": "id:key-1",
    "slow ones": "duration:>5s",
    "tried again": "attempt:>=3",
    "an hour": "created:>-3h",
}
_TILES: Final = (
    "status:running", "status:queued,dispatched", "status:queued,scheduled,dispatched due:<-1m", "status:retrying",
    "status:scheduled,held,waiting", f"{_FAILED} created:>-24h", "status:succeeded created:>-24h",
)  # fmt: skip
_QUARTER: Final = "minute / 900000 * 900000"
# Sums over tenants, over quarters of an hour, and over both.
_SUMS: Final = ((1, "minute", "''"), (2, _QUARTER, "tenant"), (3, _QUARTER, "''"))
_JOBS: Final = ("succeeded", "failed", "retried")
_RUNS: Final = ("run_p50", "run_p95", "run_p99")
_ALL: Final = (*_JOBS, "failure_rate", "wait_p50", "wait_p95", "wait_p99", *_RUNS)


def pages() -> Mapping[str, str]:
    """Return the requests by their labels."""
    found: dict[str, str] = {
        "overview: counts": _path("/jobs/counts", [("filter", one) for one in _TILES]),
        "overview: failed": _path("/jobs", [("filter", _FAILED), ("limit", 8), ("cursor", "")]),
        "overview: running": _path("/jobs", [("filter", "status:running"), ("limit", 8), ("cursor", "")]),
        "overview: figures": _figures(60, 60, _JOBS + _RUNS),
        "overview: schedules": _path("/schedules", []),
    }
    for name, text in _FILTERS.items():
        found[f"jobs: {name}"] = _path("/jobs", [("filter", text), ("limit", 50), ("cursor", "")])
        found[f"count: {name}"] = _path("/jobs/count", [("filter", text)])
    for name, minutes, step in (("an hour", 60, 60), ("a day", 1_440, 900), ("a week", 10_080, 7_200)):
        found[f"figures: {name}"] = _figures(minutes, step, _ALL)
        found[f"figures: {name} of a task"] = _figures(minutes, step, _ALL, ("task", "task-1"))
        found[f"tasks: {name}"] = _path("/rollups", [("since", _since(minutes))])
    for name, more in (("all", []), ("a task", [("task", "task-1")]), ("a rare error", [("error", "KeyError")])):
        found[f"failures: {name}"] = _path("/failures", [*more, ("limit", 50)])
    return found


async def add_history(stage: Stage, app: TaskMQ) -> None:
    """Add figures, failures and labels of the newest jobs, unless an earlier run has."""
    began = time.perf_counter()
    async with connected(stage.store) as (connection,):
        if await connection.fetchval("select count(*) from taskmq.rollup"):
            return
        now = int(await connection.fetchval("select taskmq.now_ms()"))
        since = now - _DAYS * 86_400_000
        template = await _template(app, connection)
        await connection.execute(
            "insert into taskmq.rollup (minute, task, queue, tenant, figures) "
            "select distinct h.ended / 60000 * 60000, k.name, q.name, t.name, $2 from taskmq.job_history h "
            "join taskmq.task k on k.id = h.task join taskmq.queue q on q.id = h.queue "
            "join taskmq.tenant t on t.id = h.tenant where h.ended >= $1",
            since,
            template,
        )
        for kind, minute, tenant in _SUMS:
            await connection.execute(
                "insert into taskmq.rollup_sum (kind, minute, task, queue, tenant, figures) "
                f"select distinct {kind}, {minute}, task, queue, {tenant}, $1 from taskmq.rollup",
                template,
            )
        await connection.execute(
            "insert into taskmq.run_failure "
            "(at, job, event, task, queue, tenant, worker, attempt, seconds, error, reason) "
            "select h.ended, h.id::text, 'dead', k.name, 'default', t.name, 'w1', 1, 0.5, 'ValueError', '' "
            "from taskmq.job_history h join taskmq.task k on k.id = h.task join taskmq.tenant t on t.id = h.tenant "
            "where h.ended >= $1 and h.state = 6 order by h.ended",
            since,
        )
        await connection.execute(
            "insert into taskmq.job_detail (id, detail) "
            """select id, '{"labels":{"team":"ops"}}' from taskmq.job_history """
            "where ended >= $1 and get_byte(uuid_send(id), 14) < 26",
            now - _LABELLED_DAYS * 86_400_000,
        )
        for table in ("rollup", "rollup_sum", "run_failure", "job_detail"):
            await connection.execute(f"vacuum analyze taskmq.{table}")
            count = await connection.fetchval(f"select count(*) from taskmq.{table}")
            print(f"{count:,} rows of {table}", file=sys.stderr)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


async def _template(app: TaskMQ, connection: Any) -> str:
    """Return the figures of a minute in the store's encoding."""
    ran, waited = Buckets(), Buckets()
    for seconds in _SECONDS:
        ran.add(seconds)
        waited.add(seconds / 10)
    key = RollupKey(0, "template", "default", "")
    rollups = history_of(app.sessions.store()).rollups
    await rollups.add([Rollup(key, {"succeeded": 4, "dead": 1}, waited, ran)])
    found: str = await connection.fetchval("delete from taskmq.rollup where minute = 0 returning figures")
    return found


def _figures(minutes: int, step: int, names: Sequence[str], *more: tuple[str, object]) -> str:
    return _path("/metrics/query", [("metric", ",".join(names)), ("since", _since(minutes)), ("step", step), *more])


def _since(minutes: int) -> str:
    return (datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)).isoformat()


def _path(path: str, query: Sequence[tuple[str, object]]) -> str:
    return f"/api/v1{path}{'?' if query else ''}{urlencode(query)}"
