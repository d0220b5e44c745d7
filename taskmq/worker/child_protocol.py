"""What a worker process sends to its supervisor: lines of JSON on the status pipe.

`Ready` comes once, a `Report` about once a second and one at the end. A report that the supervisor has not read
yet is not followed by another: the pipe never fills up, and the worker never waits for it.
"""

import logging
from typing import Final

import msgspec

from taskmq.model.telemetry.metrics import Count
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.worker.config import WorkerConfig

__all__ = ["EXIT_DISMISSED", "EXIT_USAGE", "ChildReady", "ChildReport", "ChildSpec", "read_line", "write_line"]


class ChildReady(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """What a child says once it consumes."""

    app: str
    broker: str
    queues: list[str]
    tasks: list[str]


class ChildReport(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """How a child does.

    Attributes:
        counts: since the child started, of those tasks and queues where there is something new.
        cpu: cores that the child has used since its last report.
        depths: messages that wait in the broker, by queue as people name it; None where this child does not look,
            or the broker does not answer.
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
    """What the line says; None for one that is cut off or none of ours, as a task that has forked may write."""
    if not line.endswith(b"\n"):
        return None
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError:
        return None


EXIT_USAGE: Final = 2
# Far from what tasks end a process with.
EXIT_DISMISSED: Final = 213
"""A command over the broker has drained this process: it is not to be replaced."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor wants.

    Attributes:
        url, state, store: in place of the app's.
        default_store: of an app that has none.
        looks: whether this child asks the broker how many messages wait; one of them is enough.
    """

    target: str
    config: WorkerConfig
    url: str | None = None
    state: str | None = None
    store: str | None = None
    default_store: str | None = None
    log_level: int = logging.INFO
    looks: bool = False
