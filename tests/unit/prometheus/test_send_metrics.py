"""The counters of senders."""

import pytest
from prometheus_client import CollectorRegistry

from taskmq import TaskMQ
from taskmq.errors import Unroutable
from taskmq.middleware.chain import Middleware, Sending
from taskmq_prometheus import SendMetrics


class _Refusing(Middleware):
    def send(self, sending: Sending) -> None:
        raise Unroutable(f"no queue for {sending.envelope.task}")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_calls_are_counted_by_task_and_queue_with_the_time_to_the_confirm(registry: CollectorRegistry) -> None:
    app = TaskMQ("memory://", middleware=[SendMetrics(registry)])
    task = app.task(name="shop.sell", queue="shop")(lambda item: None)

    with app:
        for _ in range(3):
            task.send("x")

    labels = {"task": "shop.sell", "queue": "shop", "outcome": "ok"}
    assert registry.get_sample_value("taskmq_sends_total", labels) == 3
    assert registry.get_sample_value("taskmq_publish_confirm_seconds_count") == 3


def test_a_failed_call_is_counted_by_its_error(registry: CollectorRegistry) -> None:
    app = TaskMQ("memory://", middleware=[SendMetrics(registry), _Refusing()])
    task = app.task(name="shop.sell")(lambda item: None)

    with app, pytest.raises(Unroutable):
        task.send("x")

    labels = {"task": "shop.sell", "queue": "default", "outcome": "Unroutable"}
    assert registry.get_sample_value("taskmq_sends_total", labels) == 1
    assert registry.get_sample_value("taskmq_publish_confirm_seconds_count") == 0
