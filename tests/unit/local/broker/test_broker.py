import asyncio
import json
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions, Outgoing, QueueStats, Subscription
from taskmq.errors import BrokerUnavailable, InvalidSetting, PublishRejected, PublishUnknown, Unroutable
from taskmq.model.topology import PARKING, UNROUTABLE
from taskmq.testing.broker_suite.case import peek
from taskmq.testing.fake_clock import FakeClock
from taskmq_embedded.work import Care
from taskmq_local import open_local_broker
from taskmq_local.broker.broker import LocalBroker
from taskmq_local.database.schema import QUEUE_FILE
from tests.servers.waiting import until
from tests.unit.local.kit import PATIENCE, Inbox, declare, message, ready, run, send

pytestmark = pytest.mark.real_time


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"local://{tmp_path}/queue"


def open_local(url: str, clock: FakeClock | None = None) -> LocalBroker:
    return open_local_broker(url, BrokerOptions(clock=clock) if clock else BrokerOptions())


def file_of(url: str) -> Path:
    return Path(url.removeprefix("local://")) / "taskmq.db"


def test_a_url_without_a_directory_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="names no directory"):
        open_local("local://")


async def test_a_relative_path_stays_fixed_when_the_process_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    broker = open_local("local://.taskmq")
    monkeypatch.chdir(tmp_path / "elsewhere")
    await broker.connect(timeout=PATIENCE)
    assert broker.address == "local://.taskmq"
    await broker.aclose()
    assert (tmp_path / ".taskmq" / "taskmq.db").exists()


async def test_declaring_creates_the_dead_letter_queue_and_the_shared_queues(url: str) -> None:
    broker = open_local(url)
    await declare(broker, "q")
    names = ["q.p.high", "q", "q.p.low", "q.dlq", PARKING, UNROUTABLE, "other"]

    assert [stats.queue for stats in await broker.stats(names)] == names[:-1]
    await broker.aclose()


async def test_a_delayed_message_joins_the_tail_of_its_queue_at_its_time(url: str) -> None:
    clock, inbox = FakeClock(), Inbox()
    broker = open_local(url, clock)
    await declare(broker)
    await send(broker, "2", "1", due=clock.now_ms() + 60_000)
    await send(broker, "0", due=clock.now_ms() + 59_999)
    await broker.consume([Subscription("q", 10)], inbox)
    await clock.wait_for_sleepers()

    clock.advance(59.998)
    await send(broker, "at once")
    await until(lambda: inbox.texts == ["at once"])
    assert await broker.stats(["q"]) == [QueueStats("q", ready=0, unsettled=1, delayed=3, consumers=1)]

    clock.advance(0.002)
    await until(lambda: inbox.texts == ["at once", "0", "2", "1"])
    await broker.aclose()


async def test_a_delayed_message_of_a_deleted_queue_goes_to_unroutable(url: str) -> None:
    clock = FakeClock()
    broker = open_local(url, clock)
    await declare(broker, "q", "r")
    await send(broker, "orphan", due=clock.now_ms() + 1_000)
    await send(broker, "other", queue="r", due=clock.now_ms() + 1_000)
    await broker.delete("q")

    clock.advance(1)

    async with peek(broker, UNROUTABLE, limit=5) as held:
        assert [delivery.body for delivery in held] == [b"orphan"]
        assert held[0].headers == {"x-taskmq-queue": "q"}
    assert await ready(broker, "r") == 1
    await broker.aclose()


async def test_a_deleted_queue_is_declared_again_by_its_users(url: str) -> None:
    inbox, declarer, other = Inbox(), open_local(url), open_local(url)
    await declare(declarer)
    consumer = await other.consume([Subscription("q", 10)], inbox)
    await other.delete("q")
    with pytest.raises(Unroutable):
        await other.publish(message("lost"), timeout=PATIENCE)
    await until(lambda: not consumer.healthy)

    await send(declarer, "kept")

    await until(lambda: inbox.texts == ["kept"])
    assert consumer.healthy
    await declarer.aclose()
    await other.aclose()


async def test_a_publish_waits_for_one_step_of_deleting_a_long_queue(url: str) -> None:
    broker = open_local(url)
    await declare(broker, "long", "other")
    await send(broker, *map(str, range(11_000)), queue="long")
    ended: list[str] = []

    deleting = asyncio.create_task(broker.delete("long"))
    deleting.add_done_callback(lambda _: ended.append("deleted"))
    # The deletion is queued in the file before the publish.
    await asyncio.sleep(0)
    await broker.publish(message("beside", queue="other"), timeout=PATIENCE)
    ended.append("published")

    assert await deleting == 11_000
    assert ended == ["published", "deleted"]
    await broker.aclose()


