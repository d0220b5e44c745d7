"""A proxy that drops or changes single AMQP frames from the broker."""

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import Callable
from typing import Self

Method = tuple[int, int]

BASIC_ACK: Method = (60, 80)
BASIC_CANCEL: Method = (60, 30)
BASIC_CONSUME_OK: Method = (60, 21)
BASIC_DELIVER: Method = (60, 60)
_CHANNEL_CLOSE: Method = (20, 40)
_CHANNEL_CLOSE_OK: Method = (20, 41)
_METHOD, _HEADER, _BODY = 1, 2, 3
_END = b"\xce"


class FrameProxy:
    """Forwards to a broker from the loop that it was started on; an async context manager.

    Attributes:
        lost: methods of the broker that are dropped with their contents.
        swallowed: number of dropped methods.
        held: methods of the broker that are held until their release.
        seen: the broker's methods, including those.
        last: the channel of the last method of each kind.
        muted: a method that this channel of the broker loses, until it is closed.
        is_vague: the broker's refusals of channels lose their text.
    """

    def __init__(self, target_port: int) -> None:
        self.lost: set[Method] = set()
        self.swallowed = 0
        self.held: set[Method] = set()
        self._late: list[tuple[asyncio.StreamWriter, bytes]] = []
        self.seen: Counter[Method] = Counter()
        self.last: dict[Method, int] = {}
        self.muted: set[tuple[Method, int]] = set()
        self.is_vague = False
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def release(self) -> None:
        """Forward the held frames."""
        late, self._late = self._late, []
        for writer, frame in late:
            writer.write(frame)

    def hold(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        """Keep a frame for later."""
        self._late.append((writer, frame))

    @property
    def waiting(self) -> int:
        """Return the number of held frames."""
        return len(self._late)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target_port)
        for way in (
            self._forward(reader, to_broker, lambda chunk: chunk),
            self._forward(from_broker, writer, _Stream(self, writer).feed),
        ):
            link = asyncio.create_task(way)
            self._links.add(link)
            link.add_done_callback(self._links.discard)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            try:
                while chunk := await reader.read(65536):
                    writer.write(change(chunk))
                    await writer.drain()
            finally:
                writer.close()
                await writer.wait_closed()


class _Stream:
    """The forwarded bytes of one connection."""

    def __init__(self, proxy: FrameProxy, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writer = writer
        self._pending = b""
        # Channels with dropped content, and the size of its rest; None before its header.
        self._losing: dict[int, int | None] = {}

    def feed(self, chunk: bytes) -> bytes:
        data = self._pending + chunk
        out: list[bytes] = []
        at = 0
        while len(data) - at >= 7:
            kind, channel, size = struct.unpack_from(">BHI", data, at)
            end = at + 7 + size + 1
            if len(data) < end:
                break
            if (payload := self._change_frame(kind, channel, data[at + 7 : end - 1])) is not None:
                out.append(_frame(kind, channel, payload))
            at = end
        self._pending = data[at:]
        return b"".join(out)

    def _change_frame(self, kind: int, channel: int, payload: bytes) -> bytes | None:
        if kind == _METHOD:
            method = struct.unpack_from(">HH", payload)
            self._proxy.seen[method] += 1
            self._proxy.last[method] = channel
            if method == _CHANNEL_CLOSE_OK:
                self._proxy.muted = {each for each in self._proxy.muted if each[1] != channel}
            if (method, channel) in self._proxy.muted:
                return None
            if method in self._proxy.lost:
                self._proxy.swallowed += 1
                if method == BASIC_DELIVER:
                    self._losing[channel] = None
                return None
            if method in self._proxy.held:
                self._proxy.hold(self._writer, _frame(kind, channel, payload))
                return None
            if method == _CHANNEL_CLOSE and self._proxy.is_vague:
                return payload[:6] + b"\x02no" + payload[-4:]
        elif kind in (_HEADER, _BODY) and channel in self._losing:
            self._lose(kind, channel, payload)
            return None
        return payload

    def _lose(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == _HEADER:
            left = struct.unpack_from(">Q", payload, 4)[0]
        else:
            left = (self._losing[channel] or 0) - len(payload)
        if left:
            self._losing[channel] = left
        else:
            del self._losing[channel]


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + _END
