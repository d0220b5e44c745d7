"""Messages from a worker process to its supervisor: JSON lines on the status pipe.

`Ready` is sent once, a `Report` about once a second and once at the end. The worker writes no further report until
the supervisor has read the last one. So the pipe never fills up, and the worker never blocks on it.
"""

import logging
from typing import Final

import msgspec

from taskmq.model.telemetry.metrics import Count
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.worker.config import WorkerConfig


class ChildReady(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Sent by a child once it consumes."""

    app: str
    broker: str
    queues: list[str]
    tasks: list[str]


class ChildReport(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """The status of a child.

    Attributes:
        counts: since the child started, for tasks and queues with new counts only.
        cpu: cores that the child used since its last report.
        depths: waiting messages by public queue name; None if this child does not ask the broker, or the broker does
            not answer.
    """

    status: WorkerStatus
    counts: list[Count] = []
    cpu: float = 0.0
    depths: dict[str, int] | None = None


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[ChildReady | ChildReport] = msgspec.json.Decoder(ChildReady | ChildReport)


def write_line(message: ChildReady | ChildReport) -> bytes:
    return _encoder.encode(message) + b"\n"


def read_line(line: bytes) -> ChildReady | ChildReport | None:
    """Decode a line; None if it is cut off or not a message, because a forked task may write to the pipe, too."""
    if not line.endswith(b"\n"):
        return None
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError:
        return None


EXIT_USAGE: Final = 2
# Unlikely to collide with exit codes of tasks.
EXIT_DISMISSED: Final = 213
"""Exit code after a drain command over the broker: the supervisor does not replace this process."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's settings for a child.

    Attributes:
        url, state, store: override the app's.
        default_store: for an app without one.
        looks: whether this child asks the broker for queue depths; one child is enough.
    """

    target: str
    config: WorkerConfig
    url: str | None = None
    state: str | None = None
    store: str | None = None
    default_store: str | None = None
    log_level: int = logging.INFO
    looks: bool = False
