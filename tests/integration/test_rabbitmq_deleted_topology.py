"""Each queue, exchange and binding that taskmq declares, deleted manually under a running producer and worker.

The rows of the table "Queues and exchanges that were deleted" in docs/topology.md.
"""

import asyncio
import logging
import re
import time
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import Unroutable
from taskmq.model.envelope import Invitation
from taskmq.model.jobs.reports import Report
from taskmq.model.topology import UNROUTABLE, ReportQueue, WorkQueue, dead_letter_queue
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import Inbox
from taskmq.testing.runner import case, eventually, raises
from taskmq.worker.settlement.reports import ReportSender
from taskmq_rabbitmq.broker import RabbitMQBroker
from taskmq_rabbitmq.model.entities import (
    Binding,
    Entity,
    Exchange,
    Queue,
    events,
    ladder,
    queues_on_demand,
    shared_entities,
    work_queue,
)
from taskmq_rabbitmq.model.url import parse_url
from tests.integration.rabbitmq_case import RabbitMQCase

pytestmark = pytest.mark.rabbitmq

QUICKLY = 0.2
WORK = WorkQueue("orders")
# One of each kind; the levels differ only by number, and delays of up to a second pass the first three.
LEVELS = {"l00", "l02", "l04", "l27"}


def _levels(entity: Entity) -> set[str]:
    names = (entity.source, entity.target) if isinstance(entity, Binding) else (entity.name,)
    return {match[0] for name in names if (match := re.search(r"l\d\d$", name))}


DECLARED = [*shared_entities(), *events(), *ladder(), *work_queue(WORK)]
DELETED = [entity for entity in DECLARED if _levels(entity) <= LEVELS]
_REPORTS = "taskmq.reports.shop.0"
_REPORTED = Binding("taskmq.reports", _REPORTS, _REPORTS)
PAGE = Path(__file__).parents[2] / "docs" / "topology.md"


def _name(entity: Entity) -> str:
    if isinstance(entity, Binding):
        return f"binding {entity.source} -> {entity.target} {entity.key}"
    return f"{type(entity).__name__.lower()} {entity.name}"


# An exchange of jobs, one level of the ladder, and the queues of one lane; the tests below delete others.
_IN_THE_GATE = {"exchange taskmq", "queue taskmq.delay.v2.l02", "queue orders", "queue orders.dlq"}


def _mark_of(entity: Entity) -> pytest.MarkDecorator | tuple[()]:
    return () if _name(entity) in _IN_THE_GATE else pytest.mark.campaign


class DeletedCase(RabbitMQCase):
    """A consumer that polls the broker often, and a producer of another broker object."""

    watch_seconds = QUICKLY

    def open_broker(self, name: str = "") -> RabbitMQBroker:
        assert self.process_url is not None
        return RabbitMQBroker(parse_url(self.process_url), BrokerOptions(), watch_seconds=self.watch_seconds)

    async def delete(self, entity: Entity) -> None:
        if isinstance(entity, Binding):
            kind = "e" if entity.target_kind == "exchange" else "q"
            found = await self.http("GET", f"bindings/{{vhost}}/e/{entity.source}/{kind}/{entity.target}")
            (properties,) = [each["properties_key"] for each in found if each["routing_key"] == entity.key]
            where = f"bindings/{{vhost}}/e/{entity.source}/{kind}/{entity.target}/{quote(properties, safe='')}"
        else:
            where = f"{type(entity).__name__.lower()}s/{{vhost}}/{entity.name}"
        await self.http("DELETE", where)

    async def exists(self, entity: Entity) -> bool:
        if isinstance(entity, Binding):
            found = await self.http("GET", "bindings/{vhost}")
            return any(
                (each["source"], each["destination"], each["routing_key"])
                == (entity.source, entity.target, entity.key)
                for each in found
            )
        found = await self.http("GET", f"{type(entity).__name__.lower()}s/{{vhost}}")
        return any(each["name"] == entity.name for each in found)

    async def back(self, entity: Entity) -> None:
        """Wait until it exists again with its bindings, which follow it."""
        bound = [
            each
            for each in DECLARED
            if isinstance(each, Binding)
            and not isinstance(entity, Binding)
            and entity.name in (each.source, each.target)
        ]
        for each in (entity, *bound):
            await eventually(partial(self.exists, each), True, within=20)

    async def start(self) -> tuple[RabbitMQBroker, Inbox]:
        """Start a producer and a consumer of its queue; all its queues have been used."""
        producer, worker = self.broker(), self.broker()
        await producer.declare([WORK])
        await worker.declare([WORK])
        for queue in queues_on_demand(WORK):
            await self.send(worker, queue, "the first one")
            await worker.purge(queue)
        inbox, _ = await self.consume(worker, "orders")
        return producer, inbox

    async def expect_work(self, producer: RabbitMQBroker, inbox: Inbox) -> None:
        """Assert that jobs arrive, now and after delays that pass the first levels."""
        now = int(time.time() * 1000)
        for body, due in (("at once", None), ("soon", now + 300), ("later", now + 800)):
            await producer.publish(message("orders", body, due=due), timeout=10)
        came = await inbox.take_and_ack(3)
        assert sorted(delivery.body for delivery in came) == [b"at once", b"later", b"soon"]
        await producer.publish(message(dead_letter_queue("orders"), "letter"), timeout=10)
        await self.expect_ready(producer, dead_letter_queue("orders"), 1)


