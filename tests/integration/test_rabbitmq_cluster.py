"""Three nodes of the RabbitMQ that users install: a smoke test. `tests/faults/test_cluster.py` is the campaign."""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite import BrokerCase, message
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.runner import case
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from tests.servers import RabbitMQ, RabbitMQCluster, eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.matrix, pytest.mark.timeout(300)]

_QUEUE = "orders"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RabbitMQCluster]:
    with RabbitMQCluster() as it:
        yield it


class TestCluster(BrokerCase):
    publish_timeout = 60.0

    @pytest.fixture(autouse=True)
    def _server(self, cluster: RabbitMQCluster) -> None:
        self.cluster = cluster
        url = cluster.nodes[0].create_vhost()
        self.vhost = url.rpartition("/")[2]
        ports = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
        self.url = f"amqp://guest:guest@{ports}/{self.vhost}?heartbeat=10"

    def open_broker(self, name: str = "") -> RabbitMQBroker:
        broker = open_broker(self.url, BrokerOptions(name=name or "test"))
        assert isinstance(broker, RabbitMQBroker)
        return broker

    def leader(self) -> RabbitMQ:
        """Return the node that leads the queue now."""

        def find_leader() -> RabbitMQ | None:
            queue = cast("dict[str, str]", self.cluster.nodes[0].http("GET", f"/api/queues/{self.vhost}/{_QUEUE}"))
            return next((node for node in self.cluster.nodes if node.node_name == queue.get("leader")), None)

        # The management API learns of it a moment later.
        node = eventually(find_leader, "a leader", within=timedelta(seconds=60))
        assert node is not None
        return node

    @case
    async def test_jobs_and_delays_survive_the_leader_node_of_their_queue(self) -> None:
        producer, worker = self.broker(), self.broker()
        await producer.declare([WorkQueue(_QUEUE)])
        due = int(time.time() * 1000) + 3_000
        await asyncio.gather(
            *(producer.publish(message(_QUEUE, f"before {number}"), timeout=60) for number in range(50)),
            producer.publish(message(_QUEUE, "delayed", due=due), timeout=60),
        )
        leader = await asyncio.to_thread(self.leader)

        await asyncio.to_thread(leader.kill)

        await asyncio.gather(
            *(producer.publish(message(_QUEUE, f"after {number}"), timeout=60) for number in range(50))
        )
        inbox, _ = await self.consume(worker, _QUEUE)
        published = {"delayed", *(f"{when} {number}" for when in ("before", "after") for number in range(50))}
        missing = set(published)
        while missing:
            # Messages unconfirmed when the node died may exist twice.
            (came,) = bodies(await inbox.take_and_ack(1))
            assert came in published
            missing.discard(came)
        await asyncio.to_thread(leader.launch)
        await asyncio.to_thread(leader.wait_until_ready)
