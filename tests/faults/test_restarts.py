"""A node that is killed, stopped and disconnected, again and again under load.

`$TASKMQ_TEST_RESTARTS` is the number of restarts (default 2), `$TASKMQ_TEST_CUTS` the number of times a proxy cuts
all connections (default 3); `$TASKMQ_TEST_RESTARTS_SECONDS` ends the first campaign early, with partial results.
"""

import os
import statistics
import time
from pathlib import Path

import pytest

from tests.faults.field import Field
from tests.faults.gauge import Gauge
from tests.faults.ledger import now_ms
from tests.faults.probe import Probe, wait_until_accepting
from tests.faults.producer import Order
from tests.servers import RabbitMQ, StartRabbitMQ, TcpProxy

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]

RESTARTS = int(os.environ.get("TASKMQ_TEST_RESTARTS", "2"))
CUTS = int(os.environ.get("TASKMQ_TEST_CUTS", "3"))
SECONDS = float(os.environ.get("TASKMQ_TEST_RESTARTS_SECONDS", "1e9"))
QUEUES = ("left", "right")
RATE = 80.0
BACK_WITHIN = 5.0
# Number of compared samples at each end, and their minimum for a conclusion.
ENDS = 20
MEMORY_KIB = 16 * 1024


@pytest.mark.timeout(180 + 60 * RESTARTS)
def test_every_consumer_returns_after_every_restart(own_rabbitmq: StartRabbitMQ, tmp_path: Path) -> None:
    with own_rabbitmq() as node, Field(tmp_path, f"{node.url}?heartbeat=10", QUEUES) as field:
        began = time.monotonic()
        backs, gauge = _campaign(field, node, began)
        field.stop_producers()
        field.drain()
        consumers = field.consumers()
        field.stop_workers()
        verdict = field.verdict()
        _report(f"{len(backs)} restarts of {node.version} in {time.monotonic() - began:.0f} s", backs, gauge, verdict)

        assert verdict.wrong == {}
        assert verdict.dead == 0
        assert consumers == [1] * len(field.physical)
        assert field.waiting() == 0
        assert max(backs) <= BACK_WITHIN
        _assert_flat(gauge)


def _campaign(field: Field, node: RabbitMQ, began: float) -> tuple[list[float], Gauge]:
    field.start_workers()
    producer = field.start_producer(Order(name="p", queues=QUEUES, lanes=4, rate=RATE))
    probe, backs = Probe(field), list[float]()
    probe.back_after(now_ms())
    field.until(lambda: field.count_confirmed() >= 10, "ten confirmed sends", 60)
    gauge = Gauge({**{worker.name: worker.inner_pid for worker in field.workers}, "producer": producer.pid})
    for number in range(RESTARTS):
        if time.monotonic() - began > SECONDS:
            break
        kind = ("kill", "stop", "close connections", "kill", "kill")[number % 5]
        with field.fault(kind):
            if kind == "close connections":
                node.ctl("close_all_connections", "campaign")
                since = now_ms()
            else:
                node.kill() if kind == "kill" else node.stop()
                node.launch()
                since = wait_until_accepting(node.port)
            backs.append(max(probe.back_after(since).values()))
        if kind != "close connections":
            node.wait_until_ready()
        gauge.read()
        print(f"{number + 1} {kind} back {backs[-1]:.2f} s", flush=True)
    return backs, gauge


@pytest.mark.timeout(120 + 10 * CUTS)
def test_every_consumer_returns_after_every_cut(rabbitmq_server: RabbitMQ, amqp_url: str, tmp_path: Path) -> None:
    with TcpProxy(rabbitmq_server.port) as proxy:
        url = amqp_url.replace(f":{rabbitmq_server.port}/", f":{proxy.port}/")
        with Field(tmp_path, f"{url}?heartbeat=10", QUEUES, direct=(amqp_url,)) as field:
            began = time.monotonic()
            field.start_workers()
            producer = field.start_producer(Order(name="p", queues=QUEUES, lanes=4, rate=RATE))
            probe, backs = Probe(field), list[float]()
            probe.back_after(now_ms())
            gauge = Gauge({**{worker.name: worker.inner_pid for worker in field.workers}, "producer": producer.pid})
            for _ in range(CUTS):
                with field.fault("cut"):
                    since = now_ms()
                    proxy.cut()
                    backs.append(max(probe.back_after(since).values()))
                gauge.read()
            field.stop_producers()
            field.drain()
            consumers = field.consumers()
            field.stop_workers()
            verdict = field.verdict()
            what = f"{CUTS} cuts on {rabbitmq_server.version} in {time.monotonic() - began:.0f} s"
            _report(what, backs, gauge, verdict)

            assert verdict.wrong == {}
            assert verdict.dead == 0
            assert consumers == [1] * len(field.physical)
            assert max(backs) <= BACK_WITHIN
            _assert_flat(gauge)


def _report(what: str, backs: list[float], gauge: Gauge, verdict: object) -> None:
    p99 = statistics.quantiles(backs, n=100)[98] if len(backs) > 1 else backs[0]
    ends = min(ENDS, len(backs) // 2 or 1)
    held = ", ".join(
        f"{name} {grown.memory:+,} KiB {grown.descriptors:+} descriptors {grown.threads:+} threads"
        for name, grown in gauge.growth(ends=ends).items()
    )
    print(
        f"\n{what}: every consumer back after p50 {statistics.median(backs):.2f} s, p99 {p99:.2f} s, "
        f"max {max(backs):.2f} s; grown, last {ends} against first {ends}: {held}; {verdict}"
    )


def _assert_flat(gauge: Gauge) -> None:
    if any(len(samples) < 2 * ENDS for samples in gauge.samples.values()):
        return
    for name, grown in gauge.growth(ends=ENDS).items():
        assert grown.memory <= MEMORY_KIB, f"{name}: {grown}"
        assert grown.descriptors <= 2, f"{name}: {grown}"
        assert grown.threads <= 2, f"{name}: {grown}"
