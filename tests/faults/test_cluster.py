"""Three nodes of RabbitMQ 4.3 under load: a leader killed, a node paused, the majority gone, a rolling restart.

`$TASKMQ_TEST_CLUSTER_SENDS` is the minimum of confirmed sends per part (default 600), and
`$TASKMQ_TEST_CLUSTER_RATE` their number per second; from 10,000 on there are more faults, and longer pauses.
"""

import os
import statistics
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from tests.faults.checker import Verdict
from tests.faults.field import Field
from tests.faults.ledger import now_ms
from tests.faults.probe import Probe, wait_until_accepting
from tests.faults.producer import Order
from tests.servers import RabbitMQ, RabbitMQCluster, ServerFailed, eventually

pytestmark = [pytest.mark.matrix, pytest.mark.slow, pytest.mark.timeout(3600)]

SENDS = int(os.environ.get("TASKMQ_TEST_CLUSTER_SENDS", "600"))
RATE = float(os.environ.get("TASKMQ_TEST_CLUSTER_RATE", "60"))
IS_LONG = SENDS >= 10_000
KILLS, PAUSES, MINORITIES, ROLLS = (12, 4, 5, 3) if IS_LONG else (2, 1, 1, 1)
PAUSE = 30.0 if IS_LONG else 8.0
DEADLINE = 10.0
QUEUES = ("left", "right")
BACK_WITHIN = 5.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RabbitMQCluster]:
    with RabbitMQCluster() as it:
        yield it


@pytest.fixture
def field(cluster: RabbitMQCluster, tmp_path: Path) -> Iterator[Field]:
    """Workers and producers that know all three nodes, in a fresh vhost."""
    url = cluster.nodes[0].create_vhost()
    vhost = url.rpartition("/")[2]
    ports = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    direct = [f"amqp://guest:guest@127.0.0.1:{node.port}/{vhost}" for node in cluster.nodes]
    with Field(
        tmp_path,
        f"amqp://guest:guest@{ports}/{vhost}?heartbeat=10",
        QUEUES,
        direct=direct,
        deadline=DEADLINE,
    ) as it:
        yield it
    cluster.nodes[0].delete_vhost(url)


class Campaign:
    """A part of the campaign: load from the start to `judge`, and its faults."""

    def __init__(self, cluster: RabbitMQCluster, field: Field, *, delayed: float = 0.0) -> None:
        self.cluster = cluster
        self.field = field
        self.backs: list[float] = []
        self.behinds: list[float] = []
        self.began = time.monotonic()
        field.start_workers()
        self._probe = Probe(field)
        self._probe.back_after(now_ms())
        for number in range(2):
            field.start_producer(
                Order(name=f"p{number}", queues=QUEUES, lanes=8, rate=RATE / 2, delayed=delayed, longest=8.0)
            )
        field.until(lambda: field.count_confirmed() >= 10, "ten confirmed sends", 60)

    def calm(self, share: float) -> None:
        """Wait until this share of the sends is confirmed."""
        wanted = int(SENDS * share)
        self.field.until(
            lambda: self.field.count_confirmed() >= wanted, f"{wanted:,} confirmed sends", 120 + 6 * wanted / RATE
        )

    def consumers_back(self, since: int) -> None:
        """Wait until each consumer has run something again; record it against `since`."""
        self.backs.append(max(self._probe.back_after(since, within=120).values()))
        self.behinds.append(max(self._probe.behind.values()))

    def wait_for_sends(self, count: int) -> None:
        """Wait until that many more calls have ended, successfully or not."""
        tried = len(self.field.sends())
        self.field.until(lambda: len(self.field.sends()) >= tried + count, f"{count} more sends", 60)

    def restart(self, node: RabbitMQ) -> None:
        """Start a stopped node; return when the cluster is complete again."""
        node.launch()
        since = wait_until_accepting(node.port)
        self.consumers_back(since)
        node.wait_until_ready()
        self.wait_until_complete()

    def wait_until_complete(self) -> None:
        """Wait until every node is a member again and every queue has all its replicas online."""

        def whole() -> bool:
            try:
                if not self.cluster.is_complete():
                    return False
                vhost = self.field.direct[0].virtual_host
                queues = cast("list[dict[str, object]]", self.cluster.nodes[0].http("GET", f"/api/queues/{vhost}"))
            except (ServerFailed, OSError):
                return False
            return all(
                len(cast("list[str]", queue.get("online", ()))) == len(self.cluster.nodes)
                for queue in queues
                if queue.get("type") == "quorum"
            )

        eventually(whole, "every node and replica being back", within=timedelta(seconds=90))

    def wait_until_settled(self) -> None:
        """Wait until no message is unacked; report the holder of the rest."""

        def count_held() -> dict[str, int]:
            found: dict[str, int] = {}
            for path in ("queues", "channels"):
                for each in cast("list[dict[str, object]]", self.cluster.nodes[0].http("GET", f"/api/{path}")):
                    if count := cast("int", each.get("messages_unacknowledged", 0)):
                        found[f"{path[:-1]} {each['name']}"] = count
            return found

        try:
            # Counted every five seconds.
            eventually(lambda: not count_held(), "all being settled", within=timedelta(seconds=30))
        except TimeoutError:
            print(f"not settled: {count_held()}", flush=True)

    def leader(self, queue: str) -> RabbitMQ:
        """Return the node that leads the queue now."""

        def find_leader() -> RabbitMQ | None:
            for node in self.cluster.nodes:
                try:
                    vhost = self.field.direct[0].virtual_host
                    answer = cast("dict[str, object]", node.http("GET", f"/api/queues/{vhost}/{queue}"))
                except (ServerFailed, OSError):
                    continue
                for each in self.cluster.nodes:
                    if each.node_name == answer.get("leader"):
                        return each
            return None

        node = eventually(find_leader, f"a leader of {queue}", within=timedelta(seconds=60))
        assert node is not None
        return node

    def judge(self, what: str, *, back_within: float = BACK_WITHIN) -> Verdict:
        """End the load, drain, and return the verdict."""
        field = self.field
        field.stop_producers()
        elapsed = time.monotonic() - self.began
        field.drain(patience=90)
        self.wait_until_settled()
        field.stop_workers()
        verdict = field.verdict()
        backs = (
            f"consumers back after p50 {statistics.median(self.backs):.2f} s, max {max(self.backs):.2f} s, behind "
            f"their queues max {max(self.behinds):.2f} s"
        )
        print(f"\n{what}, {len(field.faults)} faults in {elapsed:.0f} s: {backs}; {verdict}")
        assert verdict.wrong == {}
        assert verdict.dead == 0
        assert verdict.outcomes["ok"] >= SENDS
        assert field.leftovers() == []
        assert max(self.behinds) <= BACK_WITHIN
        assert max(self.backs) <= back_within
        return verdict


