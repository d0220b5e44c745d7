from pathlib import Path

import pytest

from taskmq.contracts.broker import Broker, BrokerOptions
from taskmq.testing.broker_suite import BrokerSuite
from taskmq_local import open_local_broker


class TestLocal(BrokerSuite):
    """Brokers on one file that act like several processes; `process_url` adds real processes."""

    @pytest.fixture(autouse=True)
    def _server(self, tmp_path: Path) -> None:
        self.process_url = self.url = f"local://{tmp_path}/queue"

    def open_broker(self, name: str = "") -> Broker:
        return open_local_broker(self.url, BrokerOptions(name=name))
