"""What a worker and its executor processes say to each other: frames of MessagePack over two pipes.

A frame is its length, 8 bytes, and an array whose first element names its kind; further kinds may be added on either
side. The worker begins with `Setup`. After that:

    worker -> process    Request, one at a time; Stop and Reply, while it runs
    process -> worker    Ready, once it has imported the app; Answer, one for each request; what comes before an
                         answer is about the run: News, BeginRun, SaveValue
"""

import os
import struct
from typing import Any, Final

import msgspec

from taskmq.executors.telling import BeginRun, News, Reply, SaveValue

__all__ = [
    "HEADER",
    "Answer",
    "FromProcess",
    "Ready",
    "Request",
    "Setup",
    "Stop",
    "ToProcess",
    "decode_from_process",
    "decode_to_process",
    "frame",
    "frame_size",
    "read_frame",
    "write_frame",
]

_LENGTH: Final = struct.Struct("!Q")
_CHUNK: Final = 1 << 20
_SMALL: Final = 1 << 16

HEADER: Final = _LENGTH.size


class Setup(msgspec.Struct, array_like=True, tag="setup"):
    """The first frame: what the worker knows and the process's own environment and code may say otherwise.

    Attributes:
        url, state: where the tasks send to.
        log_level: of the root logger; None leaves logging alone.
        answer_limit: bytes of an answer.
    """

    url: str
    state: str | None
    log_level: int | None = None
    answer_limit: int = 1 << 30


class Request(msgspec.Struct, array_like=True, tag="request"):
    """One run: the message's own bytes, decoded over there.

    Attributes:
        carry: what middleware wants to have over there.
        fence: the run's idempotency key and token.
        amounts, devices: what it was given of the worker's resources.
    """

    task: str
    args: bytes
    kwargs: bytes
    content_type: str
    job_id: str
    attempt: int
    max_attempts: int
    queue: str
    redelivered: bool
    deadline: float | None
    root: str | None
    meta: dict[str, str] | None
    tenant: str | None
    order_key: str | None = None
    soft_timeout: float | None = None
    carry: dict[str, str] | None = None
    amounts: dict[str, float] | None = None
    devices: tuple[str, ...] = ()
    fence: tuple[str, int] | None = None


class Stop(msgspec.Struct, array_like=True, tag="stop"):
    """Nobody waits for this run any more."""

    job_id: str


class Ready(msgspec.Struct, array_like=True, tag="ready"):
    """The app is imported: what comes next runs at once."""


class Answer(msgspec.Struct, array_like=True, tag="answer"):
    """What became of a run: a pickled value or exception. Both ends are processes of one worker."""

    is_error: bool
    pickled: bytes


ToProcess = Setup | Request | Stop | Reply
FromProcess = Ready | Answer | News | BeginRun | SaveValue

_to_process: Final[msgspec.msgpack.Decoder[ToProcess]] = msgspec.msgpack.Decoder(Setup | Request | Stop | Reply)
_from_process: Final[msgspec.msgpack.Decoder[FromProcess]] = msgspec.msgpack.Decoder(
    Ready | Answer | News | BeginRun | SaveValue
)
_encoder: Final = msgspec.msgpack.Encoder()


def frame(content: Any) -> list[bytes]:
    """A frame's bytes, in parts: what is large is not copied, what is small arrives at once."""
    payload = _encoder.encode(content)
    header = _LENGTH.pack(len(payload))
    return [header + payload] if len(payload) < _SMALL else [header, payload]


def frame_size(header: bytes) -> int:
    """How many bytes follow this header."""
    size: int = _LENGTH.unpack(header)[0]
    return size


def decode_to_process(payload: bytes) -> ToProcess:
    return _to_process.decode(payload)


def decode_from_process(payload: bytes) -> FromProcess:
    return _from_process.decode(payload)


def read_frame(descriptor: int) -> bytes | None:
    """One frame's content from a pipe; None at its end. Blocks."""
    header = _read_exactly(descriptor, HEADER)
    return None if header is None else _read_exactly(descriptor, frame_size(header))


def write_frame(descriptor: int, content: Any) -> None:
    """One frame to a pipe. Blocks."""
    for part in frame(content):
        data = memoryview(part)
        while data:
            data = data[os.write(descriptor, data) :]


def _read_exactly(descriptor: int, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = os.read(descriptor, min(size, _CHUNK))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
