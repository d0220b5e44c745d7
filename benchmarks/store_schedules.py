"""`python -m benchmarks.store_schedules`: schedules of the job store by the million, of which few are due at a time.

    COUNT schedules, loaded by COPY, that are due RATE a second, evenly
    one `taskmq scheduler` on PostgreSQL fires them: how many, how late, and what it holds

The broker is in the scheduler's process and nobody runs the jobs, so that all that is measured is what firing takes.
An occurrence is late from its instant to the commit of its job.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq import TaskMQ
from taskmq.contracts.jobs import schedule_shard
from taskmq.schedule import every
from taskmq.schedules.definition import rule_of
from taskmq.schedules.record import ScheduleRecord, encode_record
from taskmq.schedules.triggers import Every
from taskmq_sql.migrations import upgrade
from tests.servers import PostgreSQL

__all__ = ["main"]

_APP: Final = """
import os
from taskmq import TaskMQ

app = TaskMQ("memory://bench", store=os.environ["BENCH_STORE"], name="bench")


@app.task(name="tick", queue="ticks")
async def tick() -> None: ...
"""
_ROOT: Final = Path(__file__).parents[1]
_LEAD_MS: Final = 5_000
_SETTLE: Final = 10.0
_PAGE: Final = 20_000
_LATE: Final = """
select count(*) as fired, percentile_disc(array[0.5, 0.99, 1.0]) within group (order by at - instant) as late
from taskmq.occurrence where instant >= $1 and instant < $2"""
_SIZES: Final = """
select pg_total_relation_size('taskmq.schedule') as schedule, pg_total_relation_size('taskmq.schedule_due') as due"""


def main() -> int:
    arguments = _arguments()
    with PostgreSQL() as server:
        url = server.create_database()
        asyncio.run(_measure(url, arguments))
    return 0


async def _measure(url: str, arguments: argparse.Namespace) -> None:
    count, rate = arguments.count, arguments.rate
    await upgrade(url)
    connection: Any = await asyncpg.connect(url)
    try:
        await _load(connection, url, count, max(count * 1000 // rate, 1_000))
        with tempfile.TemporaryDirectory(prefix="taskmq-store-schedules-") as folder:
            (Path(folder) / "bench_app.py").write_text(_APP, encoding="utf-8")
            with _scheduler(folder, url) as process:
                await asyncio.sleep(_SETTLE)
                cpu, began = _cpu(process.pid), time.time()
                await asyncio.sleep(arguments.seconds)
                cpu, ended = _cpu(process.pid) - cpu, time.time()
                # What was due at the end of it is committed by now.
                await asyncio.sleep(2.0)
                row = await connection.fetchrow(_LATE, round(began * 1000), round(ended * 1000))
                resident = _resident_mb(process.pid)
        p50, p99, most = row["late"] or (0, 0, 0)
        each = cpu / max(row["fired"], 1) * 1e6
        seconds = ended - began
        print(
            f"{row['fired'] / seconds:,.0f} fires a second ({row['fired']:,} in {seconds:.0f} s, {rate} were due), "
            f"late p50 {p50} ms, p99 {p99} ms, max {most} ms"
        )
        print(f"the scheduler: {resident:.1f} MB, {cpu / seconds:.1%} of a processor, {each:.0f} us for each fire")
    finally:
        await connection.close()


async def _load(connection: Any, url: str, count: int, period: int) -> None:
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
    # So that loading takes no instant away: it is about as fast as 30,000 a second.
    start = round(time.time() * 1000) + count // 30 + _LEAD_MS
    for first in range(0, count, _PAGE):
        wide: list[tuple[object, ...]] = []
        narrow: list[tuple[object, ...]] = []
        for number in range(first, min(first + _PAGE, count)):
            number_id, name = number + 1_000, f"s{number}"
            phase = number * period // count
            trigger = Every(period, phase)
            template["trigger"]["phase"] = phase
            record = ScheduleRecord(mark=start - 1, rule=rule_of(trigger))
            due, shard = trigger.next_after(start - 1), schedule_shard("bench", name)
            definition = json.dumps(template).encode()
            wide.append((number_id, due, shard, False, "bench", name, definition, encode_record(record)))
            narrow.append((shard, due, number_id))
        columns = ["id", "next_at", "shard", "is_code", "app", "name", "definition", "record"]
        await connection.copy_records_to_table("schedule", schema_name="taskmq", records=wide, columns=columns)
        await connection.copy_records_to_table(
            "schedule_due", schema_name="taskmq", records=narrow, columns=["shard", "next_at", "id"]
        )
    await connection.execute("vacuum analyze taskmq.schedule, taskmq.schedule_due", timeout=3_600)
    sizes = await connection.fetchrow(_SIZES)
    took = time.perf_counter() - began
    print(
        f"{count:,} schedules loaded in {took:.0f} s; {sizes['schedule'] / count:.0f} bytes each of schedule, "
        f"{sizes['due'] / count:.0f} of schedule_due",
        flush=True,
    )
    await asyncio.sleep(max(start / 1000 - time.time(), 0))


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
    """Seconds of a processor that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_schedules", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="schedules, such as 10000000")
    parser.add_argument("--rate", type=int, default=500, help="how many are due in each second")
    parser.add_argument("--seconds", type=float, default=30.0, help="for which they are watched")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
