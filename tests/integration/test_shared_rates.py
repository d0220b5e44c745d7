"""A strict rate of three queues in three partitions, without a state, seen by the server that the tasks call.

RabbitMQ and PostgreSQL, both real, and two schedulers of which one is killed (-9) after 40 calls, or after each 200.
`$TASKMQ_TEST_RATE_KILLS` is the number of kills of the longer version (default 30).
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from taskmq import RateLimit, TaskMQ
from tests.faults.called_server import CalledServer, find_queues, most_in_a_second
from tests.faults.field import Commands, Process
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]

_KILLS: Final = int(os.environ.get("TASKMQ_TEST_RATE_KILLS", "30"))
_PATIENCE: Final = timedelta(seconds=90)
# About two and ten seconds.
_CALLS: Final = 40
_MORE_CALLS: Final = 200
_RATE: Final = 20
_APP: Final = """
import asyncio, os, time
from taskmq import RateLimit, TaskMQ
from tests.faults.called_server import HeldUp, call, find_queues

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")
PORT = int(os.environ["FAULTS_PORT"])
held_up = HeldUp()


async def ask(caller: str) -> None:
    began = time.monotonic()
    held_up.watch()
    await asyncio.sleep(0.03)
    await call(PORT, caller=caller, began=began, is_held_up=held_up.was_held_up(began))


for queue in find_queues():
    app.task(name=f"call_{queue}", queue=queue, rate_limit=RateLimit("20/s", name="api", strict=True))(ask)
"""


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path, free_tcp_port: int) -> Iterator[Callable[..., Process]]:
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url, port=str(free_tcp_port)) as it:
        yield it


@pytest.mark.nightly(
    "taskmq/testing/job_store_suite/dispatch/starts.py::test_schedulers_of_several_partitions_share_a_rate"
)
@pytest.mark.timeout(150)
async def test_a_strict_rate_holds_over_partitions_and_killed_schedulers(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, free_tcp_port: int
) -> None:
    await _expect_strict_rate(start, amqp_url, job_store_url, free_tcp_port, kills=1, calls=_CALLS)


@pytest.mark.nightly(
    "taskmq/testing/job_store_suite/dispatch/starts.py::test_schedulers_of_several_partitions_share_a_rate"
)
@pytest.mark.timeout(40 * _KILLS + 150)
async def test_a_strict_rate_holds_for_a_long_time(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, free_tcp_port: int
) -> None:
    await _expect_strict_rate(start, amqp_url, job_store_url, free_tcp_port, kills=_KILLS, calls=_MORE_CALLS)


async def _expect_strict_rate(
    start: Callable[..., Process], url: str, store: str, port: int, *, kills: int, calls: int
) -> None:
    queues, numbers, api = find_queues(), count(), CalledServer()
    per_queue = (kills + 2) * calls
    async with (
        await asyncio.start_server(api.serve, "127.0.0.1", port),
        TaskMQ(url, store=store, name="faults") as app,
    ):
        for queue in queues:
            task = app.task(name=f"call_{queue}", queue=queue, rate_limit=RateLimit("20/s", name="api", strict=True))(
                _call
            )
            await app.jobs.asubmit_many(task, [(queue,)] * per_queue)
        worker = start("worker", "worker", "jobs:app", "-c", "50")
        schedulers = [start(f"scheduler-{next(numbers)}", "scheduler", "jobs:app") for _ in range(2)]
        await _wait_for(api, 1)
        began = time.monotonic()
        for killed in range(1, kills + 1):
            await _wait_for(api, killed * calls)
            schedulers.pop(0).signal(signal.SIGKILL)
            schedulers.append(start(f"scheduler-{next(numbers)}", "scheduler", "jobs:app"))
        await _wait_for(api, (kills + 1) * calls)
        await asyncio.to_thread(worker.kill)

    seconds, called, most = time.monotonic() - began, api.calls.total(), most_in_a_second(api.starts)
    print(
        f"{called / seconds:.1f} starts a second over {seconds:.0f} s, at most {most} in "
        f"any second, {called - len(api.starts)} held up by the machine, {kills} schedulers killed, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    assert most <= _RATE
    assert api.calls.keys() == set(queues)


async def _wait_for(api: CalledServer, calls: int) -> None:
    await until(lambda: api.calls.total() >= calls, f"{calls} calls", within=_PATIENCE)


async def _call(caller: str) -> None: ...
