"""Celery as a contender: acknowledgement after execution, JSON, no results."""

import os
import time

from celery import Celery
from kombu import Queue
from script import Producer, answer
from tally import ARGUMENTS, count, record_lateness

_KIND = os.environ.get("BENCH_KIND", "classic")
_QUEUE = os.environ.get("BENCH_QUEUE", "bench")

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    task_default_queue=_QUEUE,
    task_queues=[Queue(_QUEUE, routing_key=_QUEUE, queue_arguments={"x-queue-type": _KIND})],
    worker_prefetch_multiplier=250,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": os.environ.get("BENCH_CONFIRM") == "1"},
    worker_hijack_root_logger=False,
)


@app.task(name="bench.noop")
def noop(number, text, data):
    count()


@app.task(name="bench.stamp")
def stamp(number, sent_ns):
    record_lateness(number, sent_ns)


@app.task(name="bench.pause")
def pause(milliseconds):
    time.sleep(milliseconds / 1000)
    count()


class CeleryProducer(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "bulk": self.one}

    def prepare(self):
        with app.connection_for_write() as connection:
            app.amqp.queues[_QUEUE](connection.default_channel).declare()

    def one(self, number):
        for each in range(number):
            noop.delay(each, *ARGUMENTS)

    def stamp(self, number, due_ns, delay):
        if delay:
            stamp.apply_async((number, due_ns), countdown=delay)
        else:
            stamp.delay(number, due_ns)

    def pause(self, milliseconds):
        pause.delay(milliseconds)


if __name__ == "__main__":
    answer(CeleryProducer())
