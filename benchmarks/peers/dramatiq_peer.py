"""Dramatiq as a contender: its default middleware without the Prometheus server; classic queues are all it has."""

import os
import time

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from script import Producer, answer
from tally import ARGUMENTS, count, record_lateness

_QUEUE = os.environ.get("BENCH_QUEUE", "bench")

broker = RabbitmqBroker(url=os.environ["BENCH_URL"], confirm_delivery=os.environ.get("BENCH_CONFIRM") == "1")
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=_QUEUE, actor_name="bench.noop")
def noop(number, text, data):
    count()


@dramatiq.actor(queue_name=_QUEUE, actor_name="bench.stamp")
def stamp(number, sent_ns):
    record_lateness(number, sent_ns)


@dramatiq.actor(queue_name=_QUEUE, actor_name="bench.pause")
def pause(milliseconds):
    time.sleep(milliseconds / 1000)
    count()


class Dramatiq(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "bulk": self.one}

    def prepare(self):
        broker.declare_queue(_QUEUE, ensure=True)

    def one(self, number):
        for each in range(number):
            noop.send(each, *ARGUMENTS)

    def stamp(self, number, due_ns, delay):
        stamp.send_with_options(args=(number, due_ns), delay=round(delay * 1000) or None)

    def pause(self, milliseconds):
        pause.send(milliseconds)

    def finish(self):
        broker.close()


if __name__ == "__main__":
    answer(Dramatiq())
