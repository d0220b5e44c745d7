"""Policies of stored schedules, with real schedulers, a real worker, RabbitMQ and PostgreSQL.

An outage of two hours passes at once: the test sets the store's clock, which alone decides about schedules.
"""

import asyncio
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from taskmq import TaskMQ
from taskmq.errors import JobConflict
from taskmq.model.states import JobState
from taskmq.schedules.policy import Overlap, ScheduleOptions
from taskmq.schedules.triggers import every
from taskmq.tasks.task import Task
from taskmq_sql.jobs.codes import CODES
from tests.faults.field import Commands, Process
from tests.servers import PostgreSQL
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.campaign]

_PATIENCE: Final = timedelta(seconds=60)
_MINUTE: Final = 60_000
_HOURS: Final = 120 * _MINUTE
_CLOCK: Final = "select floor(extract(epoch from statement_timestamp()) * 1000)::bigint"
_SHARED: Final = (
    "select count(distinct holder) = 2 from taskmq.lease where key like 'partition:%' and holder is not null"
)
_EMITTED: Final = "select s.name, o.kind from taskmq.occurrence o join taskmq.schedule s on s.id = o.schedule"
_ENDLESS_JOBS: Final = """
select o.job from taskmq.occurrence o join taskmq.schedule s on s.id = o.schedule join taskmq.job j on j.id = o.job
where s.name like 'cancel_other _ long'"""
_LIVES: Final = """
select s.name, o.instant, o.at, h.ended, h.state from taskmq.occurrence o join taskmq.schedule s on s.id = o.schedule
join taskmq.job_history h on h.id = o.job"""
_SUCCEEDED, _CANCELLED = CODES[JobState.SUCCEEDED], CODES[JobState.CANCELLED]

_JOBS: Final = """
import asyncio
import os
from taskmq import TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")


@app.task(name="run", queue="work", result=False)
async def run(seconds: float) -> None:
    await asyncio.sleep(seconds)
"""
# The policy of each schedule for missed instants, and the number of the 120 that it catches up.
_MISSING: Final[dict[str, tuple[ScheduleOptions, int]]] = {
    name: ({**options, "late_after": "1s", "catchup_rate": 500}, made_up)
    for name, options, made_up in (
        ("skip", ScheduleOptions(catchup="skip"), 0),
        ("once", ScheduleOptions(catchup="once"), 1),
        ("all", ScheduleOptions(catchup="all"), 100),
        ("limit", ScheduleOptions(catchup="all", catchup_limit=500), 120),
        ("window", ScheduleOptions(catchup="all", catchup_limit=500, catchup_window="30m"), 30),
    )
}
_PERIOD: Final = 500
# Longer than two periods: a third occurrence finds two running. The other one only ends by being cancelled.
_LONG, _ENDLESS = 2.0, 600.0
_LONG_OF: Final[dict[Overlap, float]] = {
    "skip": _LONG,
    "buffer_one": _LONG,
    "buffer_all": _LONG,
    "cancel_other": _ENDLESS,
}
_OVERLAPPING: Final[dict[str, tuple[float, ScheduleOptions]]] = {
    # However late a busy machine is, nothing counts as missed.
    "allow long": (_LONG, {"late_after": "5m"}),
    **{
        f"{overlap} {most} {'long' if seconds else 'short'}": (
            seconds,
            {"overlap": overlap, "max_concurrency": most, "late_after": "5m"},
        )
        for overlap, long in _LONG_OF.items()
        for most in (1, 2)
        for seconds in (0.0, long)
    },
}


class _Store:
    """The database, accessed by SQL."""

    def __init__(self, server: PostgreSQL, url: str) -> None:
        self._server = server
        self.url = url

    def rows(self, statement: str) -> list[list[str]]:
        return [line.split("|") for line in self._server.sql(statement, url=self.url).splitlines()]

    def says(self, statement: str) -> bool:
        return self.rows(statement) == [["t"]]

    def set_clock(self, now: int) -> None:
        """Set the store's clock to this time (ms since the epoch); it advances from there."""
        ahead = now - time.time_ns() // 1_000_000
        self._server.sql(
            "create or replace function taskmq.now_ms() returns bigint language sql stable parallel safe as "
            f"$$ {_CLOCK} + ({ahead}) $$",
            url=self.url,
        )


@pytest.fixture
def store(postgres_server: PostgreSQL, job_store_url: str) -> _Store:
    return _Store(postgres_server, job_store_url)


@pytest.fixture
def start(amqp_url: str, store: _Store, tmp_path: Path) -> Iterator[Commands]:
    with Commands(tmp_path, _JOBS, url=amqp_url, store=store.url) as commands:
        yield commands


@asynccontextmanager
async def _scheduling(url: str, store: _Store) -> AsyncGenerator[tuple[TaskMQ, Task[[float], Any]]]:
    """Set up the app and its task."""
    app = TaskMQ(url, store=store.url, name="faults")

    @app.task(name="run", queue="work", result=False)
    async def run(seconds: float) -> None: ...

    async with app:
        yield app, run


async def _until(holds: Callable[[], bool], what: str, *processes: Process) -> None:
    try:
        await until(holds, what, within=_PATIENCE, every=timedelta(milliseconds=500))
    except TimeoutError as error:
        raise AssertionError("\n".join([str(error), *(each.log[-3000:] for each in processes)])) from error