async def test_an_unstorable_message_fails_alone(url: str) -> None:
    broker = open_local(url)
    await declare(broker)
    bad = [
        message("surrogate", job_id="\udc80"),
        Outgoing(queue="q", body=b"", content_type="", job_id="", task="", enqueued=2**80),
        Outgoing(queue="q", body=b"", content_type="", job_id="", task="", due=2**80),
        message("no queue", queue="nowhere"),
    ]
    good = [message(str(number)) for number in range(250)]
    both = good[:100] + bad + good[100:]

    futures = [broker.publish(one, timeout=PATIENCE) for one in both]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)

    errors = [outcome for outcome in outcomes if outcome is not None]
    assert [type(error) for error in errors] == [PublishRejected] * 3 + [Unroutable]
    async with peek(broker, "q", limit=1000) as held:
        assert [delivery.body for delivery in held] == [one.body for one in good]
    await broker.aclose()


async def test_a_publish_to_a_locked_file_ends_at_its_deadline_and_sends_nothing_later(
    url: str,
) -> None:
    broker = open_local(url)
    await declare(broker)
    blocker = sqlite3.connect(file_of(url), isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    late = broker.publish(message("late"), timeout=0.15)
    patient = broker.publish(message("patient"), timeout=PATIENCE)
    with pytest.raises(BrokerUnavailable, match="locked by another process"):
        await late
    blocker.execute("ROLLBACK")
    blocker.close()
    await patient

    async with peek(broker, "q", limit=10) as held:
        assert [delivery.body for delivery in held] == [b"patient"]
    await broker.aclose()


async def test_a_late_batch_of_abandoned_calls_is_not_withdrawn(url: str) -> None:
    broker = open_local(url)
    await declare(broker)
    blocker = sqlite3.connect(file_of(url), isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    broker.publish_many([message("one"), message("two")], timeout=0.1).cancel()
    with pytest.raises(BrokerUnavailable, match="locked by another process"):
        await broker.publish(message("late"), timeout=0.2)
    blocker.execute("ROLLBACK")
    blocker.close()
    await broker.publish(message("last"), timeout=PATIENCE)

    async with peek(broker, "q", limit=10) as held:
        assert [delivery.body for delivery in held] == [b"one", b"two", b"last"]
    await broker.aclose()


async def test_late_calls_are_failed_in_one_batch_and_nothing_is_sent_later(url: str) -> None:
    broker = open_local(url)
    await declare(broker)
    blocker = sqlite3.connect(file_of(url), isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    outcomes = await broker.publish_many([message("one"), message("two")], timeout=0.15)
    assert [type(error) for error in outcomes] == [BrokerUnavailable] * 2
    blocker.execute("ROLLBACK")
    blocker.close()

    assert await ready(broker) == 0
    await broker.aclose()


class Obstacle:
    """A work that blocks in the middle of its transaction."""

    care = Care.DURABLE
    wakeups = ()

    def __init__(self) -> None:
        self.go = threading.Event()

    def seal(self) -> None: ...

    def run(self, connection: sqlite3.Connection) -> None:
        self.go.wait(PATIENCE)

    def end(self, error: Exception | None) -> None: ...


async def test_a_publish_that_is_committing_at_its_deadline_ends_as_unknown(url: str) -> None:
    broker, obstacle = open_local(url), Obstacle()
    await declare(broker)

    future = broker.publish(message("perhaps"), timeout=0.1)
    broker._database.submit(obstacle)

    with pytest.raises(PublishUnknown):
        await future
    obstacle.go.set()
    assert await ready(broker) == 1
    await broker.aclose()


async def test_a_full_disk_raises_a_typed_error_and_acks_are_retried_until_there_is_room(url: str) -> None:
    inbox, broker = Inbox(), open_local(url)
    await declare(broker)
    await broker.consume([Subscription("q", 10)], inbox)
    await send(broker, "small")
    await until(lambda: len(inbox) == 1)

    def limit(connection: sqlite3.Connection) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    await broker._database.call(limit, care=Care.READ)
    with pytest.raises(BrokerUnavailable, match="full"):
        await broker.publish(message("x" * 1_000_000), timeout=PATIENCE)
    # The limit ended with the failed connection: there is room again.
    await send(broker, "after")
    inbox[0].ack()
    await until(lambda: len(inbox) == 2)
    inbox[1].ack()
    await broker.aclose()

    other = open_local(url)
    assert await other.stats(["q"]) == [QueueStats("q", ready=0, unsettled=0, delayed=0, consumers=0)]
    await other.aclose()


async def test_failed_acks_are_written_later(url: str) -> None:
    inbox, broker = Inbox(), open_local(url)
    await declare(broker)
    await send(broker, "1", "2", "3")
    await broker.consume([Subscription("q", 10)], inbox)
    await until(lambda: len(inbox) == 3)
    hidden = file_of(url).with_name("hidden")

    file_of(url).rename(hidden)
    inbox[0].ack()
    inbox[1].requeue()
    await until(lambda: bool(broker._ledger and broker._ledger._failed))
    hidden.rename(file_of(url))

    await until(lambda: len(inbox) == 4)
    assert inbox[3].body == b"2"
    assert (await broker.stats(["q"]))[0].unsettled == 2
    await broker.aclose()


@pytest.mark.parametrize("obstacle", ["not a directory", "not a database", "too new"])
async def test_an_unusable_directory_raises_a_typed_error_with_the_reason(tmp_path: Path, obstacle: str) -> None:
    directory = tmp_path / "queue"
    if obstacle == "not a directory":
        directory.write_text("a file")
    else:
        directory.mkdir()
    if obstacle == "not a database":
        (directory / "taskmq.db").write_bytes(b"something else, and long enough to be read" * 100)
    if obstacle == "too new":
        connection = sqlite3.connect(directory / "taskmq.db")
        connection.execute(f"PRAGMA user_version = {QUEUE_FILE.version + 1}")
        connection.close()

    broker = open_local(f"local://{directory}")
    expected = {
        "not a directory": "File exists",
        "not a database": "not a database",
        "too new": "install the version of taskmq that upgraded it",
    }
    with pytest.raises(BrokerUnavailable, match=expected[obstacle]):
        await broker.connect(timeout=PATIENCE)
    with pytest.raises(BrokerUnavailable, match=expected[obstacle]):
        await broker.publish(message("1"), timeout=PATIENCE)
    with pytest.raises(BrokerUnavailable, match=expected[obstacle]):
        await broker.consume([Subscription("q", 1)], Inbox())
    await broker.aclose()


async def test_a_deleted_file_is_not_recreated_silently(url: str) -> None:
    broker = open_local(url)
    await declare(broker)
    file_of(url).unlink()

    with pytest.raises(BrokerUnavailable, match="removed or replaced"):
        await broker.publish(message("1"), timeout=PATIENCE)
    assert not file_of(url).exists()
    await broker.aclose()


async def test_closing_leaves_only_the_database(url: str) -> None:
    inbox, broker = Inbox(), open_local(url)
    await declare(broker)
    await send(broker, "1")
    await broker.consume([Subscription("q", 10)], inbox)
    await until(lambda: len(inbox) == 1)
    before = threading.active_count()

    await broker.aclose()

    assert threading.active_count() == before - 1
    left = sorted(name for _, _, names in os.walk(file_of(url).parent) for name in names)
    assert left == ["taskmq.db"]


async def test_large_messages_pass_through_unchanged(url: str) -> None:
    inbox, broker = Inbox(), open_local(url)
    await declare(broker)
    body = os.urandom(broker.max_message_bytes)
    outgoing = Outgoing(queue="q", body=body, content_type="x", job_id="1", task="t")
    await broker.publish(outgoing, timeout=PATIENCE)
    await broker.consume([Subscription("q", 10)], inbox)

    await until(lambda: len(inbox) == 1)

    assert inbox[0].body == body
    await broker.aclose()


def test_the_file_has_documented_tables(url: str) -> None:
    async def main() -> None:
        broker = open_local(url)
        await declare(broker)
        outgoing = Outgoing(
            queue="q",
            body=b"{}",
            content_type="application/json",
            job_id="j1",
            task="shop.pay",
            root="r1",
            enqueued=7,
            headers={"x-taskmq-attempt": 2},
        )
        await broker.publish(outgoing, timeout=PATIENCE)
        await broker.aclose()

    run(main())
    connection = sqlite3.connect(file_of(url))
    sql = "SELECT job_id, task, root, enqueued, content_type, headers FROM messages"
    (row,) = connection.execute(sql).fetchall()
    connection.close()
    assert row[:5] == ("j1", "shop.pay", "r1", 7, "application/json")
    assert json.loads(row[5]) == {"x-taskmq-attempt": 2}
