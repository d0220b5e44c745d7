"""Dramatiq as a contender: default middleware without the Prometheus server; it supports only classic queues."""

import os
import time

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from script import Producer, answer
from tally import ARGUMENTS, count, record_lateness

_QUEUE = os.environ.get("BENCH_QUEUE", "bench")
_PROMPT = f"{_QUEUE}-prompt" if os.environ.get("BENCH_PROMPT") else _QUEUE

broker = RabbitmqBroker(url=os.environ["BENCH_URL"], confirm_delivery=os.environ.get("BENCH_CONFIRM") == "1")
if os.environ.get("BENCH_REDIS"):
    from dramatiq.middleware import GroupCallbacks
    from dramatiq.rate_limits.backends import RedisBackend

    broker.add_middleware(GroupCallbacks(RedisBackend(url=os.environ["BENCH_REDIS"])))
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=_QUEUE, actor_name="bench.noop")
def noop(number, text, data):
    count()


@dramatiq.actor(queue_name=_PROMPT, actor_name="bench.stamp")
def stamp(number, sent_ns):
    record_lateness(number, sent_ns)


@dramatiq.actor(queue_name=_QUEUE, actor_name="bench.pause")
def pause(milliseconds):
    time.sleep(milliseconds / 1000)
    count()


@dramatiq.actor(queue_name=_QUEUE, actor_name="bench.part")
def part(number):
    count()


@dramatiq.actor(queue_name=_QUEUE, actor_name="bench.gathered")
def gathered(sent_ns):
    record_lateness(0, sent_ns)


class Dramatiq(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "bulk": self.one}

    def prepare(self):
        broker.declare_queue(_QUEUE, ensure=True)
        broker.declare_queue(_PROMPT, ensure=True)

    def one(self, number):
        for each in range(number):
            noop.send(each, *ARGUMENTS)

    def stamp(self, number, due_ns, delay):
        stamp.send_with_options(args=(number, due_ns), delay=round(delay * 1000) or None)

    def pause(self, milliseconds):
        pause.send(milliseconds)

    def fan(self, number, sent_ns):
        """Send a group whose callback gets no values, because results are not stored."""
        parts = dramatiq.group(part.message(each) for each in range(number))
        parts.add_completion_callback(gathered.message(sent_ns))
        parts.run()

    def finish(self):
        broker.close()


if __name__ == "__main__":
    answer(Dramatiq())
