"""Workers are replaced under load, again and again: nothing is lost, and nothing runs twice.

`$TASKMQ_TEST_ROLLING_RATE` tasks a second (default 100) for `$TASKMQ_TEST_ROLLING_SECONDS` (default 5); the whole
campaign is 1000 for 60.
"""

import os
import re
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.field import Field, Process
from tests.faults.producer import Order
from tests.servers import RabbitMQ

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]

RATE = int(os.environ.get("TASKMQ_TEST_ROLLING_RATE", "100"))
SECONDS = int(os.environ.get("TASKMQ_TEST_ROLLING_SECONDS", "5"))
WORKERS = 3
QUEUE = "rolling"
LANES = max(32, RATE // 8)
# Long enough that a replaced worker holds some tasks.
NAP = 0.02
REPLACED = "all processes were replaced"


@pytest.mark.timeout(180 + 2 * SECONDS)
def test_a_restart_one_by_one_under_load_loses_nothing_and_runs_nothing_twice(
    rabbitmq_server: RabbitMQ, amqp_url: str, tmp_path: Path
) -> None:
    with Field(tmp_path, amqp_url, [QUEUE], nap=NAP) as field:
        worker = field.start_worker("worker", QUEUE, "-c", "32", "--processes", str(WORKERS))
        field.until(worker.consumes, "the first process consumes", 60)
        field.until(lambda: field.consumers()[0] == WORKERS, "all processes consume", 60)
        began = _produce(field)
        rolls = 0
        while time.monotonic() - began < SECONDS or not rolls:
            worker.signal(signal.SIGHUP)
            rolls += 1
            field.until(lambda: worker.log.count(REPLACED) >= rolls, f"restart {rolls}", 60)  # noqa: B023
            assert field.consumers()[0] >= WORKERS
        _judge(field, f"{rolls} restarts of {WORKERS} processes, {rabbitmq_server.version}")
        assert "starting another" not in worker.log


@pytest.mark.timeout(180 + 2 * SECONDS)
def test_a_deploy_worker_by_worker_under_load_loses_nothing_and_runs_nothing_twice(
    rabbitmq_server: RabbitMQ, amqp_url: str, tmp_path: Path
) -> None:
    with Field(tmp_path, amqp_url, [QUEUE], nap=NAP) as field:
        there = [field.start_worker(f"worker-{number}", QUEUE, "-c", "32") for number in range(WORKERS)]
        field.until(lambda: all(worker.consumes() for worker in there), "all workers consume", 60)
        began = _produce(field)
        replaced = 0
        while time.monotonic() - began < SECONDS or replaced < WORKERS:
            old = there.pop(0)
            new = field.start_worker(f"worker-{WORKERS + replaced}", QUEUE, "-c", "32")
            field.until(new.consumes, f"{new.name} consumes", 60)
            old.signal(signal.SIGTERM)
            assert old.wait(60) == 0, old.log[-4000:]
            there.append(new)
            replaced += 1
        for worker in field.workers[:-WORKERS]:
            assert worker.has_ended
        _judge(field, f"{replaced} workers replaced, {rabbitmq_server.version}", running=there)


def _produce(field: Field) -> float:
    """Start the load; return its start by the monotonic clock."""
    seen = len(field.runs.refresh())
    field.start_producer(Order(name="load", queues=(QUEUE,), mode="asend", lanes=LANES, rate=RATE))
    field.until(lambda: len(field.runs.refresh()) > seen, "the load runs", 60)
    return time.monotonic()


def _judge(field: Field, what: str, *, running: list[Process] | None = None) -> None:
    field.stop_producers()
    field.drain()
    for worker in running or field.workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait(60) == 0, worker.log[-4000:]
    verdict = field.verdict()
    drains = sorted(
        float(seconds) for worker in field.workers for seconds in re.findall(r"drained in ([\d.]+) s", worker.log)
    )
    runs = sorted(run.at for run in field.runs.entries)
    silence = max((after - before for before, after in pairwise(runs)), default=0)
    rate = 1000 * len(runs) / max(runs[-1] - runs[0], 1)
    print(
        f"\n{what}: {rate:.0f} tasks/s; drain {drains[len(drains) // 2]:.2f} s in the middle, {drains[-1]:.2f} s at "
        f"most; longest silence {silence} ms; {verdict}"
    )
    assert verdict.wrong == {}
    assert verdict.duplicated == 0
    assert field.waiting() == 0
