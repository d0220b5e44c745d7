"""Tests of broadcasts: each reaches every current listener once, in order."""

import asyncio
import unittest
from collections.abc import Collection
from typing import cast

from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Broadcasting, Listening
from taskmq.testing.broker_suite.case import BrokerCase
from taskmq.testing.runner import case, eventually


class BroadcastInbox:
    """A `receive` callback that collects messages."""

    def __init__(self, patience: float) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._patience = patience
        self._changed = asyncio.Event()

    def __call__(self, topic: str, body: bytes) -> None:
        self.heard.append((topic, body))
        self._changed.set()

    async def take_until(self, topic: str) -> list[str]:
        """Return the topics heard so far, once `topic` is the last of them.

        Raises:
            AssertionError: it did not arrive in time.
        """
        try:
            async with asyncio.timeout(self._patience):
                while not self.heard or self.heard[-1][0] != topic:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{topic!r} was not received within {self._patience} s: {self.heard!r}") from None
        return [topic for topic, _ in self.heard]


class BroadcastingTests(BrokerCase):
    """Tests of broadcasts, skipped if the broker is not `Broadcasting`."""

    def broadcaster(self, name: str = "") -> Broadcasting:
        broker: Broker = self.broker(name)
        if not isinstance(broker, Broadcasting):
            raise unittest.SkipTest("this broker has no broadcasts")
        return broker

    async def listen(self, broker: Broadcasting, patterns: Collection[str]) -> tuple[BroadcastInbox, Listening]:
        heard = BroadcastInbox(self.patience)
        return heard, await broker.listen(patterns, heard)

    @case
    async def test_a_broadcast_reaches_all_listeners_and_its_own_broker(self) -> None:
        ours, others = self.broadcaster(), self.broadcaster()
        near, _ = await self.listen(ours, ["news"])
        second, _ = await self.listen(ours, ["news"])
        far, _ = await self.listen(others, ["news"])

        assert ours.announce("news", b"\x00\xff body")

        for heard in (near, second, far):
            await heard.take_until("news")
            assert heard.heard == [("news", b"\x00\xff body")]

    @case
    async def test_a_broker_that_never_connected_can_broadcast(self) -> None:
        heard, _ = await self.listen(self.broadcaster(), ["#"])

        assert self.broadcaster().announce("first.words", b"")

        assert await heard.take_until("first.words") == ["first.words"]

    @case
    async def test_patterns_match_by_word_and_a_message_is_delivered_once(self) -> None:
        broker = self.broadcaster()
        one, _ = await self.listen(broker, ["job.*.images", "end"])
        any_number, _ = await self.listen(broker, ["job.#", "#.images", "end"])
        exact, _ = await self.listen(broker, ["job", "end"])

        for topic in ("job", "job.dead.images", "job.dead.images.large", "jobs.dead", "job.dead", "other.images"):
            broker.announce(topic, b"")
        broker.announce("end", b"")

        assert await one.take_until("end") == ["job.dead.images", "end"]
        assert await any_number.take_until("end") == [
            "job",
            "job.dead.images",
            "job.dead.images.large",
            "job.dead",
            "other.images",
            "end",
        ]
        assert await exact.take_until("end") == ["job", "end"]

    @case
    async def test_broadcasts_of_one_broker_arrive_in_order(self) -> None:
        broadcaster = self.broadcaster()
        heard, _ = await self.listen(self.broadcaster(), ["count.#"])
        topics = [f"count.{number}" for number in range(500)]

        for topic in topics:
            assert broadcaster.announce(topic, topic.encode())

        assert await heard.take_until(topics[-1]) == topics
        assert heard.heard[7] == ("count.7", b"count.7")

    @case
    async def test_a_large_body_arrives_complete(self) -> None:
        broadcaster = self.broadcaster()
        heard, _ = await self.listen(self.broadcaster(), ["large"])
        body = bytes(range(256)) * 2_000

        assert broadcaster.announce("large", body)

        await heard.take_until("large")
        assert heard.heard == [("large", body)]

    @case
    async def test_a_new_listener_does_not_receive_earlier_broadcasts(self) -> None:
        broadcaster = self.broadcaster()
        early, _ = await self.listen(self.broadcaster(), ["#"])
        broadcaster.announce("before", b"")
        await early.take_until("before")

        late, _ = await self.listen(self.broadcaster(), ["#"])
        broadcaster.announce("after", b"")

        assert await late.take_until("after") == ["after"]

    @case
    async def test_a_stopped_listener_receives_nothing(self) -> None:
        broker = self.broadcaster()
        stopped, listening = await self.listen(broker, ["#"])
        other, _ = await self.listen(broker, ["#"])
        broker.announce("before", b"")
        await stopped.take_until("before")

        await listening.stop()
        await listening.stop()
        broker.announce("after", b"")

        assert await other.take_until("after") == ["before", "after"]
        assert [topic for topic, _ in stopped.heard] == ["before"]

    @case
    async def test_a_broadcast_with_an_overlong_topic_is_dropped(self) -> None:
        broker = self.broadcaster()
        heard, _ = await self.listen(broker, ["#"])

        assert broker.announce("x" * 255, b"")
        assert not broker.announce("x" * 256, b"")
        broker.announce("end", b"")

        assert await heard.take_until("end") == ["x" * 255, "end"]

    @case
    async def test_a_closed_broker_broadcasts_nothing(self) -> None:
        closed, open_one = self.broadcaster(), self.broadcaster()
        await self.listen(closed, ["#"])
        heard, _ = await self.listen(open_one, ["#"])
        closed.announce("before", b"")

        await cast("Broker", closed).aclose()

        assert not closed.announce("after", b"")
        open_one.announce("end", b"")
        assert await heard.take_until("end") == ["before", "end"]

    @case
    async def test_a_listener_recovers_after_losing_its_connection(self) -> None:
        self.require_lose()
        broadcaster, cut_off = self.broadcaster(), self.broadcaster("cut off")
        heard, _ = await self.listen(cut_off, ["#"])
        broadcaster.announce("before", b"")
        await heard.take_until("before")

        await self.lose(cast("Broker", cut_off))

        async def is_receiving_again() -> bool:
            broadcaster.announce("again", b"")
            return any(topic == "again" for topic, _ in heard.heard)

        await eventually(is_receiving_again, expected=True, within=self.patience)
