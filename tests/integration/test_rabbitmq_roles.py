"""Users with the permissions that `taskmq topology permissions` prints: what they can do, and what they never reach.

The attacker's use of such a login is written with pika alone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

import pytest
from pika.exceptions import ChannelClosedByBroker  # type: ignore[import-untyped]

from taskmq import RetryPolicy, TaskMQ, WorkQueue
from taskmq.beat import Beat
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.topology_plan import Role
from taskmq.errors import TaskFailed
from taskmq.events.control import command_workers
from taskmq.model.commands import Command
from taskmq.model.topology import PARKING, UNROUTABLE, ReportQueue, node_queue
from taskmq.operations.dead_letters.replay import replay
from taskmq.operations.queues import list_queues, purge_queue
from taskmq.scheduler import Scheduler
from taskmq.testing.broker_suite import message
from taskmq.testing.runner import case, eventually
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from taskmq_rabbitmq.model import delay_ladder as delay
from tests.integration.rabbitmq_case import RabbitMQCase
from tests.integration.raw_rabbitmq import Raw

pytestmark = [pytest.mark.rabbitmq, pytest.mark.timeout(120)]

ORDERS: Final = WorkQueue("orders")
REPORTS: Final = "taskmq.reports.shop.0"
PASSWORD: Final = "S3CRET"
REFUSED: Final = 403
Attempt = Callable[[Raw], object]
ROLES: Final[tuple[Role, ...]] = ("producer", "worker", "beat", "scheduler", "server", "operator")
NO_DEFAULT: Final[tuple[Role, ...]] = ROLES[:-1]


class RolesCase(RabbitMQCase):
    """A virtual host with all of the app's topology, and a user for each role."""

    queues: ClassVar[tuple[WorkQueue, ...]] = (ORDERS,)

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def with_users() -> None:
            able = self.broker()
            topology = able.topology(self.queues)
            await topology.create_missing()
            await able.declare_reports([ReportQueue(REPORTS, letters_of=("orders.jobs",))])
            for role in ROLES:
                request = topology.permissions(role, user=role).request
                assert request is not None
                await self.http("PUT", f"users/{self.user(role)}", {"password": PASSWORD, "tags": ""})
                self.opened.push_async_callback(self.http, "DELETE", f"users/{self.user(role)}")
                await self.http("PUT", f"permissions/{{vhost}}/{self.user(role)}", request["body"])
            await test()

        super().run(with_users)

    def user(self, role: Role) -> str:
        return f"{role}-{self.vhost}"

    def url(self, role: Role) -> str:
        return f"amqp://{self.user(role)}:{PASSWORD}@127.0.0.1:{self.server.port}/{quote(self.vhost, safe='')}"

    def of(self, role: Role) -> RabbitMQBroker:
        broker = open_broker(f"{self.url(role)}?declare=off", BrokerOptions(name=role))
        assert isinstance(broker, RabbitMQBroker)
        self.opened.push_async_callback(broker.aclose)
        return broker

    async def try_as(self, role: Role, attempt: "Attempt") -> int:
        return await asyncio.to_thread(refusal_code, self.url(role), attempt)

    @asynccontextmanager
    async def running(self, runner: Worker | Beat | Scheduler) -> AsyncIterator[None]:
        running = asyncio.create_task(runner.run())
        try:
            yield
        finally:
            if isinstance(runner, Worker):
                runner.drain()
            else:
                runner.stop()
            await running

    def of_operator(self) -> RabbitMQBroker:
        broker = open_broker(self.url("operator"), BrokerOptions(name="operator"))
        assert isinstance(broker, RabbitMQBroker)
        self.opened.push_async_callback(broker.aclose)
        return broker

    async def listen(self) -> str:
        """Listen for commands from now on, in a queue whose name is returned; messages are in `heard`."""
        self.heard: list[str] = []
        await self.broker().listen(["worker.command.*"], lambda topic, _: self.heard.append(topic))
        found = await self.http("GET", "queues/{vhost}")
        (name,) = [each["name"] for each in found if each["name"].startswith("taskmq.listener.")]
        return str(name)

    async def expect_silence(self) -> None:
        announcer = self.broker()

        async def has_heard_last() -> bool:
            announcer.announce("worker.command.last", b"")
            return "worker.command.last" in self.heard

        await eventually(has_heard_last, True, within=20)
        assert set(self.heard) == {"worker.command.last"}

    async def depths(self, names: list[str]) -> dict[str, int]:
        """Return the broker's current count of ready messages in each."""
        return {each.queue: each.ready for each in await self.broker("counts").stats(names)}


