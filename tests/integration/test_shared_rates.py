"""A strict rate of three queues in three partitions, without a state, seen by the server that the tasks call.

RabbitMQ and PostgreSQL, both real, and two schedulers of which one is killed (-9) after each 80 or 200 calls.
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
from taskmq.contracts.jobs import partition_of
from tests.faults.field import Commands, Process
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]

_KILLS: Final = int(os.environ.get("TASKMQ_TEST_RATE_KILLS", "30"))
_PATIENCE: Final = timedelta(seconds=90)
# About four and ten seconds.
_CALLS: Final = 80
_MORE_CALLS: Final = 200
_RATE: Final = 20
_APP: Final = """
import asyncio, os, time
from taskmq import RateLimit, TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], store=os.environ["FAULTS_STORE"], name="faults")
PORT = int(os.environ["FAULTS_PORT"])


watches = []
last_stall = 0.0


async def watch() -> None:
    global last_stall
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.005)
        if time.monotonic() - before > 0.02:
            last_stall = time.monotonic()


async def call(number: int) -> None:
    began = time.monotonic()
    if not watches:
        watches.append(asyncio.create_task(watch()))
    await asyncio.sleep(0.03)
    _, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"%d %f %d\\n" % (number, began, last_stall > began - 0.2))
    await writer.drain()
    writer.close()


for queue in os.environ["FAULTS_QUEUES"].split():
    app.task(name=f"call_{queue}", queue=queue, rate_limit=RateLimit("20/s", name="api", strict=True))(call)
"""


def _find_queues() -> list[str]:
    """Return three queues in three partitions."""
    found: dict[int, str] = {}
    for number in count():
        found.setdefault(partition_of(f"q{number}"), f"q{number}")
        if len(found) == 3:
            return list(found.values())
    raise AssertionError


class _Api:
    """A server that notes each call: its number, and when its task began, on the same machine.

    A busy machine may hold up a start after its worker has compared the clocks: such a start is not counted.
    """

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.starts: list[float] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, began, is_held_up = (await reader.readline()).split()
        self.calls.append(int(number))
        if not int(is_held_up):
            self.starts.append(float(began))
        writer.close()
        await writer.wait_closed()

    async def wait_for(self, calls: int) -> None:
        await until(lambda: len(self.calls) >= calls, f"{calls} calls", within=_PATIENCE)

    def most_in_a_second(self) -> int:
        times = sorted(self.starts)
        return max(
            (sum(at <= other < at + 1 for other in times[place:]) for place, at in enumerate(times)), default=0
        )


@pytest.fixture
def start(amqp_url: str, job_store_url: str, tmp_path: Path, free_tcp_port: int) -> Iterator[Callable[..., Process]]:
    queues = " ".join(_find_queues())
    with Commands(tmp_path, _APP, url=amqp_url, store=job_store_url, port=str(free_tcp_port), queues=queues) as it:
        yield it


@pytest.mark.timeout(150)
async def test_a_strict_rate_holds_over_partitions_and_killed_schedulers(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, free_tcp_port: int
) -> None:
    await _expect_strict_rate(start, amqp_url, job_store_url, free_tcp_port, kills=2, calls=_CALLS)


@pytest.mark.nightly(
    "tests/integration/test_shared_rates.py::test_a_strict_rate_holds_over_partitions_and_killed_schedulers"
)
@pytest.mark.timeout(40 * _KILLS + 150)
async def test_a_strict_rate_holds_for_a_long_time(
    start: Callable[..., Process], amqp_url: str, job_store_url: str, free_tcp_port: int
) -> None:
    await _expect_strict_rate(start, amqp_url, job_store_url, free_tcp_port, kills=_KILLS, calls=_MORE_CALLS)


async def _expect_strict_rate(
    start: Callable[..., Process], url: str, store: str, port: int, *, kills: int, calls: int
) -> None:
    queues, numbers, api = _find_queues(), count(), _Api()
    per_queue = (kills + 2) * calls
    async with (
        await asyncio.start_server(api.serve, "127.0.0.1", port),
        TaskMQ(url, store=store, name="faults") as app,
    ):
        for index, queue in enumerate(queues):
            task = app.task(name=f"call_{queue}", queue=queue, rate_limit=RateLimit("20/s", name="api", strict=True))(
                _call
            )
            await app.jobs.asubmit_many(task, [(index * per_queue + number,) for number in range(per_queue)])
        worker = start("worker", "worker", "jobs:app", "-c", "50")
        schedulers = [start(f"scheduler-{next(numbers)}", "scheduler", "jobs:app") for _ in range(2)]
        await api.wait_for(1)
        began = time.monotonic()
        for killed in range(1, kills + 1):
            await api.wait_for(killed * calls)
            schedulers.pop(0).signal(signal.SIGKILL)
            schedulers.append(start(f"scheduler-{next(numbers)}", "scheduler", "jobs:app"))
        await api.wait_for((kills + 1) * calls)
        await asyncio.to_thread(worker.kill)

    seconds = time.monotonic() - began
    print(
        f"{len(api.calls) / seconds:.1f} starts a second over {seconds:.0f} s, at most {api.most_in_a_second()} in "
        f"any second, {len(api.calls) - len(api.starts)} held up by the machine, {kills} schedulers killed, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    assert api.most_in_a_second() <= _RATE
    assert {number // per_queue for number in api.calls} == {0, 1, 2}


async def _call(number: int) -> None: ...
