"""Three replicas of beat under faults: every instant of every schedule is executed exactly once.

`$TASKMQ_TEST_BEAT_SCHEDULES` schedules of one second (default 20) for `$TASKMQ_TEST_BEAT_SECONDS` (default 8), one
replica killed every `$TASKMQ_TEST_BEAT_KILL_EVERY` seconds (default 6), one frozen for `$TASKMQ_TEST_BEAT_FREEZE`
(default 11, longer than a lease) and thawed, Redis restarted once in the middle. The whole campaign is 1000 schedules
for 300 seconds, a kill every 20, a freeze of 30.
"""

import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from tests.faults.field import Commands, Process
from tests.faults.ledger import Ledger
from tests.servers import RabbitMQ, Redis
from tests.servers.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

SCHEDULES = int(os.environ.get("TASKMQ_TEST_BEAT_SCHEDULES", "20"))
SECONDS = float(os.environ.get("TASKMQ_TEST_BEAT_SECONDS", "8"))
KILL_EVERY = float(os.environ.get("TASKMQ_TEST_BEAT_KILL_EVERY", "6"))
FREEZE = float(os.environ.get("TASKMQ_TEST_BEAT_FREEZE", "11"))
REPLICAS = 3
WORKERS = int(os.environ.get("TASKMQ_TEST_BEAT_WORKERS", "1"))

JOBS = """
import os, time
from taskmq import Context, TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], state=os.environ["FAULTS_STATE"], name="faults")

LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="tick", queue="ticks", result=False, idempotency_ttl="15m")
async def tick(ctx: Context) -> None:
    due = round(ctx.scheduled_for.timestamp() * 1000)
    os.write(LEDGER, f"{ctx.schedule} {due} {ctx._envelope.enqueued} {time.time_ns() // 1_000_000}\\n".encode())


for number in range(int(os.environ["FAULTS_SCHEDULES"])):
    app.every("1s", name=f"s{number}", late_after="5m")(tick)
"""


@dataclass(frozen=True, slots=True)
class Tick:
    """A run. Times are in ms."""

    schedule: str
    due: int
    emitted: int
    ran: int


def _tick_of(line: str) -> Tick:
    schedule, due, emitted, ran = line.split()
    return Tick(schedule, int(due), int(emitted), int(ran))


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.mark.timeout(240 + 2 * SECONDS)
def test_every_instant_is_executed_once_whatever_happens_to_the_replicas(
    rabbitmq_server: RabbitMQ, amqp_url: str, redis: Redis, tmp_path: Path
) -> None:
    with Commands(tmp_path, JOBS, url=amqp_url, state=redis.url, schedules=str(SCHEDULES)) as start:
        workers = [start(f"worker-{number}", "worker", "jobs:app", "-c", "100") for number in range(WORKERS)]
        for worker in workers:
            _until(worker.consumes, "the worker consumes", worker)
        names = (f"beat-{number}" for number in itertools.count())
        beats = [start(next(names), "beat", "jobs:app") for _ in range(REPLICAS)]
        runs = Ledger(tmp_path / "runs", _tick_of)
        _until(lambda: len({tick.schedule for tick in _all(runs)}) == SCHEDULES, "every schedule runs", *beats)

        began = time.time_ns() // 1_000_000 // 1000 * 1000 + 1000
        frozen = beats.pop()
        frozen.signal(signal.SIGSTOP)
        kills, thaws_at, restarts_at = 0, time.monotonic() + FREEZE, time.monotonic() + SECONDS / 2
        ends_at, next_kill = time.monotonic() + SECONDS, time.monotonic() + KILL_EVERY
        is_frozen, is_restarted = True, False
        while (now := time.monotonic()) < ends_at or is_frozen or not is_restarted:
            if now >= next_kill:
                beats.pop(0).signal(signal.SIGKILL)
                beats.append(start(next(names), "beat", "jobs:app"))
                kills, next_kill = kills + 1, now + KILL_EVERY
            if is_frozen and now >= thaws_at:
                frozen.signal(signal.SIGCONT)
                beats.append(frozen)
                is_frozen = False
            if not is_restarted and now >= restarts_at:
                redis.restart()
                is_restarted = True
            time.sleep(0.05)
        ended = time.time_ns() // 1_000_000 // 1000 * 1000
        expected = {(f"s{number}", due) for number in range(SCHEDULES) for due in range(began, ended, 1000)}
        with contextlib.suppress(TimeoutError):
            eventually(
                lambda: expected <= {(tick.schedule, tick.due) for tick in _all(runs)},
                "everything has run",
                within=timedelta(seconds=90),
            )
        # A duplicate may come later.
        time.sleep(min(FREEZE, 3))
        _judge(_all(runs), expected, kills, rabbitmq_server)
        for beat in beats:
            beat.signal(signal.SIGTERM)
            assert beat.wait(30) == 0, beat.log[-4000:]


def _judge(ticks: list[Tick], expected: set[tuple[str, int]], kills: int, server: RabbitMQ) -> None:
    counts = Counter((tick.schedule, tick.due) for tick in ticks)
    missing = sorted(expected - counts.keys())
    twice = sorted(key for key, count in counts.items() if count > 1)
    counted = [tick for tick in ticks if (tick.schedule, tick.due) in expected]
    print(
        f"\n{SCHEDULES} schedules, {len(expected)} instants, {kills} replicas killed, {server.version}: "
        f"{len(missing)} missing, {len(twice)} twice; late p50/p99/max: "
        f"emitted {_percentiles([t.emitted - t.due for t in counted])}, "
        f"run {_percentiles([t.ran - t.due for t in counted])}; load {os.getloadavg()[0]:.1f}"
    )
    assert not missing, missing[:20]
    assert not twice, twice[:20]


def _percentiles(values: list[int]) -> str:
    ordered = sorted(values)
    return "/".join(str(ordered[min(int(len(ordered) * part), len(ordered) - 1)]) for part in (0.5, 0.99, 1)) + " ms"


def _all(runs: Ledger[Tick]) -> list[Tick]:
    runs.refresh()
    return runs.entries


def _until(holds: Callable[[], bool], what: str, *processes: Process) -> None:
    try:
        eventually(holds, what, within=timedelta(seconds=60))
    except TimeoutError as error:
        logs = "\n".join(f"== {each.name}\n{each.log[-3000:]}" for each in processes)
        raise AssertionError(f"{error}\n{logs}") from error
