"""Users without permission: refused connections, refused requests, and refused messages among allowed ones."""

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import AccessDenied, PublishUnknown
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import bodies, peek
from taskmq.testing.runner import case, eventually, raises
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from tests.integration.frame_proxy import FrameProxy
from tests.integration.rabbitmq_case import RabbitMQCase, refusal
from tests.servers.waiting import until

pytestmark = pytest.mark.rabbitmq

EVERYTHING = ".*"
NOTHING = "^$"
NO_DELAYS = "^(?!taskmq\\.delay).*"
SOON = 5.0


class AccessCase(RabbitMQCase):
    """A broker with the name "limited" connects as a user with few permissions."""

    frames: FrameProxy

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def with_user() -> None:
            self.frames = await self.opened.enter_async_context(FrameProxy(self.server.port))
            self.user = f"limited-{self.vhost}"
            await self.http("PUT", f"users/{self.user}", {"password": "pass", "tags": ""})
            self.opened.push_async_callback(self.http, "DELETE", f"users/{self.user}")
            await test()

        super().run(with_user)

    async def permit(self, *, configure: str = EVERYTHING, write: str = EVERYTHING, read: str = EVERYTHING) -> None:
        granted = {"configure": configure, "write": write, "read": read}
        await self.http("PUT", f"permissions/{{vhost}}/{self.user}", granted)

    def url_of(self, user: str, password: str, port: int | None = None) -> str:
        assert self.process_url is not None
        netloc = f"{quote(user)}:{quote(password)}@127.0.0.1:{port or self.server.port}"
        return urlsplit(self.process_url)._replace(netloc=netloc).geturl()

    def open_limited(self, *, port: int | None = None) -> RabbitMQBroker:
        return self.opened_at(self.url_of(self.user, "pass", port))

    def opened_at(self, url: str) -> RabbitMQBroker:
        broker = open_broker(url, BrokerOptions())
        assert isinstance(broker, RabbitMQBroker)
        self.opened.push_async_callback(broker.aclose)
        return broker


class TestConnecting(AccessCase):
    @case
    async def test_a_wrong_password_is_reported_at_once(self) -> None:
        broker = self.opened_at(self.url_of("guest", "S3CRET"))

        with raises(AccessDenied) as connecting:
            await broker.connect(timeout=30)
        with raises(AccessDenied) as publishing:
            await broker.publish(message("q", "one"), timeout=30)
        with raises(AccessDenied):
            await broker.declare([self.new_queue()])

        assert "ACCESS_REFUSED" in str(connecting[0])
        assert "S3CRET" not in f"{connecting[0]} {publishing[0]}"

    @case
    async def test_a_wrong_password_is_reported_while_the_next_attempt_is_waited_for(self) -> None:
        broker = self.opened_at(self.url_of("guest", "wrong"))
        with raises(AccessDenied):
            await broker.connect(timeout=30)

        for _ in range(20):
            with raises(AccessDenied) as publishing:
                await broker.publish(message("q", "one"), timeout=0.05)
            assert "ACCESS_REFUSED" in str(publishing[0])
            with raises(AccessDenied):
                await broker.connect(timeout=0.02)

    @case
    async def test_all_waiting_calls_report_a_wrong_password(self) -> None:
        broker = self.opened_at(self.url_of("guest", "wrong"))

        futures = [broker.publish(message("q", str(number)), timeout=30) for number in range(500)]
        await asyncio.wait(futures)

        assert {type(future.exception()) for future in futures} == {AccessDenied}

    @case
    async def test_a_virtual_host_without_access_is_reported_at_once(self) -> None:

        with raises(AccessDenied) as caught:
            await self.open_limited().publish(message("q", "one"), timeout=30)

        assert self.vhost in str(caught[0])

    @case
    async def test_too_many_connections_are_not_a_lack_of_permission(self) -> None:
        await self.permit()
        await self.http("PUT", "vhost-limits/{vhost}/max-connections", {"value": 0})

        error = await refusal("limit", functools.partial(self.open_limited().publish, message("q", "one")))

        assert not isinstance(error, AccessDenied)

    @case
    async def test_a_broker_object_works_as_soon_as_access_is_granted(self) -> None:
        broker = self.open_limited()
        with raises(AccessDenied):
            await broker.connect(timeout=30)

        await self.permit()

        async with asyncio.timeout(10):
            while True:
                try:
                    await broker.connect(timeout=10)
                    break
                except AccessDenied:
                    continue
        await self.queue(broker)


