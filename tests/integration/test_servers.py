"""The test servers themselves: they start, break as requested, recover, and never outlive the tests."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite import message
from taskmq_rabbitmq import open_broker
from tests.servers import (
    NotSupported,
    PostgreSQL,
    RabbitMQ,
    RabbitMQCluster,
    Redis,
    ServerFailed,
    ServerUnavailable,
    TcpProxy,
    eventually,
)
from tests.servers.packages import missing
from tests.servers.ports import PortLease, accepts

pytestmark = pytest.mark.campaign

_REPOSITORY = Path(__file__).parents[2]
_ASKS_FOR_TLS = bytes.fromhex("0000000804d2162f")


# Redis


def test_redis_keeps_its_data_over_a_kill_and_a_restart_on_the_same_port() -> None:
    with Redis() as server:
        url = server.url
        server.command("SET", "key", "value")

        server.kill()
        assert not accepts(server.port)
        server.restart()

        assert server.command("GET", "key") == "value"
        assert server.url == url


def test_redis_without_appendonly_restarts_empty() -> None:
    with Redis(appendonly=False) as server:
        server.command("SET", "key", "value")

        server.stop()
        server.restart()

        assert server.command("GET", "key") is None


def test_a_paused_redis_accepts_and_stays_silent_until_it_is_resumed() -> None:
    with Redis() as server, _connect(server.port) as client:
        server.pause()
        client.sendall(b"PING\r\n")
        assert _is_silent(client)

        server.resume()

        assert client.recv(100) == b"+PONG\r\n"


def test_a_paused_server_can_be_stopped() -> None:
    with Redis() as server:
        server.pause()

        server.stop()

        assert not accepts(server.port)


def test_redis_url_is_an_empty_database(redis_url: str, redis_server: Redis) -> None:
    assert redis_server.url == redis_url
    assert redis_server.command("DBSIZE") == 0


# PostgreSQL


def test_postgres_keeps_committed_rows_over_a_kill_and_a_restart(postgres_server: PostgreSQL) -> None:
    url = postgres_server.create_database()
    postgres_server.sql("CREATE TABLE job (id int); INSERT INTO job VALUES (7)", url=url)

    postgres_server.kill()
    assert not accepts(postgres_server.port)
    postgres_server.restart()

    assert postgres_server.sql("SELECT id FROM job", url=url) == "7"
    postgres_server.drop_database(url)


def test_postgres_stops_while_clients_are_connected() -> None:
    with PostgreSQL() as server:
        with _connect(server.port) as client:
            # A connection accepted after the signal to stop is waited for, up to a minute: until it has
            # authenticated.
            client.sendall(_ASKS_FOR_TLS)
            assert client.recv(1) in (b"N", b"S")
            server.stop()

        server.restart()
        assert server.sql("SELECT 1") == "1"


def test_postgres_url_is_a_database_of_the_test(postgres_url: str, postgres_server: PostgreSQL) -> None:
    name = urlsplit(postgres_url).path.strip("/")

    assert postgres_server.sql("SELECT current_database()", url=postgres_url) == name
    assert name != "postgres"


# RabbitMQ


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ]:
    """Start a node that the tests of this file break and leave running."""
    with RabbitMQ(config={"channel_max": "77"}) as node:
        yield node


@pytest.mark.rabbitmq
def test_rabbitmq_keeps_confirmed_messages_over_a_kill_and_a_restart(broker: RabbitMQ) -> None:
    vhost = _vhost(broker.create_vhost())
    broker.http("PUT", f"/api/queues/{vhost}/work", {"durable": True})
    _publish(broker, vhost, "work", "hello")

    broker.kill()
    assert not accepts(broker.port)
    broker.restart()

    assert _get(broker, vhost, "work") == ["hello"]


@pytest.mark.rabbitmq
@pytest.mark.slow
def test_rabbitmq_keeps_persistent_messages_over_a_stop_and_a_restart(broker: RabbitMQ) -> None:
    vhost, port = _vhost(broker.create_vhost()), broker.port
    broker.http("PUT", f"/api/queues/{vhost}/work", {"durable": True})
    _publish(broker, vhost, "work", "hello")

    broker.stop()
    assert not accepts(port)
    broker.restart()

    assert _get(broker, vhost, "work") == ["hello"]
    assert broker.port == port


@pytest.mark.rabbitmq
def test_a_paused_rabbitmq_accepts_and_stays_silent_until_it_is_resumed(broker: RabbitMQ) -> None:
    broker.pause()
    with _connect(broker.port) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert _is_silent(client)

        broker.resume()

        assert client.recv(1) == b"\x01"  # a method frame: Connection.Start


@pytest.mark.rabbitmq
def test_rabbitmqctl_reaches_the_node_and_its_configuration(broker: RabbitMQ) -> None:
    assert broker.ctl("eval", "application:get_env(rabbit, channel_max).").strip() == "{ok,77}"


@pytest.mark.rabbitmq
def test_the_minutely_machine_that_a_node_starts_for_epmd_loads_nothing(broker: RabbitMQ) -> None:
    # If it loads modules like its node, it costs each node two seconds of processor a minute.
    loaded = 'io:write([code:is_loaded(rabbit), os:getenv(\\"ERL_AFLAGS\\")]), halt().'
    erl = broker.evaluate(f"os:cmd(\"erl -noinput -eval '{loaded}'\").")

    assert "[false,false]" in erl


@pytest.mark.rabbitmq
def test_the_version_is_the_one_that_the_node_reports(broker: RabbitMQ) -> None:
    major, minor, patch = broker.version.split(".")[:3]

    assert (int(major), int(minor)) >= (3, 10)
    assert patch


@pytest.mark.rabbitmq
def test_a_deleted_vhost_is_gone(broker: RabbitMQ) -> None:
    url = broker.create_vhost()
    broker.http("GET", f"/api/vhosts/{_vhost(url)}")

    broker.delete_vhost(url)

    with pytest.raises(ServerFailed, match="404"):
        broker.http("GET", f"/api/vhosts/{_vhost(url)}")


@pytest.mark.rabbitmq
def test_amqp_url_is_a_vhost_of_the_test(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    permissions = cast(
        "list[dict[str, str]]", rabbitmq_server.http("GET", f"/api/vhosts/{_vhost(amqp_url)}/permissions")
    )

    assert [(each["user"], each["write"]) for each in permissions] == [("guest", ".*")]


@pytest.mark.rabbitmq
def test_a_node_that_cannot_start_gives_the_reason() -> None:
    with pytest.raises(ServerFailed, match="no_such_setting"):
        RabbitMQ(config={"no_such_setting": "1"}).__enter__()


@pytest.mark.rabbitmq
@pytest.mark.matrix
def test_another_version_runs_from_its_chroot() -> None:
    with RabbitMQ("4.0") as node:
        assert node.version.startswith("4.0.")
        assert f"RabbitMQ version: {node.version}" in node.ctl("status")


@pytest.mark.rabbitmq
@pytest.mark.matrix
def test_a_cluster_is_complete_again_after_a_member_was_killed() -> None:
    with RabbitMQCluster() as cluster:
        cluster.nodes[2].kill()
        eventually(lambda: not cluster.is_complete(), "the loss of a member being seen")

        cluster.nodes[2].restart()

        eventually(cluster.is_complete, "the member being back")


# Sources


def test_a_foreign_server_can_be_used_but_not_killed(redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_TEST_REDIS_URL", redis_server.url)

    with Redis() as server:
        assert server.command("PING") == "PONG"
        with pytest.raises(NotSupported, match="TASKMQ_TEST_REDIS_URL"):
            server.kill()


def test_an_unavailable_version_is_an_error_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKMQ_TEST_AMQP_URL", raising=False)
    monkeypatch.setenv("TASKMQ_TEST_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")  # no container engine either

    with pytest.raises(ServerUnavailable, match=r"python -m tests\.servers provision rabbitmq-4\.3"):
        RabbitMQ("4.3").start()


def test_missing_amqp_tools_are_reported_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing(("amqp-tools",)) == ["amqp-tools"]

    (tmp_path / "amqp-publish").touch(mode=0o755)

    assert missing(("amqp-tools",)) == []


def test_a_leased_port_is_not_leased_again_while_nothing_listens() -> None:
    with PortLease(50) as one, PortLease(50) as other:
        assert not set(one.ports) & set(other.ports)


# Cleanup after the test process

_STARTS_SERVERS = """
import json, sys, time
from tests.servers import PostgreSQL, RabbitMQ, Redis

