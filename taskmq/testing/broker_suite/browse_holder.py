"""A process that holds messages and waits to be killed: `URL QUEUE COUNT`.

It prints "holding" once it has them. It also exits when its standard input closes, so that it never outlives its
test.
"""

import asyncio
import os
import sys

from taskmq.client.plugins import open_broker
from taskmq.contracts.broker import BrokerOptions, Delivery, Subscription


async def _hold(url: str, queue: str, count: int) -> None:
    broker = open_broker(url, BrokerOptions(name="suite holder"))
    in_hand: list[Delivery] = []
    has_all = asyncio.Event()

    def deliver(delivery: Delivery) -> None:
        in_hand.append(delivery)
        if len(in_hand) == count:
            has_all.set()

    await broker.consume([Subscription(queue, count)], deliver)
    await has_all.wait()
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    # Exits without closing the connection, as a killed process does.
    os._exit(1)


if __name__ == "__main__":
    asyncio.run(_hold(sys.argv[1], sys.argv[2], int(sys.argv[3])))
