"""Programs for tests with several processes: `python -m tests.unit.local.actors ROLE URL ...`.

Each reports its actions on standard output, a line at a time and unbuffered; it runs until it is killed or its
standard input ends.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from taskmq.client.plugins import open_broker, open_state
from taskmq.contracts.broker import Broker, BrokerOptions, Delivery, Subscription
from taskmq.contracts.stores import ResultRecord
from taskmq.model.states import JobState
from taskmq.model.topology import WorkQueue
from tests.unit.local.kit import message


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def wait_for_end_of_input() -> None:
    """Wait until standard input ends."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def hold(broker: Broker, count: str) -> None:
    """Consume `count` messages without settling them."""

    def deliver(delivery: Delivery) -> None:
        say("has", delivery.body.decode())

    await broker.consume([Subscription("q", int(count))], deliver)
    await wait_for_end_of_input()


async def consume(broker: Broker, prefetch: str) -> None:
    """Acknowledge every message; report each arrival."""

    def deliver(delivery: Delivery) -> None:
        say("got", delivery.body.decode(), time.time_ns(), int(delivery.redelivered))
        delivery.ack()

    await broker.consume([Subscription("q", int(prefetch))], deliver)
    say("ready")
    await wait_for_end_of_input()


async def produce(broker: Broker, start: str, count: str) -> None:
    """Publish with a window of 50; report each confirm."""
    window = asyncio.Semaphore(50)

    def report_confirm(text: str, future: asyncio.Future[None]) -> None:
        window.release()
        if not future.cancelled() and future.exception() is None:
            say("sent", text)

    last: asyncio.Future[None] | None = None
    for number in range(int(start), int(start) + int(count)):
        await window.acquire()
        last = broker.publish(message(str(number)), timeout=30)
        last.add_done_callback(partial(report_confirm, str(number)))
    if last is not None:
        await last
    say("done")


async def begin(broker: Broker, text: str) -> None:
    """Open the directory as one of its first users."""
    await broker.declare([WorkQueue("q")])
    await broker.publish(message(text), timeout=30)
    say("begun")


async def put(url: str, *job_ids: str) -> None:
    """Store a result for each input line."""
    state = open_state(url, BrokerOptions())
    loop = asyncio.get_running_loop()
    say("ready")
    for job_id in job_ids:
        await loop.run_in_executor(None, sys.stdin.readline)
        record = ResultRecord(job_id=job_id, task="t", state=JobState.SUCCEEDED, attempt=1, finished=time.time_ns())
        await state.results.put(record, ttl=60)
    await state.aclose()


async def with_broker(role: str, url: str, arguments: list[str]) -> None:
    roles: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
        "hold": hold,
        "consume": consume,
        "produce": produce,
        "begin": begin,
    }
    broker = open_broker(url, BrokerOptions(name=f"test {role}"))
    await roles[role](broker, *arguments)
    await broker.aclose()


def main() -> None:
    role, url, *arguments = sys.argv[1:]
    program: Coroutine[Any, Any, None] = put(url, *arguments) if role == "put" else with_broker(role, url, arguments)
    asyncio.run(program)


if __name__ == "__main__":
    main()