def test_each_schedule_catches_up_on_two_hours_without_schedulers_as_configured(
    start: Commands, store: _Store, amqp_url: str
) -> None:
    began = (time.time_ns() // 1_000_000 - _HOURS) // _MINUTE * _MINUTE
    # The schedules begin just after an instant, and nothing is due before the next one.
    store.set_clock(began + 100)

    async def main() -> dict[str, tuple[int, int, int]]:
        async with _scheduling(amqp_url, store) as (app, run):
            for name, (options, _) in _MISSING.items():
                await app.schedules.aadd(name, run, every("1m"), args=(0,), **options)
            worker, first = start("worker", "worker", "jobs:app"), start("first", "scheduler", "jobs:app")
            begun = f"select count(*) = {len(_MISSING)} from taskmq.schedule_due where next_at = {began + _MINUTE}"
            await _until(lambda: store.says(begun), "the schedules have begun", first)
            first.kill()
            assert store.rows(_EMITTED) == []

            # Of the 120 instants of the two hours the last one was missed two seconds ago.
            store.set_clock(began + _HOURS + 2_000)
            second = start("second", "scheduler", "jobs:app")
            total = sum(made_up for _, made_up in _MISSING.values())
            ended = f"select count(*) >= {total} from taskmq.job_history where state = {_SUCCEEDED}"
            await _until(lambda: store.says(ended), "everything is made up for", second, worker)
            found = {name: await app.schedules.astatus(name) for name in _MISSING}
            return {name: (each.fired, each.missed, each.coalesced) for name, each in found.items()}

    counts = asyncio.run(main())

    emitted = Counter((name, kind) for name, kind in store.rows(_EMITTED))
    assert emitted == {(name, "catchup"): made_up for name, (_, made_up) in _MISSING.items() if made_up}
    assert store.says("select count(*) = 0 from taskmq.job")
    assert counts == {
        name: (made_up, 120 - made_up, 119 if name == "once" else 0) for name, (_, made_up) in _MISSING.items()
    }


def test_overlapping_occurrences_follow_their_policy_while_processes_are_killed(
    start: Commands, store: _Store, amqp_url: str
) -> None:
    worker = start("worker", "worker", "jobs:app", "-c", "50")
    schedulers = [start(f"scheduler-{number}", "scheduler", "jobs:app") for number in range(2)]

    async def main() -> dict[str, tuple[int, int]]:
        await _until(lambda: store.says(_SHARED) and worker.consumes(), "both have partitions", *schedulers, worker)
        async with _scheduling(amqp_url, store) as (app, run):
            for name, (seconds, options) in _OVERLAPPING.items():
                await app.schedules.aadd(name, run, every(_PERIOD / 1000), args=(seconds,), **options)
            await _more_of_each(store, *schedulers, worker)
            schedulers[0].signal(signal.SIGKILL)
            os.kill(worker.inner_pid, signal.SIGKILL)
            # Occurrences of the dead scheduler are late by its lease, and then continue.
            await _more_of_each(store, *schedulers, worker)
            for name in _OVERLAPPING:
                await app.schedules.apause(name)
            for (job_id,) in store.rows(_ENDLESS_JOBS):
                # An occurrence cancelled by a newer one may just have ended.
                with suppress(JobConflict):
                    await app.jobs.acancel(job_id)
            await _until(lambda: store.says("select count(*) = 0 from taskmq.job"), "all have ended", worker)
            found = {name: await app.schedules.astatus(name) for name in _OVERLAPPING}
            return {name: (each.fired, each.skipped) for name, each in found.items()}

    counts = asyncio.run(main())

    lives: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in _OVERLAPPING}
    for name, *figures in store.rows(_LIVES):
        instant, began, ended, state = map(int, figures)
        lives[name].append((instant, began, ended, state))
    assert store.says(f"select count(*) = {sum(map(len, lives.values()))} from taskmq.job_history")
    for name, (seconds, options) in _OVERLAPPING.items():
        found, (fired, skipped) = sorted(lives[name]), counts[name]
        instants = [instant for instant, *_ in found]
        assert len(found) == len(set(instants)) == fired, name
        overlap, most = options.get("overlap", "allow"), options.get("max_concurrency", 1)
        together = _most_together([(began, ended) for _, began, ended, _ in found])
        assert together > 1 if overlap == "allow" else together <= most, (name, found)
        if seconds:
            assert together >= most, name
        if seconds == _LONG:
            assert (skipped > 0) is (overlap in ("skip", "buffer_one")), (name, skipped)
        assert seconds < _ENDLESS or {state for *_, state in found} == {_CANCELLED}, (name, found)
        if overlap in ("allow", "buffer_all"):
            assert instants == list(range(instants[0], instants[-1] + 1, _PERIOD)), name


async def _more_of_each(store: _Store, *processes: Process) -> None:
    """Wait until each schedule has more occurrences than now."""
    before = Counter(name for name, _ in store.rows(_EMITTED))

    def has_more() -> bool:
        now = Counter(name for name, _ in store.rows(_EMITTED))
        return all(now[name] >= before[name] + 3 for name in _OVERLAPPING)

    await _until(has_more, "more of each", *processes)


def _most_together(lives: list[tuple[int, int]]) -> int:
    """Return the most simultaneous ones; an end precedes a start of the same instant."""
    changes = sorted((at, by) for began, ended in lives for at, by in ((began, 1), (ended, -1)))
    return max(itertools.accumulate(by for _, by in changes))
