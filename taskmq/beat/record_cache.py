"""Records of many schedules, changed in batches."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from taskmq.contracts.stores import KeptRecord, RecordChange, ScheduleStore
from taskmq.model.keys import schedule_record_key
from taskmq.schedules.record import ScheduleRecord, decode_record, encode_record, new_version
from taskmq.schedules.record_access import RECORD_TTL

_PAGE: Final = 1_000


class RecordStep(msgspec.Struct, eq=False):
    """A change of one schedule's record.

    Attributes:
        apply: changes the record in place; called again with the present record if another writer was faster.
        failed: called with the error if `apply` raises, or the record cannot be read; nothing is changed then.
    """

    schedule: str
    apply: Callable[[ScheduleRecord], None]
    failed: Callable[[BaseException], None] | None = None


class RecordCache:
    """The records as this replica saw them last, in their encoded form.

    An outdated record only costs a refused change.
    """

    def __init__(self, store: ScheduleStore, *, app: str) -> None:
        self._store = store
        self._app = app
        self._known: dict[str, KeptRecord | None] = {}

    async def load(self, schedules: Sequence[str]) -> None:
        """Load the present records.

        Raises:
            StateUnavailable: the state could not be reached.
        """
        for start in range(0, len(schedules), _PAGE):
            page = schedules[start : start + _PAGE]
            found = await self._store.read([schedule_record_key(self._app, name) for name in page])
            self._known.update(zip(page, found, strict=True))

    def forget(self, schedule: str) -> None:
        self._known.pop(schedule, None)

    async def change(self, steps: Sequence[RecordStep]) -> None:
        """Apply all steps, each to the current record of another schedule, in as few calls as possible.

        Raises:
            StateUnavailable: the state could not be reached; some steps may have been applied.
        """
        pending = list(steps)
        while pending:
            made = [(step, change) for step in pending if (change := self._make(step)) is not None]
            if not made:
                return
            answers = await self._store.swap([change for _, change in made], ttl=RECORD_TTL)
            again: list[RecordStep] = []
            for (step, change), answer in zip(made, answers, strict=True):
                if answer is None or answer.version != change.after.version:
                    again.append(step)
                self._known[step.schedule] = answer
            pending = again

    def _make(self, step: RecordStep) -> RecordChange | None:
        """Return the change that the step makes to the known record; None if it changes nothing."""
        kept = self._known.get(step.schedule)
        try:
            record = decode_record(kept, name=step.schedule)
            step.apply(record)
        except BaseException as error:  # a trigger may be the app's own code, which raises what it likes
            if step.failed is None:
                raise
            step.failed(error)
            return None
        value = encode_record(record)
        if kept is not None and kept.value == value:
            return None
        before = "" if kept is None else kept.version
        return RecordChange(schedule_record_key(self._app, step.schedule), before, KeptRecord(new_version(), value))
