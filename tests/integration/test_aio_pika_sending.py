"""Jobs over connections of aio-pika: the same messages, taskmq errors, and faults of the network."""

import asyncio
import contextlib
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, TransactionState
from pika.exceptions import ChannelClosedByBroker  # type: ignore[import-untyped]

from taskmq import TaskMQ
from taskmq.errors import (
    AccessDenied,
    BrokerUnavailable,
    InvalidArguments,
    InvalidOption,
    PublishRejected,
    PublishUnknown,
    SendError,
    TooLarge,
    Unroutable,
)
from taskmq.model.headers import ETA, SEQUENCE
from taskmq.worker import Worker, WorkerConfig
from taskmq_aio_pika import send
from tests.integration.raw_rabbitmq import Raw
from tests.servers import RabbitMQ, StartRabbitMQ, TcpProxy, until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]


def _app(url: str, **options: float) -> TaskMQ:
    app = TaskMQ(url, send_timeout=options.get("send_timeout", 30.0))

    @app.task(name="add", queue="sums")
    async def add(left: int, right: int = 0) -> int:
        return left + right

    @app.task(name="keep", queue="kept")
    async def keep(text: str) -> str:
        return text

    return app


@contextlib.asynccontextmanager
async def _connect(url: str) -> AsyncIterator[AbstractConnection]:
    connection = await aio_pika.connect(url, heartbeat=5)
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):
            await connection.close()


async def _declare(app: TaskMQ, *queues: str) -> None:
    await app.sessions.current().declare([app.producer.queue(name) for name in queues or ("sums",)])


@pytest.mark.parametrize(
    "options", [{}, {"delay": "1h"}, {"priority": 9, "tenant": "acme"}, {"headers": {"note": "größe"}}]
)
async def test_a_message_equals_one_sent_by_the_app_itself(amqp_url: str, options: dict[str, object]) -> None:
    call = {**options, "job_id": "job-1"}
    async with _app(amqp_url) as app, _connect(amqp_url) as connection:
        add = app.tasks["add"].with_options(call)
        await app.tasks["add"].options(priority=9).asend(0)
        with Raw(amqp_url) as raw:
            raw.take("sums.p.high")
            await add.asend(1, right=2)
            one = _take_message(raw)
            await send(await connection.channel(), add, 1, right=2)
            other = _take_message(raw)

    del one["headers"][SEQUENCE]
    assert other == one


_QUEUES = ("sums", "sums.p.high", *(f"taskmq.delay.v2.l{level:02}" for level in range(28)))
_TIMES = {"enqueued", "eta"}


def _take_message(raw: Raw) -> dict[str, Any]:
    """Consume the only message and return all its fields: times are 0, and each of the two is a list of ways."""
    for queue in _QUEUES:
        try:
            message = raw.take(queue) if raw.ready(queue) else None
        except ChannelClosedByBroker:
            raw.reopen()
            continue
        if message is not None:
            body = json.loads(message.body)
            found: dict[str, Any] = vars(message.properties) | {
                "timestamp": 0,
                "body": body | dict.fromkeys(_TIMES & body.keys(), 0),
            }
            headers = found["headers"] = dict(message.properties.headers)
            if ETA in headers:
                headers[ETA], headers["CC"] = 0, [way[0] for way in headers["CC"][:1]]
            headers.pop("x-delivery-count", None)
            return found
    raise AssertionError(f"none of {_QUEUES} has a message")


async def test_a_worker_runs_a_sent_job_and_its_result_is_typed(amqp_url: str, redis_url: str) -> None:
    app = TaskMQ(amqp_url, state=redis_url)

    @app.task(name="add", queue="sums", result=True)
    async def add(left: int, right: int = 0) -> int:
        return left + right

    async with app, _connect(amqp_url) as connection:
        await _declare(app)
        channel = await connection.channel()
        jobs = [await send(channel, add, 1, right=2), await send(channel, add.options(delay="500ms"), 3, right=4)]
        with Raw(amqp_url) as raw:
            await until(lambda: raw.ready("sums") == 2, "the delayed one being due")
        await Worker(app, WorkerConfig(burst=True)).run()
        results: list[int] = [await job.aresult() for job in jobs]

    assert results == [3, 7]


