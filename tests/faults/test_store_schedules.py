"""Three schedulers under faults: every instant of every stored schedule becomes exactly one job.

Settings start with `TASKMQ_TEST_STORE`: `_SCHEDULES` of one second (20), for `_SECONDS` (8), one scheduler killed
every `_KILL_EVERY` seconds (4), and one frozen for `_FREEZE` seconds (7: longer than a lease) and thawed. The whole
campaign is 1000 schedules for 300 seconds, a kill every 20, a freeze of 15.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import ScheduleFiring, schedule_shard
from taskmq_sql import open_job_store
from tests.faults.field import Commands, Process
from tests.servers.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]


def _read_setting(name: str, default: str) -> float:
    return float(os.environ.get(f"TASKMQ_TEST_STORE_SCHEDULES{name}", default))


SCHEDULES = int(_read_setting("", "20"))
SECONDS = _read_setting("_SECONDS", "8")
KILL_EVERY = _read_setting("_KILL_EVERY", "4")
FREEZE = _read_setting("_FREEZE", "7")
REPLICAS = 3
FAILOVER = 7_000
"""Time (ms) for which the share of a killed or frozen scheduler may be late: a lease and two seconds."""

JOBS = """
import os
from taskmq import TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")


@app.task(name="tick", queue="ticks", result=False)
async def tick() -> None: ...


for number in range(int(os.environ["FAULTS_SCHEDULES"])):
    app.every("1s", name=f"s{number}", late_after="5m")(tick)