servers = [kind() for kind in (RabbitMQ, Redis, PostgreSQL) if kind.__name__ in sys.argv]
for server in servers:
    server.start()
print(json.dumps([server.pids() for server in servers]), flush=True)
if "wait" in sys.argv:
    time.sleep(600)
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """Create a directory that every user may enter, unlike pytest's own: PostgreSQL runs unprivileged."""
    with tempfile.TemporaryDirectory(prefix="test-servers-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.rabbitmq
def test_everything_ends_when_the_test_process_is_killed(directory: Path) -> None:
    process, pids = _start_servers(directory, "RabbitMQ", "Redis", "PostgreSQL", "wait")
    assert len(pids) > 6
    assert len(list(directory.glob("taskmq-*"))) == 3

    process.kill()
    process.communicate()

    _expect_nothing_left(pids, directory)


def test_everything_ends_when_the_test_process_forgets_to_close(directory: Path) -> None:
    process, pids = _start_servers(directory, "Redis", "PostgreSQL")

    process.communicate()

    _expect_nothing_left(pids, directory)


def test_a_server_ends_when_its_keeper_is_killed() -> None:
    with Redis() as server:
        standby, redis, *others = server.pids()
        assert not others

        os.kill(standby, signal.SIGKILL)

        eventually(lambda: not _is_running(redis), "the end of redis")
        with pytest.raises(ServerFailed, match="keeper"):
            server.kill()


# The proxy


def test_a_proxy_forwards_and_counts_its_connections(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        client.sendall(b"PING\r\n")

        assert client.recv(100) == b"+PONG\r\n"
        assert proxy.connections == 1


def test_a_cut_resets_every_connection_and_accepts_new_ones(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        client.sendall(b"PING\r\n")
        client.recv(100)

        proxy.cut()

        with pytest.raises(ConnectionResetError):
            client.recv(100)
        with _connect(proxy.port) as another:
            another.sendall(b"PING\r\n")
            assert another.recv(100) == b"+PONG\r\n"


def test_a_refusing_proxy_refuses_new_connections_and_keeps_the_old(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        client.sendall(b"PING\r\n")
        client.recv(100)

        proxy.refuse(True)
        with pytest.raises(ConnectionRefusedError):
            _connect(proxy.port)
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"
        proxy.refuse(False)

        _connect(proxy.port).close()


def test_a_stalled_proxy_is_a_black_hole_and_delivers_afterwards(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        proxy.stall(True)
        client.sendall(b"PING\r\n")
        assert _is_silent(client)

        proxy.stall(False)

        assert client.recv(100) == b"+PONG\r\n"


def test_a_stalled_connection_can_be_cut(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        proxy.stall(True)
        client.sendall(b"PING\r\n")
        eventually(lambda: proxy.connections, "the proxy's connection")

        proxy.cut()

        with pytest.raises(ConnectionResetError):
            client.recv(100)


def test_only_answers_can_be_held(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        proxy.hold_answers(True)
        client.sendall(b"SET held 1\r\n")
        eventually(lambda: redis_server.command("GET", "held") == "1", "the server hearing it")
        assert _is_silent(client)

        proxy.hold_answers(False)

        assert client.recv(100) == b"+OK\r\n"


def test_a_stranded_connection_is_dead_forever_and_new_ones_are_not(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        client.sendall(b"PING\r\n")
        client.recv(100)

        proxy.strand()
        client.sendall(b"PING\r\n")
        assert _is_silent(client)

        with _connect(proxy.port) as another:
            another.sendall(b"PING\r\n")
            assert another.recv(100) == b"+PONG\r\n"


def test_a_torn_connection_is_reset_after_a_number_of_bytes(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        client.sendall(b"PING\r\n")
        client.recv(100)

        proxy.tear(6 + 3)
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"
        client.sendall(b"PING\r\n")

        with pytest.raises(ConnectionResetError):
            client.recv(100)


def test_a_connection_that_was_not_torn_in_time_stays(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        client.sendall(b"PING\r\n")
        client.recv(100)
        proxy.tear(6 + 3)

        proxy.tear(None)

        for _ in range(5):
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PONG\r\n"


def test_noise_is_inserted_into_the_answers_of_the_other_side(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        client.sendall(b"PING\r\n")
        client.recv(100)

        proxy.inject(b"noise", to_client=True)
        assert client.recv(100) == b"noise"
        proxy.inject(b"PING\r\n", to_client=False)
        assert client.recv(100) == b"+PONG\r\n"


def test_latency_is_added_in_each_direction(redis_server: Redis) -> None:
    with TcpProxy(redis_server.port) as proxy, _connect(proxy.port) as client:
        proxy.latency = 0.1
        began = time.monotonic()

        client.sendall(b"PING\r\n")
        client.recv(100)

        assert time.monotonic() - began >= 0.2


def test_a_proxy_carries_a_large_answer_and_the_end_of_the_stream() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = cast("tuple[str, int]", listener.getsockname())[1]
        with TcpProxy(port) as proxy, _connect(proxy.port) as client:
            target, _ = listener.accept()
            with target:
                client.sendall(b"x" * 100_000)
                client.shutdown(socket.SHUT_WR)

                received = b"".join(iter(lambda: target.recv(65536), b""))

    assert received == b"x" * 100_000


# Helpers of the tests above


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def _is_silent(client: socket.socket) -> bool:
    """Whether nothing arrives for a while; later data can still be read."""
    client.settimeout(0.3)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    else:
        return False
    finally:
        client.settimeout(10)


def _vhost(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _publish(broker: RabbitMQ, vhost: str, queue: str, payload: str) -> None:
    """Publish one persistent message; the management plugin waits for its confirm."""
    message = {
        "properties": {"delivery_mode": 2},
        "routing_key": queue,
        "payload": payload,
        "payload_encoding": "string",
    }
    answer = broker.http("POST", f"/api/exchanges/{vhost}/amq.default/publish", message)
    assert answer == {"routed": True}


def _get(broker: RabbitMQ, vhost: str, queue: str) -> list[str]:
    request = {"count": 10, "ackmode": "ack_requeue_false", "encoding": "auto"}
    messages = cast("list[dict[str, str]]", broker.http("POST", f"/api/queues/{vhost}/{queue}/get", request))
    return [message["payload"] for message in messages]


def _start_servers(directory: Path, *arguments: str) -> tuple["subprocess.Popen[str]", list[int]]:
    """Start servers in a separate process; return it and every process that it started for them."""
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTS_SERVERS, *arguments],
        cwd=_REPOSITORY,
        env={**os.environ, "TMPDIR": str(directory), "TASKMQ_TEST_ROOM": str(directory)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pids = cast("list[list[int]]", json.loads(process.stdout.readline()))
    return process, [pid for each in pids for pid in each]


def _expect_nothing_left(pids: list[int], directory: Path) -> None:
    nothing: Callable[[], bool] = lambda: (  # noqa: E731
        not any(map(_is_running, pids)) and not list(directory.glob("taskmq-*"))
    )
    eventually(nothing, "the end of everything", within=timedelta(seconds=10))


def _is_running(pid: int) -> bool:
    """Whether the process is running, and not just waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.rabbitmq
def test_a_vhost_is_cleared_unless_its_shared_objects_differ(rabbitmq_server: RabbitMQ) -> None:
    url = rabbitmq_server.create_vhost()
    vhost = url.rpartition("/")[2]

    async def declare() -> None:
        broker = open_broker(url, BrokerOptions(name="tests"))
        await broker.declare([WorkQueue("orders")])
        await broker.aclose()

    def names() -> set[str]:
        found = cast("list[dict[str, str]]", rabbitmq_server.http("GET", f"/api/queues/{vhost}?columns=name"))
        return {each["name"] for each in found}

    assert not rabbitmq_server.clear_vhost(url), "nothing was declared"
    asyncio.run(declare())
    assert "orders" in names()
    assert rabbitmq_server.clear_vhost(url)
    assert "orders" not in names()
    assert "taskmq.parking" in names()
    rabbitmq_server.http("DELETE", f"/api/queues/{vhost}/taskmq.parking")
    assert not rabbitmq_server.clear_vhost(url)
    parking = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    rabbitmq_server.http("PUT", f"/api/queues/{vhost}/taskmq.parking", parking)
    binding = {"routing_key": "taskmq.parking"}
    rabbitmq_server.http("POST", f"/api/bindings/{vhost}/e/taskmq/q/taskmq.parking", binding)
    assert not rabbitmq_server.clear_vhost(url), "its arguments differ"
    rabbitmq_server.delete_vhost(url)


@pytest.mark.rabbitmq
def test_a_vhost_with_a_delayed_message_a_policy_or_a_limit_is_not_used_again(rabbitmq_server: RabbitMQ) -> None:
    async def delay(url: str, seconds: int) -> None:
        broker = open_broker(url, BrokerOptions(name="tests"))
        await broker.declare([WorkQueue("orders")])
        if seconds:
            await broker.publish(
                message("orders", "late", due=time.time_ns() // 1_000_000 + seconds * 1000), timeout=10
            )
        await broker.aclose()

    policy = {"pattern": ".*", "definition": {"max-length": 5}}
    for seconds, path, body in (
        (3600, "", None),
        (0, "policies/{}/short", policy),
        (0, "vhost-limits/{}/max-queues", {"value": 1}),
    ):
        url = rabbitmq_server.create_vhost()
        asyncio.run(delay(url, seconds))
        if path:
            rabbitmq_server.http("PUT", f"/api/{path.format(url.rpartition('/')[2])}", body)
        assert not rabbitmq_server.clear_vhost(url)
        rabbitmq_server.delete_vhost(url)


@pytest.mark.rabbitmq
def test_the_connections_of_a_vhost_end_before_it_is_cleared(rabbitmq_server: RabbitMQ) -> None:
    url = rabbitmq_server.create_vhost()

    async def declare_and_stay() -> bool:
        broker = open_broker(url, BrokerOptions(name="tests"))
        await broker.declare([WorkQueue("orders")])
        is_clear = await asyncio.to_thread(rabbitmq_server.clear_vhost, url)
        await broker.aclose()
        return is_clear

    assert asyncio.run(declare_and_stay())
    rabbitmq_server.delete_vhost(url)
