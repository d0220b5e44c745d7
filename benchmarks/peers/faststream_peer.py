"""FastStream as a contender: one handler per queue, as its model requires; the arguments are one JSON object."""

import os

from faststream import AckPolicy, FastStream
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue
from script import Producer, answer, in_groups
from tally import ARGUMENTS, count

_KIND = QueueType.QUORUM if os.environ.get("BENCH_KIND") == "quorum" else QueueType.CLASSIC
_QUEUE = RabbitQueue(os.environ.get("BENCH_QUEUE", "bench"), queue_type=_KIND, durable=True)

broker = RabbitBroker(
    os.environ["BENCH_URL"],
    default_channel=Channel(prefetch_count=250),
    logger=None,
)
app = FastStream(broker)


@broker.subscriber(_QUEUE, ack_policy=AckPolicy.NACK_ON_ERROR)
async def noop(number: int, text: str, data: dict) -> None:
    count()


class Faststream(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "concurrent": self.concurrent, "bulk": self.concurrent}

    async def prepare(self):
        await broker.connect()
        await broker.declare_queue(_QUEUE)

    async def finish(self):
        await broker.stop()

    async def send(self, number):
        text, data = ARGUMENTS
        await broker.publish({"number": number, "text": text, "data": data}, queue=_QUEUE, persist=True)

    async def one(self, number):
        for each in range(number):
            await self.send(each)

    async def concurrent(self, number):
        await in_groups(number, self.send, size=100)


if __name__ == "__main__":
    answer(Faststream())
