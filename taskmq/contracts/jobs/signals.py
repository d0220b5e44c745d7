"""What those who make jobs ready announce to the holder of a partition: which lanes have got some.

A hint that may get lost or come late. What it names spares the holder a look at all lanes of its partition; an empty
body says no more than that there is something to be looked for.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from taskmq.contracts.jobs.dispatch import Lane

__all__ = ["READY_TOPIC", "decode_lanes", "encode_lanes", "ready_topic"]

READY_TOPIC: Final = "store.ready."
# More are not worth their names: a look at all of the partition finds them in one go.
_MOST: Final = 50

_Lanes = list[tuple[str, int, str]]
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Lanes)


def ready_topic(partition: int) -> str:
    """What is announced where jobs of a partition may be ready."""
    return f"{READY_TOPIC}{partition}"


def encode_lanes(lanes: Collection[Lane]) -> bytes:
    """The body that names these lanes; empty where they are too many."""
    if len(lanes) > _MOST:
        return b""
    return _encoder.encode([(lane.queue, lane.priority, lane.tenant) for lane in lanes])


def decode_lanes(body: bytes) -> list[Lane]:
    """The lanes that a body names; none where it says only that there is something to be looked for."""
    try:
        return [Lane(*names) for names in _decoder.decode(body)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
