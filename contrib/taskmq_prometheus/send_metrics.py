"""The senders' metrics: a middleware that counts calls."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from taskmq.middleware.chain import Middleware, Sending

_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class SendMetrics(Middleware):
    """Counts calls and measures the time to the broker's confirm.

    `taskmq_sends_total{task,queue,outcome}`, where the outcome is `ok` or the error's name, and
    `taskmq_publish_confirm_seconds`. Each call costs a few microseconds. Create one per registry: it owns the names.

    Args:
        registry: where the metrics are registered; default: prometheus-client's own.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._sends = Counter(
            "taskmq_sends",
            "Calls sent, by outcome.",
            ["task", "queue", "outcome"],
            registry=registry,
        )
        self._confirm = Histogram(
            "taskmq_publish_confirm_seconds",
            "Time from a call to the broker's confirm.",
            buckets=_BOUNDS,
            registry=registry,
        )

    @contextmanager
    def send(self, sending: Sending) -> Generator[None]:
        began, outcome = time.perf_counter(), "ok"
        try:
            yield
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            if outcome == "ok":
                self._confirm.observe(time.perf_counter() - began)
            self._sends.labels(sending.envelope.task, sending.queue, outcome).inc()
