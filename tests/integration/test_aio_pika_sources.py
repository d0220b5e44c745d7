"""Messages in foreign queues become jobs, whatever happens to their broker."""

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from taskmq.contracts.broker import Delivery
from taskmq.contracts.source import SourceQueue
from taskmq.errors import (
    AccessDenied,
    BrokerUnavailable,
    InvalidSetting,
    QueueMissing,
    TaskMQError,
    TopologyMismatch,
)
from taskmq_aio_pika import open_source
from tests.cli.kit import Started
from tests.integration.raw_rabbitmq import Raw
from tests.servers import RabbitMQ, StartRabbitMQ, TcpProxy, eventually, until

pytestmark = pytest.mark.rabbitmq

_APP = """\
import os
from taskmq import TaskMQ
from taskmq.reactions import MessageArrived, amqp

app = TaskMQ(name="shop")
RUNS = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.on(amqp(os.environ["CRM_URL"], queue="orders", prefetch=20))
@app.task(name="order", queue="work")
async def order(came: MessageArrived) -> None:
    os.write(RUNS, f"{came.body.decode()[:20]} {came.message_id}\\n".encode())


@app.on(amqp(exchange="sales", keys=["bill.*"]))
@app.task(name="bill", queue="work")
async def bill(came: MessageArrived) -> None:
    os.write(RUNS, f"bill {came.routing_key}\\n".encode())
"""


class _Listener:
    """Listens like a beat, and keeps the messages."""

    def __init__(self, url: str, name: str = "orders", *, exchange: str = "", prefetch: int = 10) -> None:
        keys = ("orders.#",) if exchange else ()
        self.source = open_source(SourceQueue(url=url, name=name, exchange=exchange, keys=keys, prefetch=prefetch))
        self.come: list[Delivery] = []
        self.errors: list[TaskMQError] = []

    async def look(self) -> bool:
        try:
            await self.source.listen(self.come.append)
        except TaskMQError as error:
            self.errors.append(error)
            return False
        return True

    async def until(self, check: Callable[[], bool], what: str) -> None:
        async def has_polled() -> bool:
            await self.look()
            return check()

        await until(has_polled, what, every=timedelta(milliseconds=100))

    def bodies(self) -> list[str]:
        return [each.body.decode() for each in self.come]


@contextlib.asynccontextmanager
async def _listening(url: str, name: str = "orders", **options: object) -> AsyncIterator[_Listener]:
    listener = _Listener(url, name, **options)  # type: ignore[arg-type]
    try:
        yield listener
    finally:
        await listener.source.stop()


def _through(proxy: TcpProxy, url: str, options: str = "") -> str:
    return urlsplit(url)._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl() + options


@pytest.mark.real_time
async def test_unacked_messages_are_limited_by_prefetch(amqp_url: str) -> None:
    with Raw(amqp_url) as raw:
        raw.quorum("orders")
        for number in range(5):
            raw.publish(
                "", "orders", b"%d" % number, message_id=f"m{number}", type="order", content_type="text/plain"
            )
        async with _listening(amqp_url, prefetch=2) as listener:
            await listener.until(lambda: len(listener.come) == 2, "two messages")
            assert await listener.look()
            first, second = listener.come
            assert (first.body, first.message_id, first.task, first.content_type) == (
                b"0",
                "m0",
                "order",
                "text/plain",
            )
            assert (first.queue, first.redelivered, getattr(first, "routing_key", "")) == ("orders", False, "orders")
            first.ack()
            first.requeue()
            second.requeue()
            await listener.until(lambda: len(listener.come) == 4, "two further ones")
        await until(lambda: raw.ready("orders") == 4, "what was not settled is given back")


