"""A producer's error without a broker."""

import pytest

from taskmq import BrokerUnavailable, TaskMQ
from tests.servers.ports import PortLease


def test_a_send_without_a_broker_reports_the_failure_and_not_the_password() -> None:
    with PortLease(1) as lease:
        address = f"127.0.0.1:{lease.ports[0]}"
        app = TaskMQ(f"amqp://guest:hunter2@{address}/", send_timeout=2)

        @app.task(name="t")
        def t() -> None: ...

        with app, pytest.raises(BrokerUnavailable, match=f"{address}.*refused") as caught:
            t.send()
        assert "hunter2" not in str(caught.value)
