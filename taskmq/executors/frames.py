"""What a worker and its executor processes say to each other: frames of MessagePack over three pipes.

A frame is its length, 8 bytes, and an array whose first element names its kind; further kinds may be added on either
side. The pipes:

    requests    worker -> process    Setup, once; then Request, one at a time
    control     worker -> process    Stop and Reply, while it runs
    answers     process -> worker    Ready, once it has imported the app; Answer, one for each request; what comes
                                     before an answer is about the run: News, BeginRun, SaveValue, and of what it
                                     logs LoggedLine and DroppedLines

A separate pipe for control: the thread that runs the tasks reads its requests itself, and is not woken for each by
one that reads for it.
"""

import os
import struct
from collections import deque
from typing import Any, Final

import msgspec

from taskmq.executors.journal_pipe import BeginRun, News, Reply, SaveValue
from taskmq.run.log_capture import CaptureSettings

__all__ = [
    "Assembly",
    "Control",
    "DroppedLines",
    "ExecutorReady",
    "FromProcess",
    "LoggedLine",
    "PipeReader",
    "Request",
    "RunAnswer",
    "Setup",
    "Stop",
    "decode_control",
    "decode_from_process",
    "decode_request",
    "frame",
    "write_frame",
]

_LENGTH: Final = struct.Struct("!Q")
_HEADER: Final = _LENGTH.size
_CHUNK: Final = 1 << 16
_SMALL: Final = 1 << 16


class Setup(msgspec.Struct, array_like=True, tag="setup"):
    """The first frame: what the worker knows and the process's own environment and code may say otherwise.

    Attributes:
        url, state, store: where the tasks send to.
        log_level: of the root logger; None leaves logging alone.
        answer_limit: bytes of an answer.
        capture: what runs log is sent; None: it is not.
        path: where the worker finds modules.
    """

    url: str
    state: str | None
    log_level: int | None = None
    answer_limit: int = 1 << 30
    store: str | None = None
    capture: CaptureSettings | None = None
    path: list[str] = []


class Request(msgspec.Struct, array_like=True, tag="request"):
    """One run: the message's own bytes, decoded over there.

    Attributes:
        carry: what middleware wants to have over there.
        fence: the run's idempotency key and token.
        amounts, devices: what it was given of the worker's resources.
        is_logged: what it logs is sent.
        number: of the run among those of its process.
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
    is_logged: bool = False
    number: int = 0


class Stop(msgspec.Struct, array_like=True, tag="stop"):
    """The run of this number is no longer wanted, or it is `preempted`. May be read before its request is.

    A job may come again in the same attempt: its id and attempt would stop that run, too.
    """

    number: int
    preempted: str | None = None


class ExecutorReady(msgspec.Struct, array_like=True, tag="ready"):
    """The app is imported: what comes next runs at once.

    Attributes:
        pid: the process's own, by which it is told from forks of it.
    """

    pid: int


class RunAnswer(msgspec.Struct, array_like=True, tag="answer"):
    """What became of a run: a pickled value or exception. Both ends are processes of one worker.

    Attributes:
        number: of the run, as its request had it.
        pid: the process that answers.
    """

    is_error: bool
    pickled: bytes
    number: int
    pid: int


class LoggedLine(msgspec.Struct, array_like=True, tag="line"):
    """A line of the run that goes on; `source` is its logger, or the stream that it was printed to."""

    level: int
    source: str
    text: str


class DroppedLines(msgspec.Struct, array_like=True, tag="dropped"):
    """So many lines of the run were too many."""

    count: int


Control = Stop | Reply
FromProcess = ExecutorReady | RunAnswer | News | BeginRun | SaveValue | LoggedLine | DroppedLines

_request: Final[msgspec.msgpack.Decoder[Setup | Request]] = msgspec.msgpack.Decoder(Setup | Request)
_control: Final[msgspec.msgpack.Decoder[Control]] = msgspec.msgpack.Decoder(Stop | Reply)
_from_process: Final[msgspec.msgpack.Decoder[FromProcess]] = msgspec.msgpack.Decoder(
    ExecutorReady | RunAnswer | News | BeginRun | SaveValue | LoggedLine | DroppedLines
)
_encoder: Final = msgspec.msgpack.Encoder()


def frame(content: Any) -> list[bytes]:
    """A frame's bytes, in parts: what is large is not copied, what is small arrives at once."""
    payload = _encoder.encode(content)
    header = _LENGTH.pack(len(payload))
    return [header + payload] if len(payload) < _SMALL else [header, payload]


def decode_request(payload: bytes) -> Setup | Request:
    return _request.decode(payload)


def decode_control(payload: bytes) -> Control:
    return _control.decode(payload)


def decode_from_process(payload: bytes) -> FromProcess:
    return _from_process.decode(payload)


class Assembly:
    """Puts frames together from what arrives in any pieces."""

    def __init__(self) -> None:
        self._parts = bytearray()
        self._wanted = _HEADER

    def add(self, data: bytes) -> list[bytes]:
        """The contents of the frames that are whole now."""
        if not self._parts and len(data) >= _HEADER and len(data) == _HEADER + _LENGTH.unpack_from(data)[0]:
            return [data[_HEADER:]]
        parts = self._parts
        parts += data
        found: list[bytes] = []
        while len(parts) >= self._wanted:
            self._wanted = _HEADER + _LENGTH.unpack_from(parts)[0]
            if len(parts) >= self._wanted:
                found.append(bytes(memoryview(parts)[_HEADER : self._wanted]))
                del parts[: self._wanted]
                self._wanted = _HEADER
        return found


class PipeReader:
    """Frames from a pipe, one after the other. Blocks."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._assembly = Assembly()
        self._whole: deque[bytes] = deque()

    def read(self) -> bytes | None:
        """The next one's content; None at the pipe's end."""
        while not self._whole:
            data = os.read(self.descriptor, _CHUNK)
            if not data:
                return None
            self._whole.extend(self._assembly.add(data))
        return self._whole.popleft()


def write_frame(descriptor: int, content: Any) -> None:
    """One frame to a pipe. Blocks."""
    for part in frame(content):
        data = memoryview(part)
        while data:
            data = data[os.write(descriptor, data) :]
