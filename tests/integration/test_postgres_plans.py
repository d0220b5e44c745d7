"""Plans of the hot statements, which connections cache: by keys, from an empty table as well as from a full one."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.model.units import DAY_MS
from taskmq.testing.job_store_suite.driver import JobDriver, report
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq_sql import schedules
from taskmq_sql.jobs import claims
from taskmq_sql.jobs.partitions import day_of
from taskmq_sql.postgres import dependencies, firings, quotas, reports, statements, store, submission, transactions
from taskmq_sql.postgres.runs import step_jobs
from taskmq_sql.postgres.statements.dispatch import CONFIRM, FIRE, FORGET
from taskmq_sql.postgres.statements.reports import FORGOTTEN
from taskmq_sql.postgres.statements.settings import HOT, WALKS
from taskmq_sql.postgres.statements.submission import SUBMIT, SUBMIT_ALIKE, SUBMIT_AT_ONCE
from taskmq_sql.postgres.store import PostgresJobStore
from taskmq_sql.postgres.upkeep.days import days_of
from taskmq_sql.runs import inbox, places, transitions, values
from taskmq_sql.runs import quotas as run_quotas
from tests.house.tree import public_names
from tests.servers.waiting import until

pytestmark = pytest.mark.real_time

_LARGE: Final = {
    "claim", "dependency", "gated", "job", "job_body", "job_key", "ready", "timer", "schedule", "schedule_due",
    "occurrence", "unique_key", "quota_usage", "run", "run_step", "run_inbox", "run_place", "run_timer",
}  # fmt: skip
_STATEMENTS: Final[dict[str, str]] = {
    **{
        name: statement
        for found in iter_modules(statements.__path__)
        for module in [import_module(f"{statements.__name__}.{found.name}")]
        for name in public_names(module)
        if isinstance(statement := getattr(module, name), str)
    },
    **{f"SUBMIT_{'_'.join(map(str, which))}": statement for which, statement in SUBMIT.items()},
    **{f"SUBMIT_ALIKE_{which}": statement for which, statement in SUBMIT_ALIKE.items()},
    **{f"SUBMIT_AT_ONCE_{which}": statement for which, statement in SUBMIT_AT_ONCE.items()},
    **{f"FORGOTTEN_{place}": statement for place, statement in enumerate(FORGOTTEN)},
    **{f"SCHEDULES_{name}": getattr(firings, name) for name in ("DUE", "OCCUR", "TURN")},
    **{
        f"SCHEDULES{name}": getattr(schedules, name)
        for name in ("_LOAD", "_ALIVE", "_MAKE", "_CHANGE", "_REMOVE", "_TAKE_OUT", "_PLACE")
    },
    "EXISTING_SUBMITTED": submission._EXISTING,  # pyright: ignore[reportPrivateUsage]
    "EXISTING_KEYS": submission._KEYS,  # pyright: ignore[reportPrivateUsage]
    "FREE_KEYS": submission._FREE_KEYS,  # pyright: ignore[reportPrivateUsage]
    "UNIQUE_LOCK": submission._LOCK_KEYS,  # pyright: ignore[reportPrivateUsage]
    "UNIQUE_HOLDER": submission._HOLDER,  # pyright: ignore[reportPrivateUsage]
    "UNIQUE_TAKE": submission._TAKE_KEYS,  # pyright: ignore[reportPrivateUsage]
    "QUOTAS_QUEUED": quotas._QUEUED,  # pyright: ignore[reportPrivateUsage]
    "QUOTAS_UNDER_WAY": quotas._UNDER_WAY,  # pyright: ignore[reportPrivateUsage]
    "QUOTAS_DETAILS": quotas._DETAILS,  # pyright: ignore[reportPrivateUsage]
    "QUOTAS_LOCK": quotas._LOCK,  # pyright: ignore[reportPrivateUsage]
    "QUOTAS_WRITE": quotas._WRITE,  # pyright: ignore[reportPrivateUsage]
    "GET": store._GET,  # pyright: ignore[reportPrivateUsage]
    "FIND_KEY": store._FIND_KEY,  # pyright: ignore[reportPrivateUsage]
    "UPSTREAM_LIVE": dependencies._LIVE,  # pyright: ignore[reportPrivateUsage]
    "UPSTREAM_MARK": dependencies._MARK,  # pyright: ignore[reportPrivateUsage]
    "UPSTREAM_WAIT": dependencies._WAIT,  # pyright: ignore[reportPrivateUsage]
    "UPSTREAM_ENDED": dependencies._ENDED,  # pyright: ignore[reportPrivateUsage]
    "UPSTREAM_SETTLE": dependencies._SETTLE,  # pyright: ignore[reportPrivateUsage]
    "UPSTREAM_LEAVE": dependencies._LEAVE_UPSTREAM,  # pyright: ignore[reportPrivateUsage]
    "UPSTREAM_OF": dependencies._UPSTREAM_OF,  # pyright: ignore[reportPrivateUsage]
    "STILL_WAITING": dependencies._STILL_WAITING,  # pyright: ignore[reportPrivateUsage]
    "WAITING_JOBS": dependencies._WAITING_JOBS,  # pyright: ignore[reportPrivateUsage]
    "CLAIMS_KEEP": claims._KEEP_OF,  # pyright: ignore[reportPrivateUsage]
    "CLAIMS_LOCK": claims._LOCK_OF,  # pyright: ignore[reportPrivateUsage]
    "CLAIMS_FREE": claims._FREE_OF,  # pyright: ignore[reportPrivateUsage]
    "ENDED": reports._ENDED,  # pyright: ignore[reportPrivateUsage]
    "RUN_LOCK": transitions._LOCK,  # pyright: ignore[reportPrivateUsage]
    "RUN_SAVE_READ": transitions._SAVE_READ,  # pyright: ignore[reportPrivateUsage]
    "RUN_EXIST": transitions._EXIST,  # pyright: ignore[reportPrivateUsage]
    "RUN_SAVE": transactions._with_columns(transitions._SAVE),  # pyright: ignore[reportPrivateUsage]
    "RUN_INBOX": inbox._READ_ROWS,  # pyright: ignore[reportPrivateUsage]
    "RUN_INBOX_ALONE": inbox._READ_ALONE,  # pyright: ignore[reportPrivateUsage]
    "RUN_INBOX_APPLIED": inbox._APPLIED,  # pyright: ignore[reportPrivateUsage]
    "RUN_PENDING": inbox._PENDING,  # pyright: ignore[reportPrivateUsage]
    "RUN_TIMERS_DUE": inbox._DUE,  # pyright: ignore[reportPrivateUsage]
    "RUN_TIMERS_FIRED": inbox._FIRED,  # pyright: ignore[reportPrivateUsage]
    "RUN_TIMERS_NEXT": inbox._NEXT,  # pyright: ignore[reportPrivateUsage]
    "RUN_PLACES_LEAVE": places._LEAVE,  # pyright: ignore[reportPrivateUsage]
    "RUN_PLACES_ENTER": transactions._with_columns(places._ENTER),  # pyright: ignore[reportPrivateUsage]
    "RUN_PLACES_LOAD": places._LOAD,  # pyright: ignore[reportPrivateUsage]
    "RUN_PLACES_NEXT": places._NEXT,  # pyright: ignore[reportPrivateUsage]
    "RUN_PLACES_TAKE": places._TAKE,  # pyright: ignore[reportPrivateUsage]
    "RUN_STEPS": transactions._with_columns(values._STEPS),  # pyright: ignore[reportPrivateUsage]
    "RUN_STEPS_WRITE": transactions._with_columns(values._WRITE),  # pyright: ignore[reportPrivateUsage]
    "RUN_CHILDREN": values._CHILDREN_AFTER,  # pyright: ignore[reportPrivateUsage]
    "RUN_VALUE": values._VALUE,  # pyright: ignore[reportPrivateUsage]
    "RUN_VALUES_OF": transactions._with_columns(values._VALUES_OF),  # pyright: ignore[reportPrivateUsage]
    "RUN_VALUES": values._VALUES,  # pyright: ignore[reportPrivateUsage]
    "RUN_VALUES_SIZE": values._SIZE,  # pyright: ignore[reportPrivateUsage]
    "RUN_QUOTAS_LOCK": run_quotas._LOCK,  # pyright: ignore[reportPrivateUsage]
    "RUN_QUOTAS_FIND": run_quotas._FIND,  # pyright: ignore[reportPrivateUsage]
    "RUN_QUOTAS_ADD": transactions._with_columns(run_quotas._ADD),  # pyright: ignore[reportPrivateUsage]
    "RUN_QUOTAS_WRITE": transactions._with_columns(run_quotas._WRITE),  # pyright: ignore[reportPrivateUsage]
    "RUN_JOBS_LIVE": step_jobs._LIVE,  # pyright: ignore[reportPrivateUsage]
}
_WALKED: Final = {
    "JOB_ACTIONS": store._ACTIONS,  # pyright: ignore[reportPrivateUsage]
    "JOB_ATTEMPTS": store._ATTEMPTS,  # pyright: ignore[reportPrivateUsage]
    "JOB_EVENTS": store._EVENTS,  # pyright: ignore[reportPrivateUsage]
    "FIND_KEYS": store._FIND_KEYS,  # pyright: ignore[reportPrivateUsage]
}
_DAY: Final = re.compile(r"(job_history|event|attempt)_\d+")
_CHANGED: Final = 400
_UPDATES: Final = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'taskmq.job'::regclass"
# Queries for the front of each lane, and for the first run with a row, read an index in order.
_BY_ORDER: Final = {("LANES", "ready"), ("RUN_PENDING", "run_inbox")}
_FILL: Final = """
insert into taskmq.job (id, due, tenant, queue, task, priority, state, body)
select gen_random_uuid(), n, 1, 1, 1, 5, 1, '{}' from generate_series(1, 5000) n;
insert into taskmq.ready (queue, priority, tenant, due, id) select queue, priority, tenant, due, id from taskmq.job;
insert into taskmq.schedule (next_at, shard, is_code, app, name, definition, record)
select n, n % 256, false, 'shop', n::text, '', '' from generate_series(1, 5000) n;
insert into taskmq.schedule_due (shard, next_at, id) select shard, next_at, id from taskmq.schedule;
insert into taskmq.occurrence (schedule, instant, run, at, kind) select 1, n, '', n, 'due'
from generate_series(1, 5000) n;
insert into taskmq.timer (shard, due, id) select n % 64, n, gen_random_uuid() from generate_series(1, 5000) n;
insert into taskmq.gated (id, due, queue, tenant, partition, priority, gate)
select gen_random_uuid(), n, 1, 1, 0, 5, n::text from generate_series(1, 5000) n;
insert into taskmq.job_key (tenant, key, id, fingerprint)
select 1, n::text, gen_random_uuid(), '' from generate_series(1, 5000) n;
insert into taskmq.quota_usage (name, day, jobs, bytes, used_until)
select n::text, 1, 1, 1, 0 from generate_series(1, 5000) n;
insert into taskmq.unique_key (name, until) select n::text, n from generate_series(1, 5000) n;
insert into taskmq.claim (name, place, job, token, fence, ttl)
select n::text, 0, gen_random_uuid(), 1, n, 1000 from generate_series(1, 5000) n;
insert into taskmq.dependency (upstream, dependent, condition)
select gen_random_uuid(), gen_random_uuid(), 1 from generate_series(1, 5000) n;
insert into taskmq.run (id, tenant, workflow, version, state, record)
select gen_random_uuid(), '', '', '', 1, '' from generate_series(1, 5000) n;
insert into taskmq.run_step (run, name, child, record) select id, 'a', -1, '' from taskmq.run;
insert into taskmq.run_inbox (run) select id from taskmq.run;
insert into taskmq.run_timer (at, generation, run, step) select 1, 1, id, 'a' from taskmq.run;
insert into taskmq.run_place (run, tenant, workflow, created, generation, most)
select id, '', 'w', 1, 0, 1 from taskmq.run;
analyze"""


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _is_good(name: str, node: dict[str, Any]) -> bool:
    table = node.get("Relation Name")
    match node["Node Type"]:
        case "Nested Loop":
            # Each row of one side compared with each of the other one.
            return " = " not in node.get("Join Filter", "")
        case "ModifyTable" | "Tid Scan":
            return True
        case "Index Scan" | "Index Only Scan" | "Bitmap Heap Scan":
            is_by_key = "Index Cond" in node or "Recheck Cond" in node
            is_large = table in _LARGE or _DAY.fullmatch(str(table))
            return not is_large or is_by_key or (name, table) in _BY_ORDER
        case _:
            return table not in _LARGE and not _DAY.fullmatch(str(table))


@pytest.mark.parametrize("rows", ["none", "many"])
async def test_every_cached_plan_finds_its_rows_by_their_keys(job_store_url: str, rows: str) -> None:
    connection: Any = await asyncpg.connect(job_store_url)
    if rows == "many":
        await connection.execute(_FILL)
    bad = {}
    for settings, kept in ((HOT, _STATEMENTS), (WALKS, _WALKED)):
        await connection.execute(f"reset all;{';'.join(settings)}")
        for name, statement in kept.items():
            await connection.execute(f"prepare s_{name} as {statement}")
            count = max(map(int, re.findall(r"\$(\d+)", statement)), default=0)
            nulls = f"({', '.join(['null'] * count)})" if count else ""
            (plan,) = json.loads(await connection.fetchval(f"explain (format json) execute s_{name}{nulls}"))
            if found := [node for node in _nodes(plan["Plan"]) if not _is_good(name, node)]:
                bad[name] = [(node["Node Type"], node.get("Relation Name")) for node in found]
    # The plans that a call makes for its own values, in a millisecond; PostgreSQL counts them since version 14.
    counts = connection.get_server_version() >= (14,)
    custom = await connection.fetchval("select sum(custom_plans) from pg_prepared_statements") if counts else 0
    await connection.close()
    assert bad == {}
    assert custom == 0


async def test_firing_confirming_and_deleting_do_not_wait_for_the_disk(job_store_url: str) -> None:
    fire = (
        FIRE,
        [0],
        [1],
        ["00000000-0000-7000-8000-000000000000"],
        ["partition:0"],
        [1],
        ["partition:0"],
    )

    connection: Any = await asyncpg.connect(job_store_url)
    await connection.execute(";".join(HOT))
    batch = await connection.fetchval(
        "insert into taskmq.dispatch_batch (partition, epoch, at, ids, tokens) "
        "values (0, 1, 1, '{}', '{}') returning id"
    )
    for statement, *given in ((CONFIRM, [batch]), (FORGET, [batch]), fire):
        await connection.execute("begin")
        await connection.fetch(statement, *given)
        assert await connection.fetchval("show synchronous_commit") == "off", statement
        await connection.execute("rollback")
        assert await connection.fetchval("show synchronous_commit") == "on"
    await connection.close()


async def test_an_advance_of_a_run_does_not_wait_for_the_disk(job_store_url: str) -> None:
    store = PostgresJobStore(job_store_url)
    runs = store._database.runs  # pyright: ignore[reportPrivateUsage]

    async def read(connection: Any) -> str:
        return str(await connection.fetchval("show synchronous_commit"))

    assert await runs.run("unsynced transaction", read) == "off"
    assert await runs.run("transaction", read) == "on"
    await store.aclose()


async def test_the_end_of_a_lone_step_is_applied_by_one_statement_without_a_read(job_store_url: str) -> None:
    store = PostgresJobStore(job_store_url)
    driver = RunDriver(store)
    run = await driver.start(
        {"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}, "c": {"task": "t", "needs": ["b"]}}
    )
    await driver.advance(run)
    await driver.finish(run, "a")
    (job,) = (await driver.dispatch()).jobs
    sent: list[str] = []

    def note(record: Any) -> None:
        sent.append(record.query)

    async def note_statements(connection: Any) -> None:
        connection.add_query_logger(note)

    await store._database.runs.run("read", note_statements)  # pyright: ignore[reportPrivateUsage]
    await store.dispatching.apply([report(job, "succeeded")])
    await driver.advance(run)

    assert await driver.states(run) == {"a": "succeeded", "b": "succeeded", "c": "running"}
    assert len(sent) == 1
    await store.aclose()


@pytest.mark.parametrize(
    "at_a_time", [pytest.param(10, marks=pytest.mark.nightly("tests/integration/test_postgres_plans.py")), 200]
)
async def test_changes_of_a_live_job_are_made_in_place_and_touch_no_index(job_store_url: str, at_a_time: int) -> None:
    store = PostgresJobStore(job_store_url)
    driver = JobDriver(store)
    for _ in range(_CHANGED // at_a_time):
        await driver.submit_many(at_a_time)
        jobs = (await driver.dispatch()).jobs
        await store.dispatching.apply([report(job, "started", worker="w") for job in jobs])
        await store.dispatching.apply([report(job, "succeeded", worker="w", result=b"7") for job in jobs])
    # A server counts the work of a connection once that is closed.
    await store.aclose()
    connection: Any = await asyncpg.connect(job_store_url)

    async def all_are_counted() -> bool:
        return bool((await connection.fetchrow(_UPDATES))[0] >= 2 * _CHANGED)

    await until(all_are_counted)
    changed, in_place = await connection.fetchrow(_UPDATES)
    await connection.close()
    assert in_place >= 0.95 * changed


async def test_the_job_of_an_event_is_not_searched_in_earlier_days(job_store_url: str) -> None:
    connection: Any = await asyncpg.connect(job_store_url)
    today = await connection.fetchval("select taskmq.now_ms()") // DAY_MS
    noon = today * DAY_MS + 3 * DAY_MS // 2
    job = "00000000-0000-7000-8000-000000000001"
    await connection.execute(
        f"""
        insert into taskmq.job_history (id, due, tenant, queue, task, priority, state, ended, finished)
        values ('{job}', 1, 1, 1, 1, 5, 6, {noon}, {noon});
        insert into taskmq.event (id, at, number, version, kind, state, actor, note)
        values ('{job}', {noon}, 1, 1, 15, 6, '', '')"""
    )
    statement = store._ACTIONS  # pyright: ignore[reportPrivateUsage]

    found = await connection.fetch(statement, noon, 9)
    await connection.execute(f"{';'.join(WALKS)};prepare actions as {statement}")
    explained = await connection.fetchval(f"explain (analyze, format json) execute actions({noon}, 9)")
    names = [name for name in await days_of(connection, "job_history") if day_of(name) <= today]
    await connection.close()
    assert [str(row["id"]) for row in found] == [job]
    nodes = {node.get("Relation Name"): node for node in _nodes(json.loads(explained)[0]["Plan"])}
    assert {nodes[name]["Actual Loops"] for name in names} == {0}


async def test_the_keys_of_deleted_jobs_are_found_by_an_index(job_store_url: str) -> None:
    connection: Any = await asyncpg.connect(job_store_url)
    await connection.execute(
        """insert into taskmq.claim (name, place, job, token, fence, ttl)
        select n::text, 0, gen_random_uuid(), 1, n, 1000 from generate_series(1, 20000) n; analyze taskmq.claim"""
    )
    jobs = await connection.fetchval("select array(select job from taskmq.claim limit 3)")
    found: list[set[str]] = []
    for statement in (claims._LOCK_OF, claims._FREE_OF, claims._KEEP_OF):  # pyright: ignore[reportPrivateUsage]
        (plan,) = json.loads(await connection.fetchval(f"explain (format json) {statement}", jobs))
        scans = [node for node in _nodes(plan["Plan"]) if node.get("Relation Name") == "claim"]
        assert "Seq Scan" not in {node["Node Type"] for node in scans}
        found.append({node["Index Name"] for node in _nodes(plan["Plan"]) if "Index Name" in node})
    await connection.close()

    assert all("claim_job" in names for names in found)
