"""`python -m benchmarks.store_schedules`: millions of schedules in the job store, of which few are due at a time.

    COUNT schedules, created by SQL, of which RATE become due per second, evenly spread
    one `taskmq scheduler` on PostgreSQL fires them: rate, lateness and memory

    optionally, jobs are changed, cancelled, and submitted with a delay of two seconds at given rates

The broker is in the scheduler's process and no worker runs the jobs, so that only firing is measured. Lateness is the
time from an occurrence's instant to the commit of its job. A server in $TASKMQ_TEST_POSTGRES_URL keeps the schedules
for the next run; load them with `--load-only` first to keep measurements short. The figures are saved as the row
`schedules` of `benchmarks/results/job_store.json`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from benchmarks.job_store.figures import Figures, keep, percentile, text_of
from benchmarks.job_store.stage import DURABLE
from benchmarks.job_store.timers import paced
from taskmq import TaskMQ
from taskmq.schedules.definition import rule_of
from taskmq.schedules.record import ScheduleRecord, encode_record
from taskmq.schedules.triggers import Every, every
from taskmq_sql.migrations import upgrade
from tests.servers import PostgreSQL

_APP: Final = """
import os
from taskmq import TaskMQ

app = TaskMQ("memory://bench", store=os.environ["BENCH_STORE"], name="bench")


@app.task(name="tick", queue="ticks")
async def tick() -> None: ...
"""
_ROOT: Final = Path(__file__).parents[1]
_RESULTS: Final = Path(__file__).with_name("results") / "job_store.json"
_LEAD_MS: Final = 5_000
_PAGE: Final = 100_000
_FILLERS: Final = 2
_LOADED_A_MS: Final = 60
_PHASE: Final = 123_456_789
# Computes the shard like `schedule_shard` and the rule like `rule_of`.
_ROWS: Final = f"""
with i as materialized (
  select 1000 + n as id, 's' || n as name, p.phase,
         ((($5::bigint - 1 - p.phase) / $4::bigint) + 1) * $4::bigint + p.phase as due
  from generate_series($1::bigint, $2::bigint) n, lateral (select n * $4::bigint / $3::bigint as phase) p),
w as (insert into taskmq.schedule (id, next_at, shard, is_code, app, name, definition, record)
  overriding system value
  select id, due, get_byte(sha256(convert_to('bench/' || name, 'UTF8')), 0), false, 'bench', name,
         convert_to(replace($6::text, '{_PHASE}', phase::text), 'UTF8'),
         $7::bytea || convert_to(left(encode(sha256(convert_to(
           'Every Every(period=' || $4::bigint || ', phase=' || phase || ')', 'UTF8')), 'hex'), 12), 'UTF8')
           || $8::bytea
  from i returning id, shard, next_at)
