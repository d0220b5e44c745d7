"""pika alone: the cost of a client library without a task queue. JSON bodies, one acknowledgement per message."""

import json
import os
import sys

import pika
from script import Producer, answer
from tally import ARGUMENTS, count

_KIND = os.environ.get("BENCH_KIND", "classic")
_QUEUE = os.environ.get("BENCH_QUEUE", "bench")
_PREFETCH = 250
_UNCONFIRMED = 1000
_PARAMETERS = pika.URLParameters(os.environ["BENCH_URL"])
_PERSISTENT = pika.BasicProperties(content_type="application/json", delivery_mode=2)


def _body(number):
    return json.dumps([number, *ARGUMENTS])


def _declare(channel, **how):
    channel.queue_declare(_QUEUE, durable=True, arguments={"x-queue-type": _KIND}, **how)


class Pika(Producer):
    def __init__(self):
        super().__init__()
        self.modes = {"one": self.one, "bulk": self.bulk}

    def prepare(self):
        self.connection = pika.BlockingConnection(_PARAMETERS)
        self.channel = self.connection.channel()
        _declare(self.channel)
        self.channel.confirm_delivery()

    def finish(self):
        self.connection.close()

    def one(self, number):
        for each in range(number):
            self.channel.basic_publish("", _QUEUE, _body(each), _PERSISTENT, mandatory=True)

    def bulk(self, number):
        """Send on pika's channel with callbacks, because its blocking channel waits for each confirm."""
        _Stream(number).run()


class _Stream:
    def __init__(self, number):
        self.number = number
        self.sent = self.confirmed = 0
        self.connection = pika.SelectConnection(_PARAMETERS, on_open_callback=self.opened)

    def run(self):
        self.connection.ioloop.start()

    def opened(self, connection):
        connection.channel(on_open_callback=self.ready)

    def ready(self, channel):
        self.channel = channel
        channel.confirm_delivery(self.settled, callback=lambda _frame: self.fill())

    def fill(self):
        while self.sent < self.number and self.sent - self.confirmed < _UNCONFIRMED:
            self.channel.basic_publish("", _QUEUE, _body(self.sent), _PERSISTENT, mandatory=True)
            self.sent += 1

    def settled(self, frame):
        method = frame.method
        assert not isinstance(method, pika.spec.Basic.Nack), f"not confirmed: {method}"
        self.confirmed = method.delivery_tag if method.multiple else self.confirmed + 1
        if self.confirmed < self.number:
            self.fill()
        else:
            self.connection.add_on_close_callback(lambda _connection, _why: self.connection.ioloop.stop())
            self.connection.close()


def consume():
    def opened(connection):
        connection.channel(on_open_callback=ready)

    def ready(channel):
        channel.basic_qos(prefetch_count=_PREFETCH)
        _declare(channel, callback=lambda _frame: channel.basic_consume(_QUEUE, delivered))

    def delivered(channel, method, _properties, body):
        json.loads(body)
        count()
        channel.basic_ack(method.delivery_tag)

    pika.SelectConnection(_PARAMETERS, on_open_callback=opened).ioloop.start()


if __name__ == "__main__":
    if sys.argv[1:] == ["consume"]:
        consume()
    else:
        answer(Pika())