class TestDeleted(DeletedCase):
    @pytest.mark.parametrize(
        "entity", [pytest.param(entity, marks=_mark_of(entity), id=_name(entity)) for entity in DELETED]
    )
    def test_a_deleted_object_is_restored_and_everything_works(self, entity: Entity) -> None:
        self.run(partial(self._expect_back_and_at_work, entity))

    async def _expect_back_and_at_work(self, entity: Entity) -> None:
        producer, inbox = await self.start()

        await self.delete(entity)

        await self.back(entity)
        await self.expect_work(producer, inbox)
        # A new process finds everything.
        fresh = self.broker()
        await fresh.declare([WORK, WorkQueue("others")])
        await self.expect_work_of(fresh)

    async def expect_work_of(self, fresh: RabbitMQBroker) -> None:
        inbox, _ = await self.consume(fresh, "others")
        await fresh.publish(message("others", "soon", due=int(time.time() * 1000) + 200), timeout=10)
        await inbox.take_and_ack(1)


class TestWithoutWatch(DeletedCase):
    """Before any poll: repairs at the next use."""

    watch_seconds = 3600.0

    @pytest.mark.parametrize("what", ["queue l01", "exchange enter"])
    def test_the_next_delayed_send_repairs_the_first_missing_object(self, what: str) -> None:
        self.run(partial(self._expect_repair_by_send, what))

    async def _expect_repair_by_send(self, what: str) -> None:
        producer, inbox = await self.start()
        await self.expect_work(producer, inbox)
        kind, _, name = what.partition(" ")
        await self.delete(self.level(kind, name))

        # Two times 125 ms: it waits only on level l01.
        await producer.publish(message("orders", "delayed", due=int(time.time() * 1000) + 250), timeout=10)

        await inbox.take_and_ack(1)

    @pytest.mark.parametrize("what", ["queue l05", "exchange deliver"])
    def test_the_next_declaration_repairs_the_ladder(self, what: str) -> None:
        self.run(partial(self._expect_repair_by_declaration, what))

    async def _expect_repair_by_declaration(self, what: str) -> None:
        producer, _ = await self.start()
        kind, _, level = what.partition(" ")
        entity = self.level(kind, level)
        await self.delete(entity)

        await producer.declare([WorkQueue("others")])
        if kind == "queue":
            # It refers to no level: a new process checks all of them.
            await self.broker().declare([WORK])

        assert await self.exists(entity)

    @pytest.mark.parametrize(
        "entity", [Exchange("taskmq", "direct"), Binding("taskmq", "orders", "orders")], ids=_name
    )
    def test_the_next_sends_repair_the_path_to_their_queues_and_keep_their_order(self, entity: Entity) -> None:
        self.run(partial(self._expect_sends_in_order_after, entity))

    async def _expect_sends_in_order_after(self, entity: Entity) -> None:
        producer, inbox = await self.start()
        await producer.declare([WorkQueue("others")])
        others, _ = await self.consume(self.broker(), "others")
        await self.expect_work(producer, inbox)
        await self.delete(entity)

        numbers = [str(number) for number in range(50)]
        sends = [
            producer.publish(message(queue, number), timeout=20)
            for number in numbers
            for queue in ("orders", "others")
        ]
        await asyncio.gather(*sends)

        for each in (inbox, others):
            came = await each.take_and_ack(len(numbers))
            assert [delivery.body.decode() for delivery in came] == numbers

    @pytest.mark.parametrize(
        "entity", [Exchange("taskmq.jobs", "direct"), Binding("taskmq.jobs", "orders.jobs", "orders.jobs")], ids=_name
    )
    def test_the_next_invitation_repairs_the_path_to_its_queue(self, entity: Entity) -> None:
        self.run(partial(self._expect_invitation_after, entity))

    async def _expect_invitation_after(self, entity: Entity) -> None:
        producer, _ = await self.start()
        await self.delete(entity)

        await producer.publish(message("orders.jobs", "invitation"), timeout=20)

        await self.expect_ready(producer, "orders.jobs", 1)

    @pytest.mark.parametrize("entity", [Exchange("taskmq.reports", "direct"), _REPORTED], ids=_name)
    def test_the_next_report_repairs_the_path_to_its_queue(self, entity: Entity) -> None:
        self.run(partial(self._expect_report_after, entity))

    async def _expect_report_after(self, entity: Entity) -> None:
        worker, _ = await self.start()
        await self.broker().declare_reports([ReportQueue(_REPORTS, letters_of=("orders.jobs",))])
        sender = ReportSender(worker, worker="w", timeout=10, stopping=asyncio.Event())
        invitation = Invitation(id="job", token=1, reports=_REPORTS)
        assert await sender.send(invitation, Report(id="job", token=1, kind="started"))
        await self.delete(entity)

        assert await sender.send(invitation, Report(id="job", token=1, kind="succeeded"))

        await self.expect_ready(worker, _REPORTS, 2)

    @case
    async def test_the_next_letter_repairs_the_exchange_of_letters(self) -> None:
        producer, _ = await self.start()
        await producer.publish(message("orders.dlq", "first"), timeout=20)
        await self.delete(Exchange("taskmq.dlx", "direct"))

        await producer.publish(message("orders.dlq", "second"), timeout=20)

        await self.expect_ready(producer, "orders.dlq", 2)

    @case
    async def test_a_new_process_repairs_the_path_to_letters_with_its_first_one(self) -> None:
        await self.start()
        for entity in (Binding("taskmq.dlx", "orders.dlq", "orders"), Queue("orders.dlq", {})):
            await self.delete(entity)
            fresh = self.broker()
            await fresh.declare([WORK])

            await fresh.publish(message("orders.dlq", "letter"), timeout=20)

            await self.expect_ready(fresh, "orders.dlq", 1)
            assert not await fresh.purge(UNROUTABLE)
            await fresh.purge("orders.dlq")

    @case
    async def test_a_queue_of_an_earlier_version_is_bound_by_the_first_message_for_it(self) -> None:
        await self.start()
        await self.delete(Binding("taskmq", "orders", "orders"))
        stranger = self.broker()

        await stranger.publish(message("orders", "by one who has not declared it"), timeout=20)

        assert await self.exists(Binding("taskmq", "orders", "orders"))

    @case
    async def test_no_message_binds_an_internal_queue_of_taskmq(self) -> None:
        await self.start()
        await self.http("PUT", "queues/{vhost}/taskmq.reports.shop.0", {"durable": True})

        for queue in ("taskmq.reports.shop.0", "taskmq.delay.v2.l27", "nowhere"):
            with raises(Unroutable):
                await self.broker().publish(message(queue, "forged"), timeout=20)

        assert not await self.exists(Binding("taskmq.reports", "taskmq.reports.shop.0", "taskmq.reports.shop.0"))

    def level(self, kind: str, name: str) -> Exchange | Queue:
        name = f"taskmq.delay.v2.{name}"
        return Queue(name, {}) if kind == "queue" else Exchange(name, "direct")


