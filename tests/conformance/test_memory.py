import uuid
from collections.abc import Iterator

import pytest

from taskmq.contracts.broker import Broker, BrokerOptions
from taskmq.testing import FlakyBroker
from taskmq.testing.broker_suite import BrokerSuite
from taskmq_local import forget_memory, open_memory_broker
from tests.conformance.night import at_night


# They wait for due times for seconds; other tests of delays wait shorter.
@at_night(
    pytest.mark.nightly("taskmq/testing/broker_suite/delays.py::test_many_messages_due_at_the_same_time_all_arrive"),
    "test_delayed_messages_arrive_in_order_of_due_time",
    "test_a_purge_keeps_delayed_messages",
)
class TestMemory(BrokerSuite):
    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.name = uuid.uuid4().hex
        yield
        forget_memory(self.name)

    def open_broker(self, name: str = "") -> Broker:
        return open_memory_broker(f"memory://{self.name}", BrokerOptions(name=name))


@pytest.mark.matrix
class TestFlakyBrokerWithoutAFault(TestMemory):
    """The wrapper is transparent, and it loses deliveries like a real broker."""

    can_lose = True

    def open_broker(self, name: str = "") -> Broker:
        return FlakyBroker(super().open_broker(name))

    async def lose(self, broker: Broker) -> None:
        assert isinstance(broker, FlakyBroker)
        broker.lose_deliveries()
