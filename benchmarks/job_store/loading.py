"""Databases with millions of rows, filled by SQL in a few microseconds a row; indexes are built last.

A server in $TASKMQ_TEST_POSTGRES_URL keeps such a database for the next run.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from benchmarks.job_store.stage import Servers, Stage
from taskmq_sql.jobs.partitions import day_of

DAYS: Final = 30
TENANTS: Final = 1_000
TASKS: Final = 20
_DAY: Final = 86_400_000
Fill = Callable[[Stage, int], Awaitable[float]]
"""Inserts this many rows and returns the seconds that took."""
_HALVES: Final = 2
_MARK: Final = 123_456_789
_ENDED_COLUMNS: Final = (
    "id, due, token, dispatched, started, tenant, queue, task, version, attempt, priority, state, "
    "key, error_type, error_message, body, ended, finished"
)

_FUNCTIONS: Final = """
create or replace function public.bench_id(at bigint) returns uuid language sql volatile as $$
  select (lpad(to_hex(at), 12, '0') || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid $$;
create or replace function public.bench_shard(id uuid) returns smallint language sql immutable as $$
  select (get_byte(uuid_send(id), 15) & 63)::smallint $$"""


@contextlib.asynccontextmanager
async def connected(url: str, count: int = 1) -> AsyncGenerator[list[Any]]:
    """Open connections that do not wait for the disk."""
    connections = [await asyncpg.connect(url, command_timeout=1200) for _ in range(count)]
    try:
        for connection in connections:
            await connection.execute("set synchronous_commit = off; set maintenance_work_mem = '512MB'")
        yield connections
    finally:
        for connection in connections:
            await connection.close()


@contextlib.contextmanager
def large_stage(servers: Servers, name: str, *, rows: int, fill: Fill) -> Generator[Stage]:
    """Open a stage on a database of this many rows, filling it unless the server keeps it from an earlier run."""
    name = f"bench_{name}_{rows}"
    there = servers.postgres.sql(f"select count(*) from pg_database where datname = '{name}'") == "1"
    if not there:
        servers.postgres.sql(f'create database "{name}"')
    url = urlsplit(servers.postgres.url)._replace(path=f"/{name}").geturl()
    with Stage.opened(servers, store=url) as stage:
        if not there:

            async def work() -> float:
                async with stage.app:
                    return await fill(stage, rows)

            print(f"{rows:,} rows of {name}: {asyncio.run(work()):.0f} s", file=sys.stderr)
            # Otherwise the system would write the pages half a minute later, and commits would wait for them.
            servers.postgres.sql("checkpoint")
        yield stage


async def days_there(stage: Stage) -> int:
    """Return how many days ago the earliest day of the history is."""
    async with connected(stage.store) as (connection,):
        name = await connection.fetchval(
            "select min(inhrelid::regclass::text) from pg_inherits where inhparent = 'taskmq.job_history'::regclass"
        )
        now = await connection.fetchval("select taskmq.now_ms()")
    return int(now) // _DAY - day_of(name)


async def fill_timers(stage: Stage, rows: int) -> float:
    """Insert scheduled jobs due within 30 days from tomorrow, and return the seconds that took."""
    began = time.perf_counter()
    body, (tenant, queue, task) = await _template(stage)
    async with connected(stage.store, _HALVES) as connections:
        first, *_ = connections
        await first.execute(_FUNCTIONS)
        await first.execute("alter table taskmq.job drop constraint job_pkey")
        await first.execute("alter table taskmq.timer drop constraint timer_pkey")
        now = await first.fetchval("select taskmq.now_ms()")
        statement = f"""
with i as materialized (
  select public.bench_id($1::bigint - $3::bigint + n) as id,
         $1::bigint + {_DAY} + (random() * {DAYS * _DAY})::bigint as due
  from generate_series($2::bigint, $3::bigint - 1) n),
t as (insert into taskmq.timer (shard, due, id) select public.bench_shard(id), due, id from i)
insert into taskmq.job (id, due, tenant, queue, task, priority, state, body)
select id, due, {tenant}, {queue}, {task}, 5, 13, {_body("$4::text", "id", "due")} from i"""
        await _in_parts(
            connections, rows, lambda connection, low, high: connection.execute(statement, now, low, high, body)
        )
        await asyncio.gather(
            first.execute("alter table taskmq.job add constraint job_pkey primary key (id)"),
            connections[1].execute("alter table taskmq.timer add constraint timer_pkey primary key (shard, due, id)"),
        )
        await asyncio.gather(
            first.execute("vacuum analyze taskmq.job"), connections[1].execute("vacuum analyze taskmq.timer")
        )
    return time.perf_counter() - began


async def fill_soon(stage: Stage, *, rate: int, seconds: int, after: float) -> int:
    """Jobs of `stamp` that become due at that rate, the first in so many seconds; at which instant, in ms."""
    body, (tenant, queue, task) = await _template(stage)
    async with connected(stage.store) as (connection,):
        await connection.execute(_FUNCTIONS)
        now = int(await connection.fetchval("select taskmq.now_ms()"))
        first = now + round(after * 1000)
        statement = f"""
with i as materialized (
  select public.bench_id($1::bigint) as id, ($2::bigint + n * 1000 / {rate}) as due
  from generate_series(0, {rate * seconds - 1}) n),
t as (insert into taskmq.timer (shard, due, id) select public.bench_shard(id), due, id from i)
insert into taskmq.job (id, due, tenant, queue, task, priority, state, body)
select id, due, {tenant}, {queue}, {task}, 5, 13, {_body("$3::text", "id", "due * 1000000")} from i"""
        await connection.execute(statement, now, first, body)
    return first


async def fill_history(stage: Stage, rows: int, *, keyed: int = 10) -> float:
    """So many ended jobs of the last 30 days, of which one in `keyed` has an id of its submitter's; seconds."""
    began = time.perf_counter()
    body, (_, queue, _) = await _template(stage)
    async with connected(stage.store, _HALVES) as connections:
        first, *_ = connections
        await first.execute(_FUNCTIONS)
        for table, name in (("tenant", "t"), ("task", "task-")):
            count = TENANTS if table == "tenant" else TASKS
            await first.execute(
                f"insert into taskmq.{table} (name) select '{name}' || n from generate_series(0, {count - 1}) n "
                "on conflict do nothing"
            )
        tenant = await first.fetchval("select min(id) from taskmq.tenant where name ~ '^t[0-9]+$'")
        task = await first.fetchval("select min(id) from taskmq.task where name ~ '^task-[0-9]+$'")
        today = int(await first.fetchval("select taskmq.now_ms()")) // _DAY
        a_day = max(rows // DAYS, 1)

        async def fill(connection: Any, low: int, high: int) -> None:
            for number in range(low, high):
                day = today - DAYS + number
                name = f"taskmq.bench_day_{day}"
                await connection.execute(f"create table {name} (like taskmq.job_history including defaults)")
                await connection.execute(
                    f"""
insert into {name} ({_ENDED_COLUMNS})
select public.bench_id(at - 2000), at - 2000, 1, at - 1000, at - 500, {tenant} + floor({TENANTS} * random() ^ 3)::int,
       {queue}, {task} + floor({TASKS} * random() ^ 2)::int, 3, 1, 5, s.state,
       case when n % {keyed} = 0 then 'key-' || at || '-' || n end,
       case when s.state = 6 then 'ValueError' end, case when s.state = 6 then 'wrong' end,
       {_body("$1::text", "n", "at")}, at, at
from generate_series(0, {a_day} - 1) n,
     lateral (select {day * _DAY}::bigint + n * {_DAY - 1}::bigint / {a_day} as at) a,
     lateral (select (case when r < 0.94 then 5 when r < 0.98 then 6
                           when r < 0.99 then 7 else 8 end)::smallint as state
              from (select random() + n * 0 as r) r) s""",
                    body,
                )
                await connection.execute(
                    f"insert into taskmq.job_key (tenant, key, id, fingerprint) "
                    f"select tenant, key, id, '' from {name} where key is not null"
                )

        await _in_parts(connections, DAYS, fill, size=1)
        for number in range(DAYS):
            day = today - DAYS + number
            await first.execute(_attached(day))
        await first.execute("vacuum analyze taskmq.job_history")
        await first.execute("vacuum analyze taskmq.job_key")
    return time.perf_counter() - began


async def fill_tenants(stage: Stage, rows: int, *, tenants: int) -> None:
    """Insert queued jobs of the tenants in turn, and return the seconds that took."""
    body, (_, queue, task) = await _template(stage)
    async with connected(stage.store, _HALVES) as connections:
        first, *_ = connections
        await first.execute(_FUNCTIONS)
        await first.execute(
            f"insert into taskmq.tenant (name) select 'many-' || n from generate_series(0, {tenants - 1}) n "
            "on conflict do nothing"
        )
        numbers = [
            row[0] for row in await first.fetch("select id from taskmq.tenant where name like 'many-%' order by id")
        ]
        now = await first.fetchval("select taskmq.now_ms()")
        statement = f"""
with i as materialized (
  select public.bench_id($1::bigint - $3::bigint + n) as id, ($5::int[])[n % {len(numbers)} + 1] as tenant
  from generate_series($2::bigint, $3::bigint - 1) n),
r as (insert into taskmq.ready (queue, priority, tenant, due, id) select {queue}, 5, tenant, $1::bigint, id from i)
insert into taskmq.job (id, due, tenant, queue, task, priority, state, body)
select id, $1::bigint, tenant, {queue}, {task}, 5, 1, {_body("$4::text", "id", "1")} from i"""
        await _in_parts(
            connections,
            rows,
            lambda connection, low, high: connection.execute(statement, now, low, high, body, numbers),
        )
        await first.execute("vacuum analyze taskmq.job")
        await first.execute("vacuum analyze taskmq.ready")


async def _in_parts(connections: Sequence[Any], rows: int, work: Any, *, size: int = 250_000) -> None:
    parts = [(low, min(low + size, rows)) for low in range(0, rows, size)]
    parts.reverse()

    async def run(connection: Any) -> None:
        while parts:
            await work(connection, *parts.pop())

    await asyncio.gather(*(run(connection) for connection in connections))


async def _template(stage: Stage) -> tuple[str, tuple[int, int, int]]:
    """Return the body of a `stamp` job with a mark for its id, and the ids of its tenant, queue and task."""
    job = await stage.app.jobs.asubmit("stamp", _MARK, held=True)
    async with connected(stage.store) as (connection,):
        row = await connection.fetchrow(
            "select convert_from(body, 'UTF8') as body, tenant, queue, task from taskmq.job where id = $1", job.id
        )
        await connection.execute("delete from taskmq.job where id = $1", job.id)
    return row["body"].replace(job.id, "@@"), (row["tenant"], row["queue"], row["task"])


def _body(template: str, new: str, sent: str) -> str:
    """Build the SQL expression of the template body with another id and argument."""
    return f"convert_to(replace(replace({template}, '@@', ({new})::text), '{_MARK}', ({sent})::text), 'UTF8')"


def _attached(day: int) -> str:
    return f"""
alter table taskmq.bench_day_{day} add check (ended >= {day * _DAY} and ended < {(day + 1) * _DAY});
drop table if exists taskmq.job_history_{_name(day)};
alter table taskmq.bench_day_{day} rename to job_history_{_name(day)};
alter table taskmq.job_history attach partition taskmq.job_history_{_name(day)}
  for values from ({day * _DAY}) to ({(day + 1) * _DAY})"""


def _name(day: int) -> str:
    return time.strftime("%Y%m%d", time.gmtime(day * _DAY // 1000))
