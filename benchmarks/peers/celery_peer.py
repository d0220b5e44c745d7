"""Celery as a contender: acknowledgement after execution, JSON, no results except for chords."""

import os
import time

from celery import Celery
from kombu import Queue
from script import Producer, answer
from tally import ARGUMENTS, count, record_lateness

_KIND = os.environ.get("BENCH_KIND", "classic")
_QUEUE = os.environ.get("BENCH_QUEUE", "bench")
_PROMPT = f"{_QUEUE}-prompt" if os.environ.get("BENCH_PROMPT") else _QUEUE

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(
    task_ignore_result=True,
    task_default_queue=_QUEUE,
    task_queues=[
        Queue(name, routing_key=name, queue_arguments={"x-queue-type": _KIND})
        for name in dict.fromkeys((_QUEUE, _PROMPT))
    ],
    task_routes={"bench.stamp": {"queue": _PROMPT}},
    result_backend=os.environ.get("BENCH_REDIS"),
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": os.environ.get("BENCH_CONFIRM") == "1"},
    worker_hijack_root_logger=False,
)
if not os.environ.get("BENCH_DEFAULTS"):
    multiplier = int(os.environ.get("BENCH_PREFETCH_MULTIPLIER", "250"))
    app.conf.update(task_acks_late=True, worker_prefetch_multiplier=multiplier, worker_send_task_events=False)


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


@app.task(name="bench.part", ignore_result=False)
def part(number):
    count()
    return number


@app.task(name="bench.gathered")
def gathered(values, sent_ns):
    assert len(values) > 0
    record_lateness(0, sent_ns)


class CeleryProducer(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "bulk": self.one}

    def prepare(self):
        with app.connection_for_write() as connection:
            for queue in app.amqp.queues.values():
                queue(connection.default_channel).declare()

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

    def fan(self, number, sent_ns):
        from celery import chord

        chord((part.s(each) for each in range(number)), gathered.s(sent_ns))()


if __name__ == "__main__":
    answer(CeleryProducer())