def refusal_code(url: str, attempt: Attempt) -> int:
    """Return the code with which the broker closes the channel over the attempt; 0: it does not."""
    with Raw(url) as raw:
        try:
            attempt(raw)
        except ChannelClosedByBroker as error:
            return int(error.reply_code)
        return 0


def publishing(exchange: str, queue: str) -> Attempt:
    return lambda raw: raw.publish(exchange, queue)


def binding(queue: str, exchange: str) -> Attempt:
    return lambda raw: raw.channel.queue_bind(queue, exchange, "orders")


def taking(queue: str) -> Attempt:
    return lambda raw: raw.channel.basic_get(queue)


def declaring(name: str, exchange: str, kind: Mapping[str, bool]) -> Attempt:
    arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "orders.jobs"}
    return lambda raw: raw.channel.queue_declare(name, arguments=arguments, **kind)


class TestReach(RolesCase):
    @pytest.mark.parametrize("role", NO_DEFAULT)
    def test_only_the_operator_role_publishes_to_the_default_exchange(self, role: Role) -> None:
        self.run(partial(self._expect_no_default_exchange, role))

    async def _expect_no_default_exchange(self, role: Role) -> None:
        queues = ["orders", REPORTS, "orders.jobs", PARKING]
        for queue in queues:
            assert await self.try_as(role, publishing("", queue)) == REFUSED
        assert await self.depths(queues) == dict.fromkeys(queues, 0)

    @pytest.mark.parametrize(
        ("role", "exchanges"),
        [
            ("producer", "taskmq.reports taskmq.jobs taskmq.dlx taskmq.unroutable taskmq.events taskmq.dead.archive"),
            ("producer", "taskmq.delay.v2.deliver taskmq.delay.v2.l00 amq.direct amq.topic amq.fanout"),
            ("worker", "taskmq.jobs taskmq.unroutable taskmq.delay.v2.deliver amq.direct amq.topic"),
            ("beat", "taskmq.reports taskmq.jobs taskmq.events amq.direct"),
            ("scheduler", "taskmq taskmq.reports taskmq.delay.v2.enter amq.direct"),
            ("server", "taskmq.reports taskmq.jobs taskmq.dlx amq.direct"),
        ],
    )
    def test_a_role_publishes_only_to_its_own_exchanges(self, role: Role, exchanges: str) -> None:
        self.run(partial(self._expect_refused, role, exchanges))

    async def _expect_refused(self, role: Role, exchanges: str) -> None:
        for exchange in exchanges.split():
            assert await self.try_as(role, publishing(exchange, REPORTS)) == REFUSED, exchange
        assert await self.depths([REPORTS]) == {REPORTS: 0}

    @pytest.mark.parametrize("header", ["CC", "BCC"])
    def test_further_routing_keys_of_a_producer_reach_only_job_queues(self, header: str) -> None:
        self.run(partial(self._expect_no_further_queue, header))

    async def _expect_no_further_queue(self, header: str) -> None:
        kept = [REPORTS, "orders.jobs", "orders.dlq", PARKING]
        victims = [*kept, await self.listen()]

        def attack() -> None:
            with Raw(self.url("producer")) as raw:
                raw.publish("taskmq", "orders", b"at once", headers={header: victims})
                ways = delay.ways(250)
                more = [*ways, *victims] if header == "CC" else ways
                headers = {"CC": more, **({} if header == "CC" else {header: victims})}
                raw.publish("taskmq.delay.v2.enter", "orders", b"later", headers=headers)
                # It expires at once, and so becomes a dead letter of its queue.
                raw.publish("taskmq", "orders.p.low", b"dead", headers={header: victims}, expiration="1")

        await asyncio.to_thread(attack)
        await self.expect_ready(self.broker(), "orders", 2)
        await self.expect_ready(self.broker(), "orders.dlq", 1)

        assert await self.depths(kept) == {**dict.fromkeys(kept, 0), "orders.dlq": 1}
        await self.expect_silence()

    @case
    async def test_a_delay_of_a_producer_leads_only_to_job_queues(self) -> None:
        kept = [REPORTS, "orders.jobs", "orders.dlq", PARKING]
        victims = [*kept, await self.listen()]

        def attack() -> None:
            with Raw(self.url("producer")) as raw:
                for victim in victims:
                    raw.publish("taskmq.delay.v2.enter", victim, headers={"CC": delay.ways(125)})

        await asyncio.to_thread(attack)
        await self.expect_ready(self.broker(), UNROUTABLE, len(victims))

        assert await self.depths(kept) == dict.fromkeys(kept, 0)
        await self.expect_silence()

    @pytest.mark.parametrize("role", ["producer", "worker", "beat", "server"])
    def test_no_own_queue_dead_letters_to_a_forbidden_exchange(self, role: Role) -> None:
        self.run(partial(self._expect_no_own_queue, role))

    async def _expect_no_own_queue(self, role: Role) -> None:
        # The worker and the server receive commands in queues of such a name.
        for name in ("mine", "", "taskmq.listener.mine"):
            for exchange in ("", "taskmq.jobs", "amq.direct"):
                for kind in ({"durable": True}, {"exclusive": True}):
                    code = await self.try_as(role, declaring(name, exchange, kind))
                    assert code == REFUSED, (name, exchange, kind)

    @pytest.mark.parametrize("role", ["producer", "worker", "beat", "server"])
    def test_no_foreign_queue_is_bound_to_a_permitted_exchange(self, role: Role) -> None:
        self.run(partial(self._expect_no_binding, role))

    async def _expect_no_binding(self, role: Role) -> None:
        for queue in (REPORTS, "orders.jobs", "orders.dlq", PARKING):
            for exchange in ("taskmq", "taskmq.delay.v2.enter", "taskmq.events"):
                assert await self.try_as(role, binding(queue, exchange)) == REFUSED, (queue, exchange)

    @case
    async def test_a_replayed_letter_goes_only_to_job_queues(self) -> None:
        """The sender of a letter controls its statement of origin."""
        for victim in (REPORTS, PARKING, "taskmq.listener.x", "amq.gen-x"):
            forged = {"x-taskmq-origin": victim, "CC": delay.ways(125)}
            with Raw(self.url("producer")) as raw:
                raw.publish("taskmq.delay.v2.enter", "nowhere", b"{}", headers=forged)
        operator = self.broker()
        await self.expect_ready(operator, UNROUTABLE, 4)

        done = await replay(operator, UNROUTABLE, timeout=10)

        assert (done.replayed, done.no_destination) == (0, 4)
        assert await self.depths([REPORTS, PARKING]) == {REPORTS: 0, PARKING: 0}