insert into taskmq.schedule_due (shard, next_at, id) select shard, next_at, id from w"""
_INDEXES: Final = """
alter table taskmq.schedule add constraint schedule_name_key unique (app, name);
alter table taskmq.schedule_due add constraint schedule_due_pkey primary key (shard, next_at, id)"""
_LATE: Final = """
select count(*) as fired, percentile_disc(array[0.5, 0.99, 1.0]) within group (order by at - instant) as late
from taskmq.occurrence where instant >= $1 and instant < $2"""
_HELD: Final = "select count(*) = 8 from taskmq.lease where key like 'partition:_' and holder is not null"
_TIMERS_LEFT: Final = "select count(*) from taskmq.timer where due < $1"
_SIZES: Final = """
select pg_total_relation_size('taskmq.schedule') as schedule, pg_total_relation_size('taskmq.schedule_due') as due"""


def main(given: Sequence[str] | None = None) -> int:
    """Load the schedules, measure, and print and save the figures."""
    arguments = _arguments(given)
    # On disk, so that commits wait for the disk as in production.
    os.environ.setdefault("TASKMQ_TEST_ROOM", tempfile.gettempdir())
    with PostgreSQL(DURABLE) as server:
        name = f"bench_schedules_{arguments.count}"
        is_there = server.sql(f"select count(*) from pg_database where datname = '{name}'") == "1"
        if not is_there:
            server.sql(f'create database "{name}"')
        url = urlsplit(server.url)._replace(path=f"/{name}").geturl()
        figures = asyncio.run(_measure(url, arguments, is_there=is_there))
    if figures:
        print(text_of({"schedules": [figures]}))
        keep(
            arguments.results,
            {"schedules": [figures]},
            " ".join(["python -m benchmarks.store_schedules", *(sys.argv[1:] if given is None else given)]),
        )
    return 0


async def _measure(url: str, arguments: argparse.Namespace, *, is_there: bool) -> Figures:
    count, rate = arguments.count, arguments.rate
    await upgrade(url)
    connection: Any = await asyncpg.connect(url)
    try:
        if not is_there:
            await _load(connection, url, count, max(count * 1000 // rate, 1_000))
        if arguments.load_only:
            return {}
        start = await connection.fetchval("select at from public.bench_start")
        await asyncio.sleep(max(start / 1000 - time.time(), 0))
        with tempfile.TemporaryDirectory(prefix="taskmq-store-schedules-") as folder:
            (Path(folder) / "bench_app.py").write_text(_APP, encoding="utf-8")
            async with _others(url, arguments) as work:
                with _scheduler(folder, url) as process:
                    while not await connection.fetchval(_HELD):
                        await asyncio.sleep(0.1)
                    await asyncio.sleep(arguments.settle)
                    cpu, began = _cpu(process.pid), time.time()
                    _, beside = await asyncio.gather(asyncio.sleep(arguments.seconds), work())
                    cpu, ended = _cpu(process.pid) - cpu, time.time()
                    # Wait for the commit of occurrences that were due at the end.
                    await asyncio.sleep(2.0)
                    row = await connection.fetchrow(_LATE, round(began * 1000), round(ended * 1000))
                    left = await connection.fetchval(_TIMERS_LEFT, round(ended * 1000))
                    resident = _resident_mb(process.pid)
        p50, p99, most = row["late"] or (0, 0, 0)
        return {
            "schedules": float(count),
            "due/s": float(rate),
            "fired/s": row["fired"] / (ended - began),
            "p50 ms": float(p50),
            "p99 ms": float(p99),
            "latest ms": float(most),
            "scheduler MB": resident,
            "scheduler, share of a processor": cpu / (ended - began),
            "us an occurrence: scheduler": cpu / max(row["fired"], 1) * 1e6,
            **beside,
            "timers that are late by 2 s": float(left),
        }
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _others(url: str, arguments: argparse.Namespace) -> AsyncGenerator[Callable[[], Awaitable[Figures]]]:
    """Prepare changes, cancellations and submissions of other jobs; yield a function that runs and times them."""
    app, seconds = TaskMQ("memory://bench", store=url, name="bench"), arguments.seconds

    @app.task(name="tick", queue="ticks")
    async def tick() -> None: ...

    async def one_more(_: str) -> None:
        await app.jobs.asubmit(tick.options(delay="2s"))

    async def work() -> Figures:
        half = round(seconds * arguments.changes)
        done = await asyncio.gather(
            paced(arguments.changes, waiting[:half], lambda job_id: app.jobs.achange(job_id, delay="10d")),
            paced(arguments.cancels, waiting[half:], app.jobs.acancel),
            paced(arguments.timers, [""] * round(seconds * arguments.timers), one_more),
        )
        figures: Figures = {}
        for name, taken in zip(("changes", "cancels", "timers"), done, strict=True):
            if taken:
                figures[name] = float(len(taken))
                figures |= {f"{name}, p{share} ms": percentile(taken, share / 100) * 1e3 for share in (50, 99)}
        return figures

    async with app:
        # None of these jobs becomes due during the benchmark.
        count = round(seconds * (arguments.changes + arguments.cancels))
        waiting = [job.id for job in await app.jobs.asubmit_many(tick.options(delay="20d"), [()] * count)]
        yield work


async def _load(connection: Any, url: str, count: int, period: int) -> None:
    """Insert `count` schedules by SQL, each due once a period; the first become due after loading."""
    app = TaskMQ("memory://bench", store=url, name="bench")

    @app.task(name="tick", queue="ticks")
    async def tick() -> None: ...

    async with app:
        await app.schedules.aadd("template", tick, every(period / 1000))
        (row,) = await app.sessions.store().schedules.find("bench", ["template"])
        assert row is not None
        template = json.loads(row.definition)
        await app.schedules.aremove("template")
    began = time.perf_counter()
    # Start late enough that no occurrence is due while loading.
    start = round(time.time() * 1000) + count // _LOADED_A_MS + _LEAD_MS
    template["trigger"]["phase"] = _PHASE
    rule = rule_of(Every(period, _PHASE))
    before, after = encode_record(ScheduleRecord(mark=start - 1, rule=rule)).split(rule.encode())
    await connection.execute("alter table taskmq.schedule drop constraint schedule_name_key")
    await connection.execute("alter table taskmq.schedule_due drop constraint schedule_due_pkey")
    await asyncio.gather(
        *(_fill(url, first, count, (period, start, json.dumps(template), before, after)) for first in range(_FILLERS))
    )
    await connection.execute(_INDEXES, timeout=3_600)
    await connection.execute("vacuum analyze taskmq.schedule", timeout=3_600)
    await connection.execute("vacuum analyze taskmq.schedule_due", timeout=3_600)
    sizes = await connection.fetchrow(_SIZES)
    took = time.perf_counter() - began
    print(
        f"{count:,} schedules loaded in {took:.0f} s; {sizes['schedule'] / count:.0f} bytes each of schedule, "
        f"{sizes['due'] / count:.0f} of schedule_due",
        flush=True,
    )
    await connection.execute(f"create table public.bench_start as select {start}::bigint as at")


async def _fill(url: str, first: int, count: int, values: tuple[object, ...]) -> None:
    """Insert every `_FILLERS`-th page, starting with page `first`."""
    connection: Any = await asyncpg.connect(url, command_timeout=3_600)
    try:
        await connection.execute("set synchronous_commit = off")
        for low in range(first * _PAGE, count, _FILLERS * _PAGE):
            await connection.execute(_ROWS, low, min(low + _PAGE, count) - 1, count, *values)
    finally:
        await connection.close()


@contextlib.contextmanager
def _scheduler(folder: str, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    path = os.pathsep.join([folder, *(str(_ROOT / part) for part in ("", "brokers", "contrib"))])
    process = subprocess.Popen(
        [sys.executable, "-m", "taskmq", "scheduler", "bench_app:app"],
        cwd=folder,
        env={**os.environ, "BENCH_STORE": url, "PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _cpu(pid: int) -> float:
    """Return the processor seconds that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_schedules", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="number of schedules, such as 10000000")
    parser.add_argument("--rate", type=int, default=500, help="schedules due per second")
    for what in ("changes", "cancels", "timers"):
        parser.add_argument(f"--{what}", type=float, default=0.0, help=f"{what} of other jobs per second")
    parser.add_argument(
        "--results", type=Path, default=_RESULTS, help="JSON file of the results; its other rows stay"
    )
    parser.add_argument("--load-only", action="store_true", help="create the schedules without measuring")
    parser.add_argument(
        "--settle", type=float, default=10.0, help="seconds to wait first, for occurrences missed meanwhile"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds to measure")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
