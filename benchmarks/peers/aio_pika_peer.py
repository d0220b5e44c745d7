"""aio-pika alone: the cost of a client library without a task queue. JSON bodies, one acknowledgement per message."""

import asyncio
import json
import os
import sys

import aio_pika
import uvloop
from script import Producer, answer, in_groups
from tally import ARGUMENTS, count

_KIND = os.environ.get("BENCH_KIND", "classic")
_QUEUE = os.environ.get("BENCH_QUEUE", "bench")
_PREFETCH = 250


async def _open():
    connection = await aio_pika.connect(os.environ["BENCH_URL"])
    channel = await connection.channel()
    queue = await channel.declare_queue(_QUEUE, durable=True, arguments={"x-queue-type": _KIND})
    return connection, channel, queue


class AioPika(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "concurrent": self.concurrent, "bulk": self.concurrent}

    async def prepare(self):
        self.connection, self.channel, _ = await _open()

    async def finish(self):
        await self.connection.close()

    async def send(self, number):
        body = json.dumps([number, *ARGUMENTS]).encode()
        message = aio_pika.Message(body, content_type="application/json", delivery_mode=2)
        await self.channel.default_exchange.publish(message, _QUEUE)

    async def one(self, number):
        for each in range(number):
            await self.send(each)

    async def concurrent(self, number):
        await in_groups(number, self.send, size=100)


async def consume():
    _connection, channel, queue = await _open()
    await channel.set_qos(_PREFETCH)

    async def delivered(message):
        json.loads(message.body)
        count()
        await message.ack()

    await queue.consume(delivered)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.install()
    if sys.argv[1:] == ["consume"]:
        asyncio.run(consume())
    else:
        answer(AioPika())
