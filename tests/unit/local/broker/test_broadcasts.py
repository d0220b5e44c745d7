"""Announcements in the SQLite file: their age, their number, and a lost wake-up."""

import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from taskmq.contracts.broker import BrokerOptions
from taskmq.testing import FakeClock
from taskmq_embedded.file_kind import open_file
from taskmq_local import open_local_broker
from taskmq_local.broker.broker import LocalBroker
from taskmq_local.broker.listener import last_broadcast, write_broadcast
from taskmq_local.database.schema import QUEUE_FILE
from tests.servers.waiting import until
from tests.unit.local.kit import run

Test = Callable[[LocalBroker, list[str]], Coroutine[Any, Any, None]]


def with_broker(folder: Path, test: Test, *, clock: FakeClock | None = None) -> None:
    async def main() -> None:
        options = BrokerOptions(name="test", clock=clock) if clock is not None else BrokerOptions(name="test")
        broker = open_local_broker(f"local://{folder}", options)
        assert isinstance(broker, LocalBroker)
        try:
            await test(broker, [])
        finally:
            await broker.aclose()

    run(main())


def rows(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "taskmq.db")) as connection:
        return [topic for (topic,) in connection.execute("SELECT topic FROM broadcasts ORDER BY seq")]


def test_announcements_older_than_half_a_minute_are_deleted_with_the_next_one(tmp_path: Path) -> None:
    clock = FakeClock(1_000_000)

    async def test(broker: LocalBroker, heard: list[str]) -> None:
        await broker.listen(["#"], lambda topic, _: heard.append(topic))
        broker.announce("old", b"")
        await until(lambda: heard == ["old"])
        clock.advance(29.9)
        broker.announce("young", b"")
        await until(lambda: heard == ["old", "young"])
        assert rows(tmp_path) == ["old", "young"]

        clock.advance(0.2)
        broker.announce("new", b"")
        await until(lambda: heard == ["old", "young", "new"])

    with_broker(tmp_path, test, clock=clock)
    assert rows(tmp_path) == ["young", "new"]


def test_only_the_newest_ten_thousand_are_kept_and_numbers_are_never_reused(tmp_path: Path) -> None:
    with closing(open_file(tmp_path / "taskmq.db", QUEUE_FILE)) as connection:
        assert last_broadcast(connection) == 0
        connection.execute("BEGIN")
        for number in range(10_005):
            write_broadcast(connection, f"t{number}", b"", now=1)
        connection.execute("COMMIT")

        assert connection.execute("SELECT count(*), min(seq) FROM broadcasts").fetchone() == (10_000, 6)
        write_broadcast(connection, "later", b"", now=100_000)
        assert connection.execute("SELECT seq FROM broadcasts").fetchall() == [(10_006,)]
        assert last_broadcast(connection) == 10_006


def test_a_listener_that_missed_its_wakeup_polls_within_about_a_second(tmp_path: Path) -> None:
    async def test(broker: LocalBroker, heard: list[str]) -> None:
        await broker.listen(["#"], lambda topic, _: heard.append(topic))
        with closing(sqlite3.connect(tmp_path / "taskmq.db")) as connection:
            write_broadcast(connection, "silent", b"", 1)
            connection.commit()

        await until(lambda: heard == ["silent"])

    with_broker(tmp_path, test)


def test_more_messages_than_one_poll_takes_arrive_in_order(tmp_path: Path) -> None:
    async def test(broker: LocalBroker, heard: list[str]) -> None:
        await broker.listen(["#"], lambda topic, _: heard.append(topic))
        topics = [f"t{number}" for number in range(1_700)]
        with closing(sqlite3.connect(tmp_path / "taskmq.db")) as connection:
            for topic in topics:
                write_broadcast(connection, topic, b"", 1)
            connection.commit()

        await until(lambda: len(heard) == len(topics))
        assert heard == topics

    with_broker(tmp_path, test)


def test_announcements_beyond_a_thousand_uncommitted_ones_are_dropped(tmp_path: Path) -> None:
    async def test(broker: LocalBroker, heard: list[str]) -> None:
        await broker.listen(["#"], lambda topic, _: heard.append(topic))

        taken = [broker.announce(f"t{number}", b"") for number in range(1_500)]

        assert (taken.count(True), taken[:1_000].count(False)) == (1_000, 0)
        await until(lambda: len(heard) == 1_000)
        assert broker.announce("again", b"")

    with_broker(tmp_path, test)


def test_a_stopped_listener_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test(broker: LocalBroker, heard: list[str]) -> None:
        first = await broker.listen(["#"], lambda topic, _: heard.append(topic))
        second = await broker.listen(["#"], lambda topic, _: heard.append(topic))
        assert len(list((tmp_path / "wake").iterdir())) == 2

        await first.stop()
        await second.stop()

        assert list((tmp_path / "wake").iterdir()) == []
        assert list((tmp_path / "owners").iterdir()) == []

    with_broker(tmp_path, test)
