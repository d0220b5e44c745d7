"""`local://` with real processes, which are killed, stopped and raced."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions, Subscription
from taskmq.model.states import JobState
from taskmq.testing.broker_suite.case import peek
from taskmq_local import open_local_broker, open_local_state
from taskmq_local.broker.broker import LocalBroker
from tests.servers.waiting import until
from tests.unit.local.kit import PATIENCE, Inbox, declare, run, send
from tests.unit.local.stage import Actor

pytestmark = pytest.mark.real_time

# The promised times; the measured ones are printed, see `pytest -rP`.
_DEAD_OWNER_FOUND_WITHIN = 5.0
_WAKE_UP_WITHIN_MS = 200


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"local://{tmp_path}/queue"


@pytest.fixture
def stage() -> Iterator[ExitStack]:
    with ExitStack() as actors:
        yield actors


def open_local(url: str) -> LocalBroker:
    return open_local_broker(url, BrokerOptions())


async def test_only_messages_of_a_killed_consumer_go_to_another_process(url: str, stage: ExitStack) -> None:
    inbox, broker = Inbox(), open_local(url)
    await declare(broker)
    await send(broker, *(str(number) for number in range(80)))
    holder = stage.enter_context(Actor("hold", url, 50))
    await asyncio.to_thread(holder.has_printed, 50)
    await broker.consume([Subscription("q", 1000)], inbox)
    await until(lambda: len(inbox) == 30)

    holder.kill()
    killed = time.monotonic()
    await until(lambda: len(inbox) == 80, within=timedelta(seconds=_DEAD_OWNER_FOUND_WITHIN))
    print(f"dead owner found after {time.monotonic() - killed:.2f} s")

    assert sorted(holder.texts, key=int) == [str(number) for number in range(50)]
    assert inbox.texts[30:] == [str(number) for number in range(50)]
    assert all(delivery.redelivered for delivery in inbox[30:])
    assert not any(delivery.redelivered for delivery in inbox[:30])
    await broker.aclose()


def test_every_message_confirmed_to_a_killed_producer_exists(url: str, stage: ExitStack) -> None:
    async def main() -> None:
        broker = open_local(url)
        await declare(broker)
        producer = stage.enter_context(Actor("produce", url, 0, 1_000_000))
        await asyncio.to_thread(producer.has_printed, 3_000)

        producer.kill()

        confirmed = producer.texts
        async with peek(broker, "q", limit=1_000_000) as held:
            there = [delivery.body.decode() for delivery in held]
        assert set(confirmed) <= set(there)
        assert there == [str(number) for number in range(len(there))]
        assert len(there) <= len(confirmed) + 50
        await broker.aclose()

    run(main(), within=60)


@pytest.mark.nightly(
    "tests/integration/test_local_processes.py::test_only_messages_of_a_killed_consumer_go_to_another_process"
)
async def test_a_stopped_process_keeps_its_messages_and_can_settle_them_later(url: str, stage: ExitStack) -> None:
    inbox, broker = Inbox(), open_local(url)
    await declare(broker)
    await send(broker, "1", "2", "3")
    holder = stage.enter_context(Actor("hold", url, 2))
    await asyncio.to_thread(holder.has_printed, 2)
    await broker.consume([Subscription("q", 10)], inbox)
    await until(lambda: len(inbox) == 1)

    holder.pause()
    # The maximum lease of a dead consumer: at least three polls.
    await asyncio.sleep(3.5)
    assert inbox.texts == ["3"]

    holder.resume()
    await asyncio.to_thread(holder.end)
    await until(lambda: inbox.texts == ["3", "1", "2"])
    await broker.aclose()


async def test_a_consumer_in_another_process_is_woken_at_once(url: str, stage: ExitStack) -> None:
    broker = open_local(url)
    await declare(broker)
    consumer = stage.enter_context(Actor("consume", url, 10))
    await asyncio.to_thread(consumer.has_printed, 1)
    sent: list[int] = []

    for number in range(60):
        sent.append(time.time_ns())
        await send(broker, str(number))
        await asyncio.to_thread(consumer.has_printed, number + 2)

    got = [int(line[2]) for line in consumer.lines[1:]]
    late = [(one - other) / 1e6 for one, other in zip(got, sent, strict=True)]
    print(f"publish to delivery: median {statistics.median(late):.2f} ms, longest {max(late):.2f} ms")
    assert statistics.median(late) < _WAKE_UP_WITHIN_MS
    await broker.aclose()


@pytest.mark.nightly("tests/integration/test_local_processes.py::test_order_is_kept_across_processes")
async def test_processes_that_open_a_new_directory_at_the_same_time_all_succeed(url: str, stage: ExitStack) -> None:
    actors = [stage.enter_context(Actor("begin", url, number)) for number in range(4)]

    for actor in actors:
        await asyncio.to_thread(actor.finish)

    broker = open_local(url)
    async with peek(broker, "q", limit=10) as held:
        assert sorted(delivery.body for delivery in held) == [b"0", b"1", b"2", b"3"]
    await broker.aclose()


@pytest.mark.nightly("tests/integration/test_local_processes.py::test_a_consumer_in_another_process_is_woken_at_once")
async def test_thousands_of_waiters_learn_of_results_that_another_process_stores(url: str, stage: ExitStack) -> None:
    state = open_local_state(url, BrokerOptions())
    names = [f"job{number}" for number in range(20)]
    never = [asyncio.create_task(state.results.wait(f"never{number}", timeout=60)) for number in range(3_000)]
    putter = stage.enter_context(Actor("put", url, *names))
    await asyncio.to_thread(putter.has_printed, 1)
    late: list[float] = []

    for name in names:
        waiting = [asyncio.create_task(state.results.wait(name, timeout=PATIENCE)) for _ in range(2)]
        await asyncio.sleep(0.01)
        putter.tell()
        for record in await asyncio.gather(*waiting):
            assert record is not None
            assert (record.job_id, record.state) == (name, JobState.SUCCEEDED)
            late.append((time.time_ns() - record.finished) / 1e6)

    print(f"put to waiter: median {statistics.median(late):.2f} ms, longest {max(late):.2f} ms")
    assert statistics.median(late) < _WAKE_UP_WITHIN_MS
    assert not any(task.done() for task in never)
    for task in never:
        task.cancel()
    await asyncio.wait(never)
    await state.aclose()


async def test_order_is_kept_across_processes(url: str, stage: ExitStack) -> None:
    broker = open_local(url)
    await declare(broker)
    consumer = stage.enter_context(Actor("consume", url, 37))
    producer = stage.enter_context(Actor("produce", url, 0, 5_000))

    await asyncio.to_thread(producer.finish)
    await asyncio.to_thread(consumer.has_printed, 5_001)

    assert consumer.texts == [str(number) for number in range(5_000)]
    await broker.aclose()


async def test_files_left_by_killed_processes_are_cleaned_up(url: str, stage: ExitStack) -> None:
    root = Path(url.removeprefix("local://"))

    broker = open_local(url)
    await declare(broker)
    consumer = stage.enter_context(Actor("consume", url, 10))
    await asyncio.to_thread(consumer.has_printed, 1)
    consumer.kill()
    (stats,) = await broker.stats(["q"])
    assert stats.consumers == 0

    await send(broker, "1")

    assert list((root / "wake").iterdir()) == []
    assert list((root / "owners").iterdir()) == []
    await broker.aclose()


@pytest.mark.nightly(
    "tests/integration/test_local_processes.py::test_every_message_confirmed_to_a_killed_producer_exists"
)
def test_nothing_is_lost_while_processes_send_and_are_killed_at_random(url: str, stage: ExitStack) -> None:
    chance = random.Random(20_251_121)

    async def main() -> None:
        broker = open_local(url)
        await declare(broker)
        producers: list[Actor] = []
        consumers: list[Actor] = []
        started = 0

        def start_producer() -> Actor:
            nonlocal started
            started += 1
            return stage.enter_context(Actor("produce", url, started * 1_000_000, 1_000_000))

        running = [start_producer(), start_producer()]
        eating = [stage.enter_context(Actor("consume", url, 50)) for _ in range(2)]
        for _ in range(12):
            victim, of = chance.randrange(2), chance.choice([running, eating])
            # It is killed at work, however busy the machine is.
            await asyncio.to_thread(of[victim].has_printed, chance.randrange(200, 600), within=60)
            of[victim].kill()
            if of is running:
                producers.append(running[victim])
                running[victim] = start_producer()
            else:
                consumers.append(eating[victim])
                eating[victim] = stage.enter_context(Actor("consume", url, 50))
        for actor in running:
            actor.kill()
        producers += running

        async def is_empty() -> bool:
            (stats,) = await broker.stats(["q"])
            return not stats.ready and not stats.unsettled

        await until(is_empty)
        for actor in eating:
            await asyncio.to_thread(actor.end)
        consumers += eating

        confirmed = [text for actor in producers for text in actor.texts]
        came = Counter(text for actor in consumers for text in actor.texts)
        doubled = sum(count - 1 for count in came.values())
        killed = len(consumers) - 2
        print(
            f"{len(confirmed):,} confirmed, {len(came):,} came, {doubled} of them twice, "
            f"{killed} consumers and {len(producers) - 2} producers killed"
        )
        assert len(confirmed) > 1_000
        assert set(confirmed) <= set(came)
        # A killed producer may have been unable to report at most one window.
        assert len(came) <= len(confirmed) + 50 * len(producers)
        # Only unacked messages of a killed consumer came twice: acknowledged, but not yet committed.
        assert doubled <= 50 * 2 * killed
        assert await broker.purge("q") == 0
        await broker.aclose()

    run(main(), within=100)
