"""The archive of dead letters: copies in a stream, beside the letters and never instead of them."""

import logging

import pytest

from taskmq import QueueMissing, Unroutable
from taskmq.contracts.broker_abilities import Archiving
from taskmq.model.topology import dead_letter_queue
from taskmq.testing.broker_suite.case import bodies, message
from taskmq.testing.runner import case, eventually, raises
from taskmq_rabbitmq import RabbitMQBroker
from taskmq_rabbitmq.model.routes import ARCHIVE
from tests.integration.rabbitmq_case import RabbitMQCase

pytestmark = pytest.mark.rabbitmq


class TestArchive(RabbitMQCase):
    options = "?archive=2d&archive_bytes=100000000"

    @case
    async def test_each_letter_is_in_its_queue_and_in_the_archive_that_outlives_it(self) -> None:
        broker, reader = self.broker(), self.broker()
        queue = await self.queue(broker)
        dead = dead_letter_queue(queue)
        assert isinstance(reader, Archiving)

        await self.send(broker, dead, *"abc")
        await self.send(broker, queue, "no letter")

        await self._expect_archived(reader, "a", "b", "c")
        await self.expect_only(broker, dead, "a", "b", "c")
        # "the last one" before the read is a letter too.
        await self._expect_archived(reader, "a", "b", "c", "the last one")

    @case
    async def test_a_missing_archive_has_a_remedy(self) -> None:
        self.process_url = str(self.process_url).partition("?")[0]

        with raises(QueueMissing) as caught:
            await self.broker().read_archive(limit=10)

        assert "?archive=30d in their broker URL" in str(caught[0])

    @case
    async def test_the_archive_is_read_from_any_offset_and_in_pieces(self) -> None:
        broker = self.broker()
        dead = dead_letter_queue(await self.queue(broker))
        texts = [f"{number:03}" for number in range(300)]
        await self.send(broker, dead, *texts)
        await self._expect_archived(broker, *texts)

        first = await broker.read_archive(limit=100)
        second = await broker.read_archive(offset=first[-1][0] + 1, limit=1000)

        assert [place for place, _ in first + second] == list(range(300))
        assert bodies([delivery for _, delivery in first + second]) == texts
        assert await broker.read_archive(offset=300, limit=10) == []

    @case
    async def test_the_archive_is_limited_by_age_and_size_and_a_new_url_does_not_change_it(self) -> None:
        await self.queue(self.broker())
        self.process_url = str(self.process_url).replace("archive=2d", "archive=12h")

        await self.queue(self.broker())

        arguments = (await self.http("GET", f"queues/{{vhost}}/{ARCHIVE}"))["arguments"]
        assert (arguments["x-max-age"], arguments["x-max-length-bytes"]) == ("2D", 100_000_000)

    @case
    async def test_a_letter_of_a_deleted_queue_does_not_look_sent(self) -> None:
        broker, stranger = self.broker(), self.broker()
        await self.queue(broker)

        with raises(Unroutable):
            await stranger.publish(message("suite.gone.dlq", "lost"), timeout=10)

    @case
    async def test_without_its_archive_a_letter_is_still_sent(self) -> None:
        broker = self.broker()
        dead = dead_letter_queue(await self.queue(broker))
        await self.delete_queue(ARCHIVE)
        said: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
        logger = logging.getLogger("taskmq_rabbitmq.archive")
        logger.addHandler(handler)
        self.opened.callback(logger.removeHandler, handler)

        await self.send(broker, dead, "a")

        await self.expect_ready(broker, dead, 1)

        async def complaints() -> int:
            return len(said)

        await eventually(complaints, 1, within=self.patience)
        assert "archiving its dead letter failed" in said[0]

    async def _expect_archived(self, broker: RabbitMQBroker, *texts: str) -> None:
        async def read_archive() -> list[str]:
            return bodies([delivery for _, delivery in await broker.read_archive(limit=1000)])

        await eventually(read_archive, list(texts), within=self.patience)


class TestNoArchive(RabbitMQCase):
    @case
    async def test_a_missing_archive_is_reported(self) -> None:
        broker = self.broker()
        await self.queue(broker)

        with raises(QueueMissing) as caught:
            await broker.read_archive(limit=10)

        assert caught[0].queue == ARCHIVE
