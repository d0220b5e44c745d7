"""A fake broker: as much AMQP 0-9-1 as taskmq needs, without queues.

    python -m benchmarks.quick.player NUMBER TASK [PARCEL]

Delivers NUMBER jobs of TASK to each consumer, as many messages at a time as the prefetch allows, and confirms
published messages. With PARCEL, the jobs are stored ones, and each message is a parcel of that many. Prints its port
on standard output. With it, a worker or producer is measured without RabbitMQ's use of the processor and the noise of
its timing.
"""

import asyncio
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable

from pika import frame, spec

_FRAME = struct.Struct(">BHI")
_TAG_AND_BITS = struct.Struct(">QB")
_METHOD = 1
_ACK = b"\x00\x3c\x00\x50"
_PUBLISH = b"\x00\x3c\x00\x28"
_FRAME_MAX = 131_072


def message(number: int, task: str) -> tuple[str, bytes]:
    """Build the id and the body of a job of `task(number, text, data)`, as taskmq sends it."""
    job_id = f"0192c6a1-0000-7000-8000-{number:012x}"
    arguments = f'[{number},"hello",{{"a":1,"b":"x"}}]'
    body = f'{{"v":1,"id":"{job_id}","task":"{task}","args":{arguments},"enqueued":{1_700_000_000_000 + number}}}'
    return job_id, body.encode()


def parcels(number: int, task: str, size: int) -> list[tuple[str, bytes]]:
    """Build the ids and bodies of parcels of stored jobs, as a scheduler publishes them."""
    invitations = [_invitation(each, task) for each in range(number)]
    return [
        (f"1/{first // size}", b'{"jobs":[%s]}' % b",".join(invitations[first : first + size]))
        for first in range(0, number, size)
    ]


def _invitation(number: int, task: str) -> bytes:
    job_id, body = message(number, task)
    store = (
        f'{{"id":"{job_id}","token":{number + 1},"reports":"taskmq.reports.bench.0",'
        f'"proof":"0123456789abcdefghijkl","due":{1_700_000_000_000 + number}}}'
    )
    return b'%s,"attempt":1,"store":%s}' % (body[:-1], store.encode())


def play(number: int, task: str, parcel: int = 0) -> None:
    """Serve until standard input ends."""
    asyncio.run(_play(number, task, parcel))