@pytest.mark.real_time
async def test_unacked_messages_are_redelivered_after_a_cut(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    with Raw(amqp_url) as raw, TcpProxy(rabbitmq_server.port) as proxy:
        raw.quorum("orders")
        raw.publish("", "orders", b"0")
        async with _listening(_through(proxy, amqp_url)) as listener:
            await listener.until(lambda: len(listener.come) == 1, "the message")
            proxy.cut()
            await listener.until(lambda: len(listener.come) == 2, "the message again")
            late, held = listener.come
            # Only its own channel would know it.
            late.ack()
            assert held.redelivered
            held.ack()
            raw.publish("", "orders", b"1")
            await listener.until(lambda: listener.bodies() == ["0", "0", "1"], "the next one")
            listener.come[-1].ack()
        await until(lambda: raw.ready("orders") == 0, "nothing is left")


@pytest.mark.nightly("tests/integration/test_aio_pika_sources.py::test_unacked_messages_are_redelivered_after_a_cut")
@pytest.mark.real_time
async def test_a_silent_broker_is_left_after_its_heartbeats(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    with Raw(amqp_url) as raw, TcpProxy(rabbitmq_server.port) as proxy:
        raw.quorum("orders")
        async with _listening(_through(proxy, amqp_url, "?heartbeat=3")) as listener:
            assert await listener.look()
            proxy.strand()
            raw.publish("", "orders", b"0")
            await listener.until(lambda: listener.bodies() == ["0"], "the message over another connection")


@pytest.mark.real_time
async def test_a_deleted_queue_is_waited_for_until_it_exists_again(amqp_url: str) -> None:
    with Raw(amqp_url) as raw:
        raw.quorum("orders")
        async with _listening(amqp_url) as listener:
            assert await listener.look()
            raw.channel.queue_delete("orders")
            await listener.until(lambda: bool(listener.errors), "the queue is missed")
            assert all(isinstance(each, QueueMissing) for each in listener.errors)
            raw.quorum("orders")
            raw.publish("", "orders", b"0")
            await listener.until(lambda: listener.bodies() == ["0"], "the message")


@pytest.mark.real_time
async def test_an_own_queue_is_declared_bound_and_declared_again(amqp_url: str) -> None:
    with Raw(amqp_url) as raw:
        async with _listening(amqp_url, "ours", exchange="sales") as listener:
            assert not await listener.look()
            assert isinstance(listener.errors[0], QueueMissing)
            assert "sales" in str(listener.errors[0])
            raw.channel.exchange_declare("sales", "topic", durable=True)
            await listener.until(lambda: listener.source._listening is not None, "it listens")
            raw.publish("sales", "orders.new", b"0")
            await listener.until(lambda: listener.bodies() == ["0"], "the message")
            raw.channel.queue_delete("ours")
            await listener.until(lambda: _is_routed(raw), "it is declared again")
            await listener.until(lambda: listener.bodies() == ["0", "1"], "the message")


def _is_routed(raw: Raw) -> bool:
    import pika  # type: ignore[import-untyped]

    with contextlib.suppress(pika.exceptions.UnroutableError):
        raw.publish("sales", "orders.new", b"1")
        return True
    return False


@pytest.mark.real_time
async def test_a_connection_failure_is_reported_without_the_password(amqp_url: str) -> None:
    wrong = amqp_url.replace("guest:guest@", "guest:s3cret@")
    with Raw(amqp_url) as raw:
        raw.channel.exchange_declare("sales", "topic", durable=True)
        raw.channel.queue_declare("classic", durable=True)
    for url, name, exchange, kind in [
        (wrong, "orders", "", AccessDenied),
        ("amqp://guest:s3cret@127.0.0.1:1/", "orders", "", BrokerUnavailable),
        (amqp_url, "classic", "sales", TopologyMismatch),
    ]:
        async with _listening(url, name, exchange=exchange) as listener:
            assert not await listener.look()
        (error,) = listener.errors
        assert type(error) is kind, error
        assert "s3cret" not in str(error)
        assert "guest" not in listener.source.address


def test_an_invalid_url_is_refused_at_once() -> None:
    with pytest.raises(InvalidSetting):
        open_source(SourceQueue(url="amqp://u:p@crm:port/", name="orders"))


class _Place:
    """A folder with an app, its beats and workers, and the records of its tasks."""

    def __init__(self, folder: Path, stack: ExitStack, **environment: str) -> None:
        self.folder = folder
        self._stack = stack
        self._environment = environment
        (folder / "shop.py").write_text(_APP)

    def start(self, kind: str) -> Started:
        return self._stack.enter_context(Started(self.folder, kind, "shop:app", env=self._environment))

    def runs(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            whole, _, _ = (self.folder / "runs").read_text().rpartition("\n")
            return whole.splitlines()
        return []

    def until(self, check: Callable[[], bool], what: str) -> None:
        eventually(check, what, within=timedelta(seconds=60), every=timedelta(milliseconds=100))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.campaign
@pytest.mark.timeout(300)
def test_nothing_is_lost_through_cuts_freezes_restarts_and_a_killed_beat(
    tmp_path: Path, stack: ExitStack, own_rabbitmq: StartRabbitMQ, amqp_url: str, redis_url: str
) -> None:
    crm = own_rabbitmq()
    proxy = stack.enter_context(TcpProxy(crm.port))
    with Raw(crm.url) as raw:
        raw.quorum("orders")
    with Raw(amqp_url) as raw:
        raw.channel.exchange_declare("sales", "topic", durable=True)
    crm_url = f"amqp://guest:guest@127.0.0.1:{proxy.port}/?heartbeat=3"
    place = _Place(tmp_path, stack, TASKMQ_URL=amqp_url, TASKMQ_STATE=redis_url, CRM_URL=crm_url)
    place.start("worker")
    beats = [place.start("beat"), place.start("beat")]
    expected: set[str] = set()

    def publish(count: int, *, named: bool) -> None:
        with Raw(crm.url) as raw:
            for _ in range(count):
                number = str(len(expected))
                message_id = f"m{number}" if named else None
                raw.publish("", "orders", number.encode(), message_id=message_id)
                expected.add(f"{number} {message_id}")

    faults: list[Callable[[], None]] = [
        proxy.cut,
        beats[0].process.kill,
        lambda: _freeze(crm),
        crm.restart,
        lambda: _kill(crm),
        proxy.cut,
    ]
    for named in (True, False):
        for fault in faults:
            publish(40, named=named)
            fault()
    place.until(lambda: set(place.runs()) >= expected, "every message is reacted to")
    with Raw(amqp_url) as raw:
        raw.publish("sales", "bill.new", b"")
    place.until(lambda: "bill bill.new" in place.runs(), "a message of the app's own broker is reacted to")
    eventually(lambda: _is_empty(crm), "no message is left")

    runs = Counter(place.runs())
    assert set(runs) == {*expected, "bill bill.new"}
    # A message with an id is recognised. One without runs again if a beat held it during a loss.
    assert {line: count for line, count in runs.items() if count > 1 and not line.endswith("None")} == {}
    assert sum(count - 1 for count in runs.values()) <= 20 * 2 * len(faults)


def _freeze(server: RabbitMQ) -> None:
    server.pause()
    with contextlib.suppress(TimeoutError):
        eventually(lambda: False, within=timedelta(seconds=8))
    server.resume()


def _kill(server: RabbitMQ) -> None:
    server.kill()
    server.restart()


def _is_empty(server: RabbitMQ) -> bool:
    with Raw(server.url) as raw:
        return raw.ready("orders") == 0


def test_a_message_that_can_never_be_a_job_is_parked_and_blocks_no_other(
    tmp_path: Path, stack: ExitStack, rabbitmq_server: RabbitMQ, amqp_url: str, fresh_amqp_url: str, redis_url: str
) -> None:
    stack.enter_context(rabbitmq_server.settings({"max_message_size": 100_000}))
    with Raw(amqp_url) as raw:
        raw.quorum("orders")
        raw.publish("", "orders", b"x" * 90_000, message_id="large")
        raw.publish("", "orders", b"small", message_id="m")
    with Raw(fresh_amqp_url) as raw:
        raw.channel.exchange_declare("sales", "topic", durable=True)
    place = _Place(tmp_path, stack, TASKMQ_URL=fresh_amqp_url, TASKMQ_STATE=redis_url, CRM_URL=amqp_url)
    place.start("worker")
    beat = place.start("beat")

    place.until(lambda: "small m" in place.runs(), "the other one is reacted to")
    with Raw(fresh_amqp_url) as raw:
        letter = raw.take("taskmq.parking", within=30)
    beat.says("message large parked")
    assert (letter.properties.message_id, len(letter.body)) == ("large", 90_000)
    assert letter.properties.headers["x-taskmq-reason"] == "too large"
    assert letter.properties.headers["x-taskmq-origin"].startswith("orders at amqp://127.0.0.1")


@pytest.mark.nightly(
    "tests/integration/test_aio_pika_sources.py::test_a_connection_failure_is_reported_without_the_password"
)
def test_a_reaction_is_explained_without_the_password(
    tmp_path: Path, stack: ExitStack, amqp_url: str, redis_url: str
) -> None:
    crm_url = "amqp://user:s3cret@crm/sales?heartbeat=3"
    place = _Place(tmp_path, stack, TASKMQ_URL=amqp_url, TASKMQ_STATE=redis_url, CRM_URL=crm_url)
    told = stack.enter_context(
        Started(tmp_path, "--app", "shop:app", "-o", "json", "schedule", "explain", "order", env=place._environment)
    )
    assert told.process.wait(40) == 0, told.said
    facts = json.loads(told.said)

    assert facts["rule"] == "when a message has arrived in the queue orders at amqp://crm/sales"
    assert facts["queues"] == ["orders"]
    assert "s3cret" not in str(facts)
