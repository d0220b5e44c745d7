"""Changes to the record of one schedule from outside of a beat."""

import asyncio
import random
from collections.abc import Callable
from typing import Final, TypeVar

from taskmq.contracts.stores import KeptRecord, RecordChange, ScheduleStore
from taskmq.schedules.record import ScheduleRecord, decode_record, encode_record, new_version

T = TypeVar("T")

RECORD_TTL: Final = 400 * 86_400.0
"""Seconds that the record of a schedule is stored after its last emission: more than a year."""

_PAUSE: Final = 0.05


async def change_record(store: ScheduleStore, name: str, change: Callable[[ScheduleRecord], T]) -> T:
    """Call `change` with the record, which it modifies, and return its result.

    It is called again if another writer was faster.

    Raises:
        StateUnavailable: the state could not be reached; the record may have been changed.
    """
    (kept,) = await store.read([name])
    while True:
        record = decode_record(kept, name=name)
        answer = change(record)
        value = encode_record(record)
        if kept is not None and kept.value == value:
            return answer
        after = KeptRecord(new_version(), value)
        (there,) = await store.swap([RecordChange(name, "" if kept is None else kept.version, after)], ttl=RECORD_TTL)
        if there is not None and there.version == after.version:
            return answer
        kept = there
        await asyncio.sleep(random.uniform(0, _PAUSE))