class TestWork(RolesCase):
    """The complete work of each role, without any other permission."""

    def app(self, role: Role, folder: Path, *, store: bool = False) -> TaskMQ:
        url = f"{self.url(role)}?declare=off"
        kept = f"sqlite:///{folder}/jobs.db" if store else None
        app = TaskMQ(url, name="shop", queues=[ORDERS], state=f"local://{folder}/state", store=kept)

        def note(text: str) -> None:
            with (folder / "ledger").open("a") as ledger:
                ledger.write(f"{text}\n")

        @app.task(name="double", queue="orders")
        async def double(number: int) -> int:
            note(f"double {number}")
            return number * 2

        @app.task(name="again", queue="orders", retry=RetryPolicy(base="200ms", max_attempts=2, jitter=False))
        async def again() -> None:
            note("again")
            raise ValueError("not yet")

        if not store:

            @app.every("500ms")
            @app.task(name="tick", queue="orders")
            async def tick() -> None:
                note("tick")

        return app

    async def until_noted(self, folder: Path, *lines: str) -> None:
        async def has_all() -> bool:
            path = folder / "ledger"
            return path.exists() and set(lines) <= set(path.read_text().splitlines())

        await eventually(has_all, True, within=60)

    def test_jobs_are_sent_run_retried_buried_parked_and_replayed(self, tmp_path: Path) -> None:
        self.run(partial(self._expect_complete_life, tmp_path))

    async def _expect_complete_life(self, tmp_path: Path) -> None:
        async with self.running(Worker(self.app("worker", tmp_path), WorkerConfig(name="w1"))):
            async with self.app("producer", tmp_path) as producer:
                double, again = producer.tasks["double"], producer.tasks["again"]
                await double.asend(1)
                await double.options(delay="300ms").asend(2)
                await double.options(priority=9).asend(3)
                await again.asend()
            with Raw(self.url("producer")) as raw:
                raw.publish("taskmq", "orders", b"no task")
            await self.until_noted(tmp_path, "double 1", "double 2", "double 3", "again")
            counts = self.broker("counts")
            await self.expect_ready(counts, "orders.dlq", 1)
            await self.expect_ready(counts, PARKING, 1)

            async with self.app("server", tmp_path) as server:
                broker = server.sessions.current().broker
                assert (await replay(broker, "orders", timeout=10)).replayed == 1
                await self.expect_ready(counts, "orders.dlq", 1)
                queues = await list_queues(server, ["orders"])
                assert queues.queues
                (answer,) = await command_workers(broker, Command(id="c1", name="ping"))
                assert answer.worker == "w1"
                assert await purge_queue(server, "orders") == 0

    def test_stored_jobs_are_dispatched_run_and_reported(self, tmp_path: Path) -> None:
        self.run(partial(self._expect_stored_jobs_to_end, tmp_path))

    async def _expect_stored_jobs_to_end(self, tmp_path: Path) -> None:
        worker = Worker(self.app("worker", tmp_path, store=True), WorkerConfig(name="w1"))
        async with (
            self.running(Scheduler(self.app("scheduler", tmp_path, store=True))),
            self.running(worker),
            self.app("producer", tmp_path, store=True) as producer,
        ):
            double = await producer.jobs.asubmit("double", 21)
            again = await producer.jobs.asubmit("again")

            assert await double.aresult(60) == 42
            with pytest.raises(TaskFailed):
                await again.aresult(60)
        assert await self.depths([PARKING, UNROUTABLE]) == {PARKING: 0, UNROUTABLE: 0}

    def test_a_beat_emits_schedules(self, tmp_path: Path) -> None:
        self.run(partial(self._expect_ticks, tmp_path))

    async def _expect_ticks(self, tmp_path: Path) -> None:
        async with (
            self.running(Worker(self.app("worker", tmp_path), WorkerConfig(name="w1"))),
            self.running(Beat(self.app("beat", tmp_path))),
        ):
            await self.until_noted(tmp_path, "tick")

    @case
    async def test_a_beat_consumes_messages_of_a_readable_exchange(self) -> None:
        await self.http("PUT", "exchanges/{vhost}/taskmq.on.sales", {"type": "topic", "durable": True})
        beat = self.of("beat")

        await beat.bind("taskmq.on.sales", exchange="taskmq.on.sales", patterns=["#"])
        inbox, _ = await self.consume(beat, "taskmq.on.sales")
        await self.http(
            "POST",
            "exchanges/{vhost}/taskmq.on.sales/publish",
            {"routing_key": "eu.1", "payload": "sold", "payload_encoding": "string", "properties": {}},
        )

        (sold,) = await inbox.take_and_ack(1)
        assert sold.body == b"sold"

    @case
    async def test_an_operator_moves_an_old_topology_to_the_exchanges(self) -> None:
        """Queues of a version that published to the default exchange: all their messages stay."""
        for name in ("taskmq", "taskmq.jobs", "taskmq.reports"):
            await self.http("DELETE", f"exchanges/{{vhost}}/{name}")
        await self.http("DELETE", "bindings/{vhost}/e/taskmq.dlx/q/taskmq.parking/taskmq.parking")
        with Raw(self.process_url or "") as raw:
            raw.publish("", "orders", b"old")
        topology = self.of_operator().topology([ORDERS])
        before = await topology.compare()
        assert not before.is_same

        await topology.create_missing()

        assert (await self.broker().topology([ORDERS]).compare()).is_same
        await self.of("producer").publish(message("orders", "new"), timeout=10)
        inbox, _ = await self.consume(self.of("worker"), "orders")
        assert [each.body for each in await inbox.take_and_ack(2)] == [b"old", b"new"]


