"""Redis behind TLS, a Unix socket, a user with few permissions, and as a cluster."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import State
from taskmq.errors import StateUnavailable
from taskmq.testing.state_suite.case import StateCase
from taskmq.testing.state_suite.crash_counts import CrashCountCases
from taskmq.testing.state_suite.delays import Delays
from taskmq_redis import open_state
from tests.integration.redis_case import DUE, PATIENCE, calls_of, open_redis, record, run, waiting
from tests.servers import Redis
from tests.servers.certificates import Authority
from tests.servers.ports import PortLease
from tests.servers.redis import ask
from tests.servers.redis_cluster import SHARE, RedisCluster
from tests.servers.waiting import until


def test_a_unix_socket_works(tmp_path: Path) -> None:
    path = tmp_path / "re dis.sock"

    async def main() -> None:
        async with open_redis(f"unix://{str(path).replace(' ', '%20')}?db=3") as state:
            waits = asyncio.create_task(state.results.wait("job", timeout=PATIENCE))
            await state.results.put(record(), ttl=60)
            assert await waits == record()

    with Redis(options=("--unixsocket", str(path))) as server:
        run(main)
        assert ask(f"redis://127.0.0.1:{server.port}/3", "EXISTS", "taskmq:{job}:result") == 1


def test_tls_trusts_only_the_given_authority(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    here, elsewhere = authority.issue("127.0.0.1", "localhost"), authority.issue("elsewhere.example")
    client = authority.issue("worker", common_name="worker")

    async def talks(url: str) -> None:
        async with open_redis(url) as state:
            waits = asyncio.create_task(state.results.wait("job", timeout=PATIENCE))
            await state.results.put(record(), ttl=60)
            assert await waits == record()

    async def expect_refusal(url: str) -> None:
        before = _descriptors()
        async with open_redis(url) as state:
            with pytest.raises(StateUnavailable, match=r"(?i)certificate|tls|ssl|connection"):
                await state.results.get("job")
        # Closing takes time if the other side has to reply; nothing is left behind.
        await until(lambda: _descriptors() <= before)

    with ExitStack() as stack:
        lease = stack.enter_context(PortLease(2))
        for port, certificate in zip(lease.ports, (here, elsewhere), strict=True):
            options = ("--tls-port", port, "--tls-auth-clients", "yes", "--tls-ca-cert-file", authority.file)
            files = ("--tls-cert-file", certificate.chain, "--tls-key-file", certificate.key)
            stack.enter_context(Redis(options=[str(word) for word in (*options, *files)]))
        url = f"rediss://127.0.0.1:{lease.ports[0]}/0?cafile={authority.file}"
        identity = f"&certfile={client.chain}&keyfile={client.key}"

        run(lambda: talks(url + identity))
        # No client certificate; a server of an unknown authority; a server with another name.
        run(lambda: expect_refusal(url))
        run(lambda: expect_refusal((url + identity).replace(str(authority.file), str(stranger.file))))
        run(lambda: expect_refusal((url + identity).replace(str(lease.ports[0]), str(lease.ports[1]))))


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - their number is what counts


def test_a_user_with_the_documented_permissions_can_do_everything() -> None:
    page = (Path(__file__).parents[2] / "docs" / "redis.md").read_text()
    rights = page.partition("ACL SETUSER taskmq ")[2].partition("\n")[0].replace(">SECRET", ">secret")

    async def main() -> None:
        async with open_redis(server.url.replace("redis://", "redis://worker:secret@")) as state:
            for name, call in calls_of(state).items():
                try:
                    await call()
                except StateUnavailable as error:
                    pytest.fail(f"{name}: {error}")
            waits = asyncio.create_task(state.results.wait("other", timeout=PATIENCE))
            await state.results.put(record("other"), ttl=60)
            assert await waits == record("other")
            assert await state.diagnose()
        async with open_redis(server.url.replace("redis://", "redis://worker:secret@") + "?prefix=other") as state:
            with pytest.raises(StateUnavailable, match=r"(?i)permission"):
                await state.results.get("job")

    with Redis() as server:
        server.command("ACL", "SETUSER", "worker", *rights.split())
        run(main)


def test_a_real_server_can_be_diagnosed() -> None:
    async def main() -> None:
        async with open_redis(server.url) as state:
            found = {about: (level, remedy) for level, about, _, remedy in await state.diagnose()}
            assert found == dict.fromkeys(("redis", "role", "eviction", "durability"), ("ok", ""))

    with Redis() as server:
        run(main)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


class TestCluster(CrashCountCases, Delays, StateCase):
    short = 1.5

    @pytest.fixture(autouse=True)
    def _server(self, cluster: RedisCluster) -> None:
        cluster.flush()
        self.url = cluster.url

    def open_state(self, name: str = "") -> State:
        return open_state(self.url, BrokerOptions(name=name))


def test_keys_are_spread_over_the_nodes_and_those_of_delays_are_together(cluster: RedisCluster) -> None:
    cluster.flush()

    async def main() -> None:
        async with open_redis(cluster.url) as state:
            await asyncio.gather(*(state.results.put(record(f"job {number}"), ttl=60) for number in range(300)))
            await state.delays.put(waiting("a"))
            await state.delays.put(waiting("b"))
            await state.delays.take(now=DUE, limit=1, lease=60)

    run(main)
    sizes = [node.command("DBSIZE") for node in cluster.nodes]
    # A result and the trace that it leaves after its expiry.
    assert sum(map(int, map(str, sizes))) == 2 * 300 + 3
    assert all(int(str(size)) > 50 for size in sizes)


def test_a_slot_that_moves_to_another_node_is_followed(cluster: RedisCluster) -> None:
    cluster.flush()
    ids = {node.port: str(node.command("CLUSTER", "MYID")) for node in cluster.nodes}
    slot = str(cluster.nodes[0].command("CLUSTER", "KEYSLOT", "taskmq:{delay}:due"))
    owner = cluster.nodes[int(slot) // SHARE]
    target = next(node for node in cluster.nodes if node is not owner)

    async def main() -> None:
        async with open_redis(cluster.url) as state:
            await state.delays.put(waiting("before"))
            # In transit: the new owner answers ASK for a moved key, TRYAGAIN for a partly moved one.
            target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner.port])
            owner.command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
            keys = owner.command("CLUSTER", "GETKEYSINSLOT", slot, "10")
            assert isinstance(keys, list)
            owner.command("MIGRATE", "127.0.0.1", str(target.port), "", "0", "5000", "KEYS", *map(str, keys))
            asked = [await state.delays.find("before") for _ in range(3)]
            for node in (target, owner):
                node.command("CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])

            await state.delays.put(waiting("after"))

            assert asked == [waiting("before")] * 3
            assert await state.delays.count() == 2
            assert int(str(target.command("DBSIZE"))) == 2

    run(main)