class TestEvents(DeletedCase):
    @case
    async def test_a_listener_hears_again_after_the_exchange_of_events_was_deleted(self) -> None:
        listener, announcer = self.broker(), self.broker()
        heard: list[str] = []
        await listener.listen(["#"], lambda topic, _: heard.append(topic))
        (exchange,) = events()

        await self.delete(exchange)
        await self.back(exchange)

        async def is_announced() -> bool:
            announcer.announce("after", b"{}")
            return "after" in heard

        await eventually(is_announced, True, within=20)


class TestReporting(DeletedCase):
    @case
    async def test_deleted_objects_are_named_in_the_log(self) -> None:
        await self.start()
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("taskmq_rabbitmq.declare.declarations")
        log.addHandler(handler)
        try:
            await self.delete(Queue("taskmq.delay.v2.l05", {}))
            await self.back(Queue("taskmq.delay.v2.l05", {}))
        finally:
            log.removeHandler(handler)

        assert any("declaring lost queues" in line and "taskmq.delay.v2.l05" in line for line in lines)


def test_the_page_has_a_row_for_everything_that_can_be_deleted() -> None:
    section = PAGE.read_text().split("## Queues and exchanges that were deleted")[1].split("\n## ")[0]
    rows = "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| "))

    for entity in DELETED:
        name = entity.target if isinstance(entity, Binding) else entity.name
        shown = re.sub(r"l\d\d$", "lNN", name).replace("orders", "Q")
        assert f"`{shown}`" in rows, shown