async def test_an_invalid_job_is_refused_before_and_the_channel_continues(amqp_url: str) -> None:
    async with _app(amqp_url) as app, _connect(amqp_url) as connection:
        channel, plain = await connection.channel(), await connection.channel(publisher_confirms=False)
        raising = await connection.channel(on_return_raises=True)
        with pytest.raises(InvalidArguments):
            await send(channel, app.tasks["add"], "one", wrong=1)
        with pytest.raises(InvalidOption, match="publisher_confirms=True"):
            await send(plain, app.tasks["add"], 1)
        # The exchanges are declared with the first queue.
        await _declare(app, "kept")
        for each in (channel, raising):
            with pytest.raises(Unroutable, match="taskmq topology apply"):
                await send(each, app.tasks["add"], 1)
        await _declare(app)
        assert (await send(channel, app.tasks["add"], 1)).id
        await channel.close()
        with pytest.raises(BrokerUnavailable, match="was not sent"):
            await send(channel, app.tasks["add"], 1)


async def test_a_job_is_unroutable_without_the_taskmq_exchanges(amqp_url: str) -> None:
    async with _app(amqp_url) as app, _connect(amqp_url) as connection:
        with pytest.raises(Unroutable, match="start a worker"):
            await send(await connection.channel(), app.tasks["add"], 1)


async def test_a_transaction_decides_about_all_jobs_sent_in_it(amqp_url: str) -> None:
    async with _app(amqp_url) as app, _connect(amqp_url) as connection:
        await _declare(app)
        channel = await connection.channel(publisher_confirms=False)
        own = await channel.declare_queue("own", durable=True)
        with Raw(amqp_url) as raw:
            async with channel.transaction() as transaction:
                await send(transaction, app.tasks["add"], 1)
                await send(transaction, app.tasks["add"].options(delay="1h"), 2)
                await channel.default_exchange.publish(aio_pika.Message(b"own"), own.name)
                assert raw.ready("sums") == 0
            assert (raw.ready("sums"), raw.ready("own")) == (1, 1)
            with contextlib.suppress(ZeroDivisionError):
                async with channel.transaction() as transaction:
                    await send(transaction, app.tasks["add"], 3)
                    raise ZeroDivisionError
            with contextlib.suppress(Unroutable):
                async with channel.transaction() as transaction:
                    await send(transaction, app.tasks["add"], 4)
                    await send(transaction, app.tasks["keep"], "nowhere")
            assert transaction.state is TransactionState.ROLLED_BACK
            assert raw.ready("sums") == 1
        with pytest.raises(InvalidOption, match="rolled back"):
            await send(transaction, app.tasks["add"], 5)


