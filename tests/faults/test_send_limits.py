"""Limits that stored and sent jobs share while schedulers are killed (-9), counted by the server that the tasks call.

RabbitMQ, PostgreSQL and Redis, all real. Three queues in three partitions share a strict rate, and a concurrency
limit whose key is a function, with `send` to the same queues; an ordered queue has keys with retries in both lanes.
`$TASKMQ_TEST_SEND_LIMIT_KILLS` schedulers are killed (default 2), one every ten seconds.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from taskmq import Concurrency, Context, RateLimit, RetryPolicy, Task, TaskMQ, WorkQueue
from tests.faults.called_server import CalledServer, HeldUp, call, find_queues, hold_call, most_in_a_second
from tests.faults.nursery import Nursery
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time, pytest.mark.campaign]

_KILLS: Final = int(os.environ.get("TASKMQ_TEST_SEND_LIMIT_KILLS", "2"))
_EVERY: Final = 10.0
# In this time.
_CALLS: Final = 200
_RATE: Final = 20
_LANES: Final = ("stored", "sent")
_ACCOUNTS: Final = ("north", "South")
_BOOKED: Final = 2
"""Runs of each account, queue and lane for each kill."""
_STEPS: Final = 10
"""Runs of each ordered key for each kill."""
_JOBS: Final = "from tests.faults.test_send_limits import make_app\napp = make_app()\n"


def make_app() -> TaskMQ:
    """Return the app of the workers, the schedulers and the test."""
    url, store, state, port = (os.environ[f"FAULTS_{name}"] for name in ("URL", "STORE", "STATE", "PORT"))
    app = TaskMQ(url, store=store, state=state, name="faults", queues=[WorkQueue("line", ordered=2)])
    accounts = Concurrency(1, key=lambda account, number: account.lower(), name="accounts")
    held_up = HeldUp()

    async def ask(caller: str, number: int) -> None:
        began = time.monotonic()
        held_up.watch()
        await asyncio.sleep(0.03)
        await call(int(port), caller=caller, number=number, began=began, is_held_up=held_up.was_held_up(began))

    async def book(account: str, number: int) -> None:
        async with hold_call(int(port), key=account.lower(), number=number):
            await asyncio.sleep(0.02)

    for queue in find_queues():
        app.task(name=f"ask-{queue}", queue=queue, rate_limit=RateLimit("20/s", name="api", strict=True))(ask)
        app.task(name=f"book-{queue}", queue=queue, retry=None, concurrency=accounts)(book)

    @app.task(name="step", queue="line", order_key="key", retry=RetryPolicy(base="100ms", max_attempts=3))
    async def step(context: Context, key: str, number: int) -> None:
        async with hold_call(int(port), key=key, number=number):
            await asyncio.sleep(0.02)
        if number % 5 == 0 and context.attempt == 1:
            raise ValueError(number)

    return app


@asynccontextmanager
async def _serve(port: int) -> AsyncGenerator[CalledServer]:
    server = CalledServer()
    async with await asyncio.start_server(server.serve, "127.0.0.1", port):
        yield server


async def _give(app: TaskMQ, lane: str, task: Task[..., Any], arguments: list[tuple[Any, ...]]) -> None:
    if lane == "stored":
        await app.jobs.asubmit_many(task, arguments)
    else:
        for each in arguments:
            await task.asend(*each)


@pytest.mark.timeout(300 + 60 * _KILLS)
async def test_limits_hold_over_partitions_both_lanes_and_killed_schedulers(
    amqp_url: str,
    redis_url: str,
    job_store_url: str,
    tmp_path: Path,
    free_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {"url": amqp_url, "store": job_store_url, "state": redis_url, "port": str(free_tcp_port)}
    for name, value in variables.items():
        monkeypatch.setenv(f"FAULTS_{name.upper()}", value)
    app, queues, calls = make_app(), find_queues(), _CALLS * (_KILLS + 1)
    with Nursery(tmp_path, _JOBS, **variables) as nursery:
        async with _serve(free_tcp_port) as server, app:
            for lane in _LANES:
                for queue in queues:
                    if lane == "stored":
                        # Each queue alone could use the whole rate.
                        asked = [(f"{lane} {queue}", number) for number in range(calls)]
                        await _give(app, lane, app.tasks[f"ask-{queue}"], asked)
                    booked = [(account, number) for number in range(_BOOKED * _KILLS) for account in _ACCOUNTS]
                    await _give(app, lane, app.tasks[f"book-{queue}"], booked)
                steps = [(f"{lane} {key}", number) for number in range(_STEPS * _KILLS) for key in "ab"]
                await _give(app, lane, app.tasks["step"], steps)
            for number in range(2):
                nursery.start_worker(f"worker-{number}", concurrency=50)
            sending = asyncio.create_task(_keep_sending(app, server, queues))
            await _kill_schedulers(nursery, server)
            sending.cancel()
            runs = len(_LANES) * len(queues) * _BOOKED * _KILLS
            await until(
                lambda: (
                    all(len(server.runs[account.lower()]) >= runs for account in _ACCOUNTS)
                    and all(len(server.order(f"{lane} {key}")) == _STEPS * _KILLS for lane in _LANES for key in "ab")
                ),
                "all runs with keys",
                within=timedelta(seconds=120 + 30 * _KILLS),
            )

    _check(server, queues)


async def _keep_sending(app: TaskMQ, server: CalledServer, queues: list[str]) -> None:
    """Keep a few sent calls waiting in each queue: a limit's line is in the order of arrival."""
    for number in count():
        for queue in queues:
            await app.tasks[f"ask-{queue}"].asend(f"sent {queue}", number)
        await until(
            lambda number=number: sum(server.calls[f"sent {queue}"] for queue in queues) > len(queues) * (number - 5),  # type: ignore[misc]
            "sent calls",
            within=timedelta(seconds=120),
        )


