"""Every `send` ends in time, as sent or as a typed error, whatever happens to the network and the broker.

`$TASKMQ_TEST_FAULT_SENDS` is the number of calls (default 500), `$TASKMQ_TEST_FAULT_SEED` the seed of the faults.
"""

import os
import time
from pathlib import Path
from typing import Literal

import pytest

from tests.faults.field import Field
from tests.faults.producer import Order
from tests.faults.storm import Storm, broker_faults, network_faults
from tests.servers import StartRabbitMQ, TcpProxy

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.campaign]

SENDS = int(os.environ.get("TASKMQ_TEST_FAULT_SENDS", "500"))
SEED = int(os.environ.get("TASKMQ_TEST_FAULT_SEED", "20261121"))
# Slow enough to be hit by faults.
SECONDS = 8 + SENDS / 400
DEADLINE = 3.0
QUEUES = ("steady", "other")
DOOMED = "doomed"


@pytest.mark.timeout(240 + SENDS / 20)
def test_every_send_ends_in_time_and_no_confirmed_one_is_lost(own_rabbitmq: StartRabbitMQ, tmp_path: Path) -> None:
    with own_rabbitmq() as node, TcpProxy(node.port) as proxy:
        url = f"amqp://guest:guest@127.0.0.1:{proxy.port}/?heartbeat=5"
        with Field(
            tmp_path,
            url,
            (*QUEUES, DOOMED),
            worker_url=f"{node.url}?heartbeat=5",
            direct=(node.url,),
            deadline=DEADLINE,
        ) as field:
            field.start_workers()
            began = time.monotonic()
            producers = [
                field.start_producer(order)
                for order in (
                    _order("threads", SENDS * 4 // 10, lanes=16),
                    _order("asend", SENDS * 3 // 10, lanes=16),
                    _order("many", SENDS * 3 // 10, lanes=2),
                )
            ]
            # A confirmed message in a deleted queue is gone, which is not the sender's fault.
            field.start_producer(Order(name=DOOMED, queues=(DOOMED,), mode="threads", lanes=2, rate=20))
            field.until(lambda: field.count_confirmed() >= SENDS // 20, "first confirmed sends", 60)

            faults = {**network_faults(proxy), **broker_faults(node, full="steady", doomed=DOOMED)}
            storm = Storm(faults, SEED, into=field.faults)
            storm.blow(lambda: not all(producer.has_ended for producer in producers))

            field.stop_producers()
            elapsed = time.monotonic() - began
            field.drain()
            field.stop_workers()
            verdict, doomed = field.verdict(without=(DOOMED,)), field.verdict(without=("threads", "asend", "many"))
            stall = field.longest_stall()
            print(
                f"\n{node.version}, deadline {DEADLINE:g} s, {elapsed:.0f} s, senders stalled {stall:.2f} s at most, "
                f"{storm}: {verdict}"
            )
            print(f"of the queue that was deleted again and again: {doomed}")

            assert verdict.wrong == {}
            assert verdict.sends >= SENDS
            assert verdict.dead == 0
            assert doomed.untyped == doomed.late == doomed.phantom == doomed.ghost == ()


def _order(mode: Literal["threads", "asend", "many"], calls: int, *, lanes: int) -> Order:
    return Order(name=mode, mode=mode, queues=QUEUES, lanes=lanes, tried=calls, rate=calls / SECONDS, batch=50)