@pytest.mark.parametrize("delayed", [0.0, 0.5], ids=["at once", "delayed"])
def test_nothing_is_lost_when_the_leader_is_killed_again_and_again(
    cluster: RabbitMQCluster, field: Field, delayed: float
) -> None:
    campaign = Campaign(cluster, field, delayed=delayed)
    for number in range(KILLS):
        leader = campaign.leader(QUEUES[number % 2])
        with field.fault(f"leader {leader.node_name} killed"):
            leader.kill()
            campaign.consumers_back(now_ms())
            campaign.restart(leader)
        campaign.calm((number + 1) / KILLS)
    campaign.judge(f"leader killed {KILLS} times, {delayed:.0%} of the tasks delayed")


def test_nothing_is_lost_when_a_node_is_paused(cluster: RabbitMQCluster, field: Field) -> None:
    campaign = Campaign(cluster, field)
    for number in range(PAUSES):
        leader = campaign.leader(QUEUES[number % 2])
        with field.fault(f"leader {leader.node_name} paused"):
            leader.pause()
            time.sleep(PAUSE)
            leader.resume()
            campaign.consumers_back(now_ms())
        campaign.wait_until_complete()
        campaign.calm((number + 1) / PAUSES)
    campaign.judge(f"leader paused for {PAUSE:g} s {PAUSES} times")


def test_nothing_is_lost_when_two_of_three_nodes_go_down_and_return(cluster: RabbitMQCluster, field: Field) -> None:
    campaign = Campaign(cluster, field)
    for number in range(MINORITIES):
        down = [node for place, node in enumerate(cluster.nodes) if place != number % 3]
        with field.fault(f"{' and '.join(node.node_name for node in down)} killed"):
            before = field.count_confirmed()
            for node in down:
                node.kill()
            # Long enough for calls to start and end without a majority.
            campaign.wait_for_sends(16)
            during = field.count_confirmed() - before
            for node in down:
                node.launch()
            since = max(wait_until_accepting(node.port) for node in down)
            campaign.consumers_back(since)
            for node in down:
                node.wait_until_ready()
        campaign.wait_until_complete()
        print(f"round {number + 1}: {during} confirmed around the loss of the majority", flush=True)
        campaign.calm((number + 1) / MINORITIES)
    # Sometimes RabbitMQ confirms nothing to one of the six queues for five seconds or more after both have returned.
    campaign.judge(f"two of three nodes down {MINORITIES} times", back_within=BACK_WITHIN + 5)


def test_nothing_is_lost_in_a_rolling_restart(cluster: RabbitMQCluster, field: Field) -> None:
    campaign = Campaign(cluster, field)
    for number in range(ROLLS):
        for node in cluster.nodes:
            with field.fault(f"{node.node_name} restarted"):
                node.stop()
                campaign.restart(node)
        campaign.calm((number + 1) / ROLLS)
    campaign.judge(f"{ROLLS} rolling restarts of three nodes")
