"""Lists and single jobs among millions of ended jobs, also while a day is dropped."""

import asyncio
import random
import time
from typing import Any, Final

from benchmarks.job_store.figures import Figures, percentile
from benchmarks.job_store.loading import DAYS, TASKS, TENANTS, connected
from benchmarks.job_store.stage import Stage
from taskmq.contracts.jobs import Prunable
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq_sql.postgres.lists import first_id

_DAY: Final = 86_400_000
_FAILED: Final = frozenset({JobState.FAILED})
_SUCCEEDED: Final = frozenset({JobState.SUCCEEDED})
_NEXT: Final = "select id from taskmq.job_history where id >= $1 order by id limit 1"
_ROWS: Final = "select sum(reltuples) from pg_class where relkind = 'r' and relname ~ '^job_history_2'"
_KEYS: Final = """
select t.name, k.key from (select tenant, key from taskmq.job_key limit $1) k
join taskmq.tenant t on t.id = k.tenant"""


async def lists(stage: Stage, *, each: int, chance: random.Random) -> Figures:
    """Measure the newest 50 jobs of every indexed filter, for tenants of all sizes, and jobs by id and by key."""
    jobs, figures, worst = stage.app.jobs, Figures(), 0.0
    for name, which in _filters(chance).items():
        taken: list[float] = []
        for _ in range(each):
            chosen = which()
            began = time.perf_counter()
            await jobs.alist(chosen)
            taken.append(time.perf_counter() - began)
        figures[f"{name}, p50 ms"] = percentile(taken, 0.5) * 1e3
        figures[f"{name}, p95 ms"] = percentile(taken, 0.95) * 1e3
        worst = max(worst, percentile(taken, 0.95) * 1e3)
    ids, keys = await _some(stage, each, chance)
    for name, calls in {
        "get": [(jobs.aget, job_id) for job_id in ids],
        "find by key": [(jobs.alist, JobFilter(tenant=tenant, keys=(key,))) for tenant, key in keys],
        "count of a tenant's failed": [(jobs.acount, JobFilter(tenant=_tenant(chance), states=_FAILED)) for _ in ids],
    }.items():
        taken = []
        for call, argument in calls:
            began = time.perf_counter()
            await call(argument)
            taken.append(time.perf_counter() - began)
        figures[f"{name} p50 ms"] = percentile(taken, 0.5) * 1e3
        figures[f"{name} p95 ms"] = percentile(taken, 0.95) * 1e3
    return {"worst p95 ms": worst, **figures}


async def day_dropped(stage: Stage, *, keep: int, chance: random.Random) -> Figures:
    """Measure dropping the earliest day while lists are read one after the other."""
    store = stage.app.sessions.store()
    assert isinstance(store, Prunable)
    async with connected(stage.store) as (connection,):
        rows = await _rows_of_days(connection)
        is_dropping, taken = True, []

        async def read() -> None:
            filters = list(_filters(chance).values())
            while is_dropping:
                began = time.perf_counter()
                await stage.app.jobs.alist(chance.choice(filters)())
                taken.append(time.perf_counter() - began)

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.5)
        began, count = time.perf_counter(), len(taken)
        await store.prune(keep_days=keep)
        seconds = time.perf_counter() - began
        is_dropping = False
        await reading
        dropped = rows - await _rows_of_days(connection)
    beside = taken[count:]
    return {
        "seconds": seconds,
        "rows": float(dropped),
        "lists beside it": len(beside),
        "lists beside it, p95 ms": percentile(beside, 0.95) * 1e3,
        "lists beside it, worst ms": max(beside) * 1e3,
    }


async def _rows_of_days(connection: Any) -> int:
    return int(await connection.fetchval(_ROWS))


def _filters(chance: random.Random) -> dict[str, Any]:
    def day() -> tuple[int, int]:
        now = int(time.time()) * 1000
        first = now - chance.randrange(2, DAYS - 2) * _DAY
        return first, first + _DAY

    def a_day() -> JobFilter:
        first, last = day()
        return JobFilter(tenant=_tenant(chance), submitted_from=first, submitted_before=last)

    return {
        "none": JobFilter,
        "tenant": lambda: JobFilter(tenant=_tenant(chance)),
        "tenant, task": lambda: JobFilter(tenant=_tenant(chance), tasks=(_task(chance),)),
        "tenant, failed": lambda: JobFilter(tenant=_tenant(chance), states=_FAILED),
        "failed": lambda: JobFilter(states=_FAILED),
        "succeeded": lambda: JobFilter(states=_SUCCEEDED),
        "tenant, task, failed": lambda: JobFilter(tenant=_tenant(chance), tasks=(_task(chance),), states=_FAILED),
        "tenant, one day": a_day,
    }


def _tenant(chance: random.Random) -> str:
    return f"t{int(TENANTS * chance.random() ** 3)}"


def _task(chance: random.Random) -> str:
    return f"task-{int(TASKS * chance.random() ** 2)}"


async def _some(stage: Stage, count: int, chance: random.Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Return ids of all days, and pairs of tenant and key."""
    async with connected(stage.store) as (connection,):
        now = int(await connection.fetchval("select taskmq.now_ms()"))
        instants = [now - int(chance.random() * (DAYS - 2) * _DAY) - _DAY for _ in range(count)]
        found = [await connection.fetchval(_NEXT, first_id(instant)) for instant in instants]
        rows = await connection.fetch(_KEYS, count)
    return [str(job_id) for job_id in found], [(row["name"], row["key"]) for row in rows]