"""
_FIRED = """
select s.name, o.instant, o.at, o.job, j.state from taskmq.occurrence o join taskmq.schedule s on s.id = o.schedule
left join taskmq.job_history j on j.id = o.job"""
_JOBS = "select count(*) from (select id from taskmq.job union all select id from taskmq.job_history) j"
_HOLDERS = "select key, holder, epoch from taskmq.lease where key like 'partition:%' and holder is not null"


class _Database:
    """The store, accessed by SQL."""

    def __init__(self, url: str) -> None:
        self._url = url

    def rows(self, query: str) -> list[Any]:
        async def ask() -> list[Any]:
            connection: Any = await asyncpg.connect(self._url)
            try:
                return list(await connection.fetch(query))
            finally:
                await connection.close()

        return asyncio.run(ask())

    def holders(self) -> set[str]:
        return {row["holder"] for row in self.rows(_HOLDERS)}


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, JOBS, url=amqp_url, store=job_store_url, schedules=str(SCHEDULES)) as started:
        yield started


@pytest.mark.nightly(
    "tests/integration/test_scheduler_deaths.py::test_a_scheduler_that_dies_loses_no_job_and_ends_none_twice"
)
@pytest.mark.timeout(240 + 2 * SECONDS)
def test_every_instant_becomes_one_job_whatever_happens_to_the_schedulers(
    start: Callable[..., Process], job_store_url: str
) -> None:
    database = _Database(job_store_url)
    start("worker", "worker", "jobs:app", "-c", "100")
    names = (f"scheduler-{number}" for number in itertools.count())
    schedulers = [start(next(names), "scheduler", "jobs:app") for _ in range(REPLICAS)]
    _until(lambda: len(database.holders()) == REPLICAS, "each scheduler has partitions", *schedulers)
    _until(
        lambda: len({row["name"] for row in database.rows(_FIRED)}) == SCHEDULES, "every schedule fires", *schedulers
    )

    began = time.time_ns() // 1_000_000 // 1000 * 1000 + 1000
    before = {row["key"]: row["epoch"] for row in database.rows(_HOLDERS)}
    frozen = schedulers.pop()
    frozen.signal(signal.SIGSTOP)
    lost = [time.time_ns() // 1_000_000]
    kills, thaws_at = 0, time.monotonic() + FREEZE
    ends_at, next_kill = time.monotonic() + SECONDS, time.monotonic() + KILL_EVERY
    is_frozen, refused = True, 0
    while (now := time.monotonic()) < ends_at or is_frozen:
        if now >= next_kill:
            schedulers.pop(0).signal(signal.SIGKILL)
            lost.append(time.time_ns() // 1_000_000)
            schedulers.append(start(next(names), "scheduler", "jobs:app"))
            kills, next_kill = kills + 1, now + KILL_EVERY
        if is_frozen and now >= thaws_at:
            refused = asyncio.run(_stale_writes(job_store_url, before))
            frozen.signal(signal.SIGCONT)
            schedulers.append(frozen)
            is_frozen = False
        time.sleep(0.05)
    ended = time.time_ns() // 1_000_000 // 1000 * 1000
    expected = {(f"s{number}", due) for number in range(SCHEDULES) for due in range(began, ended, 1000)}
    done = [5, 6, 7, 8]
    with contextlib.suppress(TimeoutError):
        eventually(
            lambda: (
                expected <= {(row["name"], row["instant"]) for row in database.rows(_FIRED) if row["state"] in done}
            ),
            "everything has run",
            within=timedelta(seconds=90),
        )
    # A newly started process would be ended by the signal itself.
    _until(
        lambda: all("acquired partitions" in each.log for each in schedulers),
        "each one holds a partition",
        *schedulers,
    )
    for each in schedulers:
        each.signal(signal.SIGTERM)
        assert each.wait(30) == 0, each.log[-4000:]
    _judge(database, expected, lost, kills=kills, refused=refused)


async def _stale_writes(url: str, epochs: dict[str, int]) -> int:
    """Count the writes of a frozen scheduler in each partition taken over by others: all are refused."""
    store = open_job_store(url, BrokerOptions(name="stale"))
    refused = 0
    try:
        partitions = store.dispatching.partitions
        rows = await store.schedules.list("faults", limit=SCHEDULES)
        for row in rows:
            partition = schedule_shard(row.app, row.name) % partitions
            lease = await store.dispatching.leases.find(f"partition:{partition}")
            if lease is not None and lease.token > epochs[f"partition:{partition}"]:
                firing = ScheduleFiring(before=row, record=b"stale", next=None)
                assert await store.schedules.fire(partition, epochs[f"partition:{partition}"], [firing]) is None
                refused += 1
    finally:
        await store.aclose()
    return refused


def _judge(database: _Database, expected: set[tuple[str, int]], lost: list[int], *, kills: int, refused: int) -> None:
    """Print the results, and judge them.

    Args:
        lost: when a scheduler was killed or frozen, ms since the epoch.
    """
    rows = database.rows(_FIRED)
    counts = Counter((row["name"], row["instant"]) for row in rows)
    missing = sorted(expected - counts.keys())
    twice = sorted(key for key, count in counts.items() if count > 1)
    (jobs,) = database.rows(_JOBS)
    failed = [row for row in rows if row["state"] is None and (row["name"], row["instant"]) in expected]
    inside: list[int] = []
    outside: list[int] = []
    for row in rows:
        if (row["name"], row["instant"]) in expected:
            is_inside = any(at - 1000 <= row["instant"] < at + FAILOVER for at in lost)
            (inside if is_inside else outside).append(row["at"] - row["instant"])
    print(
        f"\n{SCHEDULES} schedules, {len(expected)} instants, {kills} schedulers killed, one frozen: {len(missing)} "
        f"missing, {len(twice)} twice, {len(rows)} occurrences, {jobs[0]} jobs; {refused} stale writes refused; late "
        f"p50/p90/p99/max {_spread(outside)} ms, within {FAILOVER / 1000:g} s of a kill or the freeze "
        f"{_spread(inside)} ms; load {os.getloadavg()[0]:.1f}"
    )
    assert not missing, missing[:20]
    assert not twice, twice[:20]
    assert jobs[0] == len(rows)
    assert not failed
    assert refused >= 1


def _spread(late: list[int]) -> str:
    ordered = sorted(late) or [0]
    return "/".join(str(ordered[min(int(len(ordered) * part), len(ordered) - 1)]) for part in (0.5, 0.9, 0.99, 1))


def _until(holds: Callable[[], bool], what: str, *processes: Process) -> None:
    try:
        eventually(holds, what, within=timedelta(seconds=60))
    except TimeoutError as error:
        logs = "\n".join(f"== {each.name}\n{each.log[-3000:]}" for each in processes)
        raise AssertionError(f"{error}\n{logs}") from error
