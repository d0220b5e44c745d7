"""Signals to schedulers: lanes that got ready jobs, for the holder of their partition, and runs with work.

A signal is a hint that may get lost or be late. It spares the holder a look at all lanes of its partition; an empty
body means that some lane may have ready jobs.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from taskmq.contracts.jobs.dispatch.lanes import Lane

READY_TOPIC: Final = "store.ready."
RUNS_TOPIC: Final = "store.runs"
"""Topic of signals that runs of workflows have something to do; the body has their ids, separated by spaces."""
RUN_ENDS_TOPIC: Final = "store.run-ends"
"""Topic of ends of runs, for callers that wait; the body is the id of the run."""
# More lanes are not worth naming: a look at the whole partition finds them at once.
_MOST: Final = 50

_Lanes = list[tuple[str, int, str]]
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Lanes)


def ready_topic(partition: int) -> str:
    """Return the topic of signals that jobs of a partition may be ready."""
    return f"{READY_TOPIC}{partition}"


def encode_lanes(lanes: Collection[Lane]) -> bytes:
    """Encode these lanes; empty if there are too many."""
    if len(lanes) > _MOST:
        return b""
    return _encoder.encode([(lane.queue, lane.priority, lane.tenant) for lane in lanes])


def decode_lanes(body: bytes) -> list[Lane]:
    """Decode the lanes; empty if the signal names none."""
    try:
        return [Lane(*names) for names in _decoder.decode(body)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