async def _kill_schedulers(nursery: Nursery, server: CalledServer) -> None:
    numbers = count()
    schedulers = [nursery.start_scheduler(f"scheduler-{next(numbers)}") for _ in range(2)]
    await until(lambda: server.calls.total() > 0, "a call", within=timedelta(seconds=90))
    began = time.monotonic()
    for killed in range(1, _KILLS + 1):
        await until(
            lambda at=began + killed * _EVERY: time.monotonic() >= at,  # type: ignore[misc]
            "the next kill",
            within=timedelta(seconds=2 * _EVERY),
        )
        schedulers.pop(0).kill()
        schedulers.append(nursery.start_scheduler(f"scheduler-{next(numbers)}"))
    calls = server.calls.total() + _CALLS
    await until(lambda: server.calls.total() >= calls, "the last calls", within=timedelta(seconds=120))
    seconds, calls = time.monotonic() - began, server.calls.total()
    print(
        f"\n{_KILLS} schedulers killed, {calls} calls, {calls / seconds:.1f} a second over {seconds:.0f} s, at most "
        f"{most_in_a_second(server.all_starts)} in any second, {most_in_a_second(server.starts)} without the "
        f"{calls - len(server.starts)} that the machine held up, "
        f"load {os.getloadavg()[0]:.1f}; {dict(server.calls)}"
    )


def _check(server: CalledServer, queues: list[str]) -> None:
    assert most_in_a_second(server.starts) <= _RATE
    assert server.calls.keys() == {f"{lane} {queue}" for lane in _LANES for queue in queues}
    for key, runs in sorted(server.runs.items()):
        overlaps = server.overlaps(key)
        print(f"{key}: {len(runs)} runs, {len(overlaps)} overlaps")
        # The next holder of a partition may publish a job again, which then runs once more.
        assert all(one == other for one, other in overlaps), overlaps
    for key in (f"{lane} {key}" for lane in _LANES for key in "ab"):
        assert server.order(key) == list(range(_STEPS * _KILLS))
        attempts = [number for _, _, number in server.runs[key]]
        assert all(attempts.count(number) > 1 for number in range(0, _STEPS * _KILLS, 5))