class TestNodes(RolesCase):
    """An app with a placed queue: its workers run on host nodes, whose queues an operator has declared."""

    queues = (WorkQueue("train", placed=True),)

    def app(self, role: Role, folder: Path) -> TaskMQ:
        url = f"{self.url(role)}?declare=off"
        app = TaskMQ(
            url, name="shop", queues=self.queues, state=f"local://{folder}/state", store=f"sqlite:///{folder}/jobs.db"
        )

        @app.task(name="train", queue="train", result=True)
        async def train(number: int) -> int:
            return number * 2

        return app

    def test_jobs_are_placed_run_and_reported_on_a_node(self, tmp_path: Path) -> None:
        self.run(partial(self._expect_placed_jobs_to_end, tmp_path))

    async def _expect_placed_jobs_to_end(self, tmp_path: Path) -> None:
        await self.of_operator().topology([*self.queues, WorkQueue(node_queue("gpu-1"))]).create_missing()
        worker = Worker(self.app("worker", tmp_path), WorkerConfig(name="w1", node="gpu-1"))
        async with (
            self.running(Scheduler(self.app("scheduler", tmp_path))),
            self.running(worker),
            self.app("producer", tmp_path) as producer,
        ):
            job = await producer.jobs.asubmit("train", 21, place={"labels": {}})

            assert await job.aresult(60) == 42

    @pytest.mark.parametrize("role", ["producer", "beat", "server"])
    def test_only_node_roles_read_the_queue_of_a_node(self, role: Role) -> None:
        self.run(partial(self._expect_node_queue_unread, role))

    async def _expect_node_queue_unread(self, role: Role) -> None:
        await self.of_operator().topology([*self.queues, WorkQueue(node_queue("gpu-1"))]).create_missing()

        for name in ("taskmq.node.gpu-1", "taskmq.node.gpu-1.jobs"):
            assert await self.try_as(role, taking(name)) == REFUSED, name
