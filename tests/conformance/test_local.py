from pathlib import Path

import pytest

from taskmq.contracts.broker import Broker, BrokerOptions
from taskmq.testing.broker_suite import BrokerSuite
from taskmq_local import open_local_broker
from tests.conformance.night import at_night


# They wait for due times for seconds; other tests of delays wait shorter.
@at_night(
    pytest.mark.nightly("taskmq/testing/broker_suite/delays.py::test_many_messages_due_at_the_same_time_all_arrive"),
    "test_delayed_messages_arrive_in_order_of_due_time",
    "test_a_purge_keeps_delayed_messages",
)
class TestLocal(BrokerSuite):
    """Brokers on one file that act like several processes; `process_url` adds real processes."""

    @pytest.fixture(autouse=True)
    def _server(self, tmp_path: Path) -> None:
        self.process_url = self.url = f"local://{tmp_path}/queue"

    def open_broker(self, name: str = "") -> Broker:
        return open_local_broker(self.url, BrokerOptions(name=name))