async def _play(number: int, task: str, parcel: int) -> None:
    loop = asyncio.get_running_loop()
    if parcel:
        queue, messages = "bench.parcels", parcels(number, task, parcel)
    else:
        queue, messages = "bench", [message(each, task) for each in range(number)]
    server = await loop.create_server(lambda: _Connection(queue, messages, task), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


class _Connection(asyncio.Protocol):
    def __init__(self, queue: str, messages: Iterable[tuple[str, bytes]], task: str) -> None:
        self._queue = queue
        self._messages = messages
        self._task = task
        self._received = b""
        self._begun = False
        self._prefetch: dict[int, int] = {}
        self._consumers: dict[int, _Consumer] = {}
        self._published: dict[int, int] = {}
        self._answers: dict[type, Callable[[int, object], object]] = {
            spec.Connection.StartOk: lambda *_: spec.Connection.Tune(2047, _FRAME_MAX, 0),
            spec.Connection.Open: lambda *_: spec.Connection.OpenOk(),
            spec.Connection.Close: lambda *_: spec.Connection.CloseOk(),
            spec.Channel.Open: lambda *_: spec.Channel.OpenOk(),
            spec.Channel.Close: lambda *_: spec.Channel.CloseOk(),
            spec.Confirm.Select: lambda *_: spec.Confirm.SelectOk(),
            spec.Queue.Bind: lambda *_: spec.Queue.BindOk(),
            spec.Exchange.Declare: lambda *_: spec.Exchange.DeclareOk(),
            spec.Exchange.Bind: lambda *_: spec.Exchange.BindOk(),
            spec.Queue.Declare: lambda _, asked: spec.Queue.DeclareOk(asked.queue or "amq.gen-1", 0, 1),  # type: ignore[attr-defined]
            spec.Basic.Qos: self._qos,
            spec.Basic.Consume: self._consume,
            spec.Basic.Cancel: lambda _, asked: spec.Basic.CancelOk(asked.consumer_tag),  # type: ignore[attr-defined]
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._begun:
            if len(self._received) < 8:
                return
            self._begun = True
            self._received = self._received[8:]
            features = {"product": "RabbitMQ", "version": "4.0.0", "capabilities": dict.fromkeys(_CAPABILITIES, True)}
            self._send(0, spec.Connection.Start(0, 9, features, "PLAIN", "en_US"))
        received, at = self._received, 0
        touched: set[int] = set()
        while len(received) - at >= 8:
            kind, channel, size = _FRAME.unpack_from(received, at)
            after = at + 8 + size
            if after > len(received):
                break
            if kind == _METHOD:
                self._hear(channel, received[at:after])
                touched.add(channel)
            at = after
        self._received = received[at:]
        for channel in touched:
            if channel in self._published:
                self._send(channel, spec.Basic.Ack(self._published[channel], multiple=True))
            elif channel in self._consumers:
                self._transport.write(self._consumers[channel].more())

    def _hear(self, channel: int, data: bytes) -> None:
        method = data[7:11]
        if method == _ACK:
            tag, bits = _TAG_AND_BITS.unpack_from(data, 11)
            self._consumers[channel].settle(tag, multiple=bool(bits & 1))
        elif method == _PUBLISH:
            self._published[channel] = self._published.get(channel, 0) + 1
        else:
            asked = frame.decode_frame(data)[1].method
            answer = self._answers.get(type(asked))
            if answer is not None:
                self._send(channel, answer(channel, asked))

    def _qos(self, channel: int, asked: object) -> object:
        self._prefetch[channel] = asked.prefetch_count  # type: ignore[attr-defined]
        return spec.Basic.QosOk()

    def _consume(self, channel: int, asked: object) -> object:
        tag, queue = asked.consumer_tag, asked.queue  # type: ignore[attr-defined]
        # Queues such as that of announcements get no messages.
        messages = self._messages if queue == self._queue else ()
        self._consumers[channel] = _Consumer(channel, tag, messages, self._task, self._prefetch.get(channel, 1))
        return spec.Basic.ConsumeOk(tag)

    def _send(self, channel: int, method: object) -> None:
        self._transport.write(frame.Method(channel, method).marshal())  # type: ignore[no-untyped-call]


_CAPABILITIES = ("publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify")


class _Consumer:
    """Deliveries of one channel, encoded before the first is sent, so that they never limit the consumer."""

    def __init__(
        self, channel: int, tag: str, messages: Iterable[tuple[str, bytes]], task: str, prefetch: int
    ) -> None:
        self._ready = deque(
            _delivery(channel, tag, number, name, body, task) for number, (name, body) in enumerate(messages, 1)
        )
        self._prefetch = prefetch
        self._last = 0
        self._settled = 0
        self._ahead: set[int] = set()

    def settle(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            self._settled = tag
        else:
            self._ahead.add(tag)
        while self._settled + 1 in self._ahead:
            self._settled += 1
            self._ahead.remove(self._settled)

    def more(self) -> bytes:
        room = self._prefetch - (self._last - self._settled - len(self._ahead))
        parts = [self._ready.popleft() for _ in range(min(room, len(self._ready)))]
        self._last += len(parts)
        return b"".join(parts)


def _delivery(channel: int, tag: str, number: int, name: str, body: bytes, task: str) -> bytes:
    properties = spec.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={"x-taskmq-sequence": number},
        delivery_mode=2,
        correlation_id=name,
        message_id=name,
        timestamp=1_700_000_000,
        type=task,
        app_id="taskmq",
    )
    parts = (
        frame.Method(channel, spec.Basic.Deliver(tag, number, False, "", "bench")),
        frame.Header(channel, len(body), properties),
        frame.Body(channel, body),
    )
    return b"".join(part.marshal() for part in parts)


if __name__ == "__main__":
    play(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
