"""Messages between a worker and its executor processes: frames of MessagePack over three pipes.

A frame is its length, 8 bytes, and an array whose first element names its kind; further kinds may be added on either
side. The pipes:

    requests    worker -> process    Setup, once; then Request, one at a time
    control     worker -> process    Stop and Reply, while it runs
    answers     process -> worker    Ready, once it has imported the app; Answer, one for each request; what comes
                                     before an answer is about the run: News, BeginRun, SaveValue, and of what it
                                     logs LoggedLine and DroppedLines

The control pipe is separate, so that the thread of the tasks reads its requests itself, without another thread that
wakes it for each.
"""

import os
import struct
from collections import deque
from typing import Any, Final

import msgspec

from taskmq.executors.journal_pipe import BeginRun, News, Reply, SaveValue
from taskmq.run.log_capture import CaptureSettings

_LENGTH: Final = struct.Struct("!Q")
_HEADER: Final = _LENGTH.size
_CHUNK: Final = 1 << 16
_SMALL: Final = 1 << 16


class Setup(msgspec.Struct, array_like=True, tag="setup"):
    """The first frame: settings of the worker that the process's own environment and code may contradict.

    Attributes:
        url, state, store: where the tasks publish to.
        log_level: of the root logger; None leaves logging alone.
        answer_limit: bytes of an answer.
        capture: settings of log capture; None: no capture.
        path: the worker's module search path.
    """

    url: str
    state: str | None
    log_level: int | None = None
    answer_limit: int = 1 << 30
    store: str | None = None
    capture: CaptureSettings | None = None
    path: list[str] = []


class Request(msgspec.Struct, array_like=True, tag="request"):
    """A run: the message's own bytes, decoded in the process.

    Attributes:
        carry: texts of middleware for the process.
        fence: the run's idempotency key and token.
        amounts, devices: its share of the worker's resources.
        is_logged: whether its log lines are sent.
        number: number of the run within its process.
        is_stored: whether it is a run of a stored job.
        step_of, key: as in an envelope.
        started: start of the run, ms since the epoch.
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
    is_stored: bool = False
    step_of: str | None = None
    key: str | None = None
    started: int = 0


class Stop(msgspec.Struct, array_like=True, tag="stop"):
    """The run of this number must stop, or is `preempted`. May be read before its request is.

    The job's id and attempt do not identify a run: the job may arrive again in the same attempt.
    """

    number: int
    preempted: str | None = None


class ExecutorReady(msgspec.Struct, array_like=True, tag="ready"):
    """The app is imported: the next request runs immediately.

    Attributes:
        pid: the process's own, which distinguishes it from its forks.
    """

    pid: int


class RunAnswer(msgspec.Struct, array_like=True, tag="answer"):
    """The result of a run: a pickled value or exception. Both ends are processes of one worker.

    Attributes:
        number: of the run, as in its request.
        pid: the process that answers.
        processor: processor time of the run in ms, with that of its ended child processes.
        peak_memory: peak resident bytes of the process during the run; None: unknown.
    """

    is_error: bool
    pickled: bytes
    number: int
    pid: int
    processor: int = 0
    peak_memory: int | None = None


class LoggedLine(msgspec.Struct, array_like=True, tag="line"):
    """A log line of the current run; `source` is its logger, or the stream that it was printed to."""

    level: int
    source: str
    text: str


class DroppedLines(msgspec.Struct, array_like=True, tag="dropped"):
    """Number of lines of the run that were dropped."""

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
    """Return a frame's bytes in parts: a large value is not copied, a small one arrives in one piece."""
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
    """Assembles frames from data in arbitrary pieces."""

    def __init__(self) -> None:
        self._parts = bytearray()
        self._wanted = _HEADER

    def add(self, data: bytes) -> list[bytes]:
        """Add data; return the contents of the frames that are complete now."""
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
    """Reads frames from a pipe, one after the other. Blocks."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._assembly = Assembly()
        self._whole: deque[bytes] = deque()

    def read(self) -> bytes | None:
        """Return the content of the next frame; None at the pipe's end."""
        while not self._whole:
            data = os.read(self.descriptor, _CHUNK)
            if not data:
                return None
            self._whole.extend(self._assembly.add(data))
        return self._whole.popleft()


def write_frame(descriptor: int, content: Any) -> None:
    """Write one frame to a pipe. Blocks."""
    for part in frame(content):
        data = memoryview(part)
        while data:
            data = data[os.write(descriptor, data) :]