class TestAsking(AccessCase):
    @case
    async def test_each_forbidden_request_is_reported(self) -> None:
        queue = await self.queue(self.broker())
        await self.permit(configure=NOTHING, write=NOTHING, read=NOTHING)
        broker = self.open_limited()

        for request in (
            lambda: broker.declare([self.new_queue()]),
            lambda: self.consume(broker, queue),
            lambda: broker.purge(queue),
            lambda: self.look(broker, queue),
        ):
            with raises(AccessDenied) as caught:
                await request()
            assert "refused for user" in str(caught[0])

    @case
    async def test_a_consumer_whose_user_loses_the_permission_returns_with_it(self) -> None:
        owner = self.broker()
        work = self.new_queue()
        await owner.declare([work])
        await self.permit()
        broker = self.open_limited(port=self.proxy.port)
        inbox, consumer = await self.consume(broker, work.name)

        await self.permit(read=NOTHING)
        self.proxy.cut()

        async def is_denied() -> bool:
            return "cannot be consumed, will retry" in self.log.text and "refused for user" in self.log.text

        await eventually(is_denied, True, within=self.patience)
        assert not consumer.healthy
        await self.permit()
        await self.send(owner, work.name, "one")
        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_a_worker_without_permission_keeps_trying_and_logs_it(self) -> None:
        work = self.new_queue()
        app = TaskMQ(self.url_of(self.user, "pass"))

        @app.task(queue=work.name, result=False)
        async def nothing() -> None: ...

        worker = Worker(app, WorkerConfig())
        running = asyncio.create_task(worker.run())

        async def has_logged() -> bool:
            return "not consuming yet" in self.log.text

        await eventually(has_logged, True, within=self.patience)
        await self.permit()
        async with asyncio.timeout(self.patience):
            await worker.is_ready.wait()
        worker.drain()
        await running

    @pytest.fixture(autouse=True)
    def _log(self, caplog: pytest.LogCaptureFixture) -> None:
        self.log = caplog

    async def look(self, broker: RabbitMQBroker, queue: str) -> None:
        async with peek(broker, queue, limit=1):
            pass


class TestPublishing(AccessCase):
    @case
    async def test_a_forbidden_publish_ends_at_once(self) -> None:
        queue = await self.queue(self.broker())
        await self.permit(write=NOTHING)
        broker = self.open_limited()

        with raises(AccessDenied) as caught:
            await broker.publish(message(queue, "one"), timeout=30)
        futures = [broker.publish(message(queue, str(number)), timeout=30) for number in range(2000)]
        await asyncio.wait(futures)

        assert "exchange 'taskmq'" in str(caught[0])
        assert {type(future.exception()) for future in futures} == {AccessDenied}
        await self.expect_ready(self.broker(), queue, 0)

    @case
    async def test_messages_beside_refused_ones_arrive(self) -> None:
        broker, queue = await self.without_delays()

        allowed, refused = await self.publish_both(broker, queue, every=10)

        assert {type(future.exception()) for future in refused} == {AccessDenied}
        assert [future.exception() for future in allowed] == [None] * len(allowed)
        await self.expect_each(queue, len(allowed))

    @case
    async def test_the_refused_message_is_found_even_if_the_broker_does_not_name_it(self) -> None:
        self.frames.is_vague = True
        broker, queue = await self.without_delays(port=self.frames.port)

        allowed, refused = await self.publish_both(broker, queue, every=100)

        assert {type(future.exception()) for future in refused} == {AccessDenied}
        assert [future.exception() for future in allowed] == [None] * len(allowed)
        await self.expect_each(queue, len(allowed))

    @case
    async def test_a_publish_succeeds_soon_after_the_permission_is_granted(self) -> None:
        broker, queue = await self.without_delays()
        due = int(time.time() * 1000) + 60_000
        with raises(AccessDenied):
            await broker.publish(message(queue, "one", due=due), timeout=30)

        await self.permit()

        async def is_allowed() -> bool:
            try:
                await broker.publish(message(queue, "one", due=due), timeout=30)
            except AccessDenied:
                return False
            return True

        await until(is_allowed, within=timedelta(seconds=self.patience))

    @case
    async def test_a_message_possibly_accepted_before_a_revocation_is_unknown(self) -> None:
        queue = await self.queue(self.broker())
        await self.permit()
        broker = self.open_limited(port=self.proxy.port)
        await self.send(broker, queue, "the channel is open")
        self.proxy.stall(True)
        future = broker.publish(message(queue, "one"), timeout=30)
        await asyncio.sleep(0)

        await self.permit(write=NOTHING)
        self.proxy.cut()
        self.proxy.stall(False)

        with raises(PublishUnknown) as caught:
            await future
        assert "refused for user" in str(caught[0])

    async def without_delays(self, port: int | None = None) -> tuple[RabbitMQBroker, str]:
        work = self.new_queue()
        await self.broker().declare([work])
        await self.permit(write=NO_DELAYS)
        broker = self.open_limited(port=port)
        await broker.declare([work])
        return broker, work.name

    async def publish_both(
        self, broker: RabbitMQBroker, queue: str, *, every: int
    ) -> tuple[list[asyncio.Future[None]], list[asyncio.Future[None]]]:
        due = int(time.time() * 1000) + 600_000
        allowed: list[asyncio.Future[None]] = []
        refused: list[asyncio.Future[None]] = []
        for number in range(600):
            if number % every == every // 2:
                refused.append(broker.publish(message(queue, "late", due=due), timeout=20))
            else:
                allowed.append(broker.publish(message(queue, str(len(allowed))), timeout=20))
            if number % 50 == 0:
                await asyncio.sleep(0.01)
        await asyncio.wait([*allowed, *refused])
        return allowed, refused

    async def expect_each(self, queue: str, count: int) -> None:
        inbox, _ = await self.consume(self.broker(), queue, prefetch=100)
        came: set[str] = set()
        while len(came) < count:
            came |= set(bodies(await inbox.take_and_ack(1)))
        assert came == {str(number) for number in range(count)}