async def test_a_refusal_by_the_broker_is_a_taskmq_error(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    vhost = urlsplit(amqp_url).path.removeprefix("/")
    user = f"reader-{secrets.token_hex(4)}"
    async with _app(amqp_url) as app:
        await _declare(app, "sums")
        with Raw(amqp_url) as raw:
            raw.channel.queue_declare(
                "kept", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
            )
            raw.channel.queue_bind("kept", "taskmq", "kept")
        async with _connect(amqp_url) as connection:
            channel = await connection.channel()
            await send(channel, app.tasks["keep"], "first")
            with pytest.raises(PublishRejected, match="may be full"):
                await send(channel, app.tasks["keep"], "second")
        rabbitmq_server.http("PUT", f"/api/users/{user}", {"password": "secret", "tags": ""})
        rabbitmq_server.http(
            "PUT", f"/api/permissions/{vhost}/{user}", {"configure": "", "write": "^other$", "read": ""}
        )
        denied = urlsplit(amqp_url)._replace(netloc=f"{user}:secret@127.0.0.1:{rabbitmq_server.port}").geturl()
        async with _connect(denied) as connection:
            with pytest.raises(AccessDenied, match="taskmq"):
                await send(await connection.channel(), app.tasks["add"], 1)
        rabbitmq_server.http("DELETE", f"/api/users/{user}")


@pytest.mark.nightly("tests/integration/test_aio_pika_sending.py::test_a_refusal_by_the_broker_is_a_taskmq_error")
async def test_a_message_above_the_server_limit_is_too_large(own_rabbitmq: StartRabbitMQ) -> None:
    server = own_rabbitmq(config={"max_message_size": "10000"})
    async with _app(server.url) as app, _connect(server.url) as connection:
        await _declare(app, "kept")
        with pytest.raises(TooLarge, match="10,000"):
            await send(await connection.channel(), app.tasks["keep"], "x" * 20_000)


async def test_a_missing_confirm_leaves_the_job_unknown(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    with TcpProxy(rabbitmq_server.port) as proxy:
        url = urlsplit(amqp_url)._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        hasty = _app(amqp_url, send_timeout=1.0)
        async with _app(amqp_url) as patient, _connect(url) as connection:
            # A declaration may take longer on a busy machine than the send timeout.
            await _declare(patient)
            channel = await connection.channel()
            proxy.hold_answers(True)
            with pytest.raises(PublishUnknown, match="in time"):
                await send(channel, hasty.tasks["add"], 1)
            late = asyncio.create_task(send(channel, patient.tasks["add"], 2))
            cancelled = asyncio.create_task(send(channel, patient.tasks["add"], 3))
            with Raw(amqp_url) as raw:
                await until(lambda: raw.ready("sums") == 3, "the messages being there")
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            proxy.cut()
            with pytest.raises(PublishUnknown, match="lost before"):
                await late


@pytest.mark.nightly("tests/integration/test_aio_pika_sending.py::test_a_missing_confirm_leaves_the_job_unknown")
async def test_an_owner_that_closes_the_channel_cancels_no_caller(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    with TcpProxy(rabbitmq_server.port) as proxy:
        url = urlsplit(amqp_url)._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        async with _app(amqp_url) as app, _connect(url) as connection:
            await _declare(app)
            channel = await connection.channel()
            proxy.hold_answers(True)
            sending = asyncio.create_task(send(channel, app.tasks["add"], 1))
            with Raw(amqp_url) as raw:
                await until(lambda: raw.ready("sums") == 1, "the message being there")
            closing = asyncio.create_task(connection.close())
            with pytest.raises(PublishUnknown):
                await sending
            proxy.cut()
            await asyncio.wait({closing})


async def test_two_jobs_of_one_id_over_one_channel_take_turns(amqp_url: str) -> None:
    async with _app(amqp_url) as app, _connect(amqp_url) as connection:
        await _declare(app)
        channel = await connection.channel()
        outcomes = await asyncio.gather(
            send(channel, app.tasks["add"].options(job_id="one"), 1),
            send(channel, app.tasks["keep"].options(job_id="one"), "nowhere"),
            send(channel, app.tasks["add"].options(job_id="one"), 2),
            return_exceptions=True,
        )

    assert [type(each).__name__ for each in outcomes] == ["Job", "Unroutable", "Job"]


@pytest.mark.nightly("tests/integration/test_aio_pika_sending.py::test_a_missing_confirm_leaves_the_job_unknown")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["plain", pytest.param("robust", marks=pytest.mark.campaign)])
async def test_no_confirmed_job_is_lost_through_cuts_freezes_and_restarts(
    own_rabbitmq: StartRabbitMQ, kind: str
) -> None:
    server = own_rabbitmq()
    sent, confirmed, unknown = 300, Counter[str](), Counter[str]()
    with TcpProxy(server.port) as proxy:
        url = f"amqp://guest:guest@127.0.0.1:{proxy.port}/"
        app = _app(server.url, send_timeout=3.0)
        async with _app(server.url) as patient:
            await _declare(patient)
            sender = _Sender(url, app, robust=kind == "robust")
            for number in range(sent):
                if number in {60, 120}:
                    proxy.cut()
                elif number == 180:
                    server.pause()
                    asyncio.get_running_loop().call_later(4, server.resume)
                elif number == 240:
                    server.kill()
                    await asyncio.to_thread(server.restart)
                await sender.send(f"job-{number}", confirmed, unknown)
            await sender.close()
        with Raw(server.url) as raw:
            come = Counter(_take_raw(raw))

    assert set(confirmed) == {f"job-{number}" for number in range(sent)}
    assert set(come) == set(confirmed)
    # A job exists once per confirm, and at most once more per unknown result.
    assert all(confirmed[job] <= come[job] <= confirmed[job] + unknown[job] for job in come)
    assert sum(unknown.values()) <= 12


class _Sender:
    """Sends again, over a new channel if the last one is lost, until it is confirmed."""

    def __init__(self, url: str, app: TaskMQ, *, robust: bool) -> None:
        self._url = url
        self._app = app
        self._connect = aio_pika.connect_robust if robust else aio_pika.connect
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None

    async def send(self, job_id: str, confirmed: Counter[str], unknown: Counter[str]) -> None:
        while not confirmed[job_id]:
            try:
                channel = await self._open()
                await send(channel, self._app.tasks["add"].options(job_id=job_id), 1)
                confirmed[job_id] += 1
            except PublishUnknown:
                unknown[job_id] += 1
                await self.close()
            except (TimeoutError, SendError, OSError, aio_pika.exceptions.AMQPError, RuntimeError):
                await self.close()

    async def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2):
                    await self._connection.close()
        self._connection = self._channel = None

    async def _open(self) -> AbstractChannel:
        if self._channel is None:
            async with asyncio.timeout(5):
                self._connection = await self._connect(self._url, heartbeat=2)
                self._channel = await self._connection.channel()
        return self._channel


def _take_raw(raw: Raw) -> list[str]:
    found: list[str] = []
    while raw.ready("sums"):
        found.append(raw.take("sums").properties.message_id)
    return found
