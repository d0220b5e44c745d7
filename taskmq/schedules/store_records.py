"""Schedules of an app with a job store."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from taskmq.client.producer import Producer
from taskmq.contracts.jobs import JobStore, ScheduleChange, StoredSchedule
from taskmq.contracts.stores import KeptRecord
from taskmq.errors import EncodeError, InvalidOption
from taskmq.middleware.chain import Sending
from taskmq.model.units import LAST_INSTANT
from taskmq.run.context import leave_run
from taskmq.schedules.definition import ScheduleEntry, check_not_unique, write_stored
from taskmq.schedules.record import ActiveRun, Emitted, ScheduleRecord, decode_record, encode_record
from taskmq.schedules.status import Occurrence

T = TypeVar("T")

_log = logging.getLogger("taskmq.schedules")

_PAGE: Final = 500
# Another writer changed it in between; each attempt has one winner.
_TRIES: Final = 100


def record_of(row: StoredSchedule) -> ScheduleRecord:
    """Return the record of a row; an empty one if no scheduler has seen the schedule yet.

    Raises:
        StateUnavailable: the stored value is not a record.
    """
    return decode_record(KeptRecord("", row.record) if row.record else None, name=row.name)


class StoredRecords:
    """`ScheduleRecords` in a job store, for schedulers.

    Args:
        store: the store of the running loop.
        app: the app's name.
        producer: the app's producer, which knows its queues and encodes messages.
    """

    def __init__(self, store: JobStore, app: str, producer: Producer) -> None:
        self._store = store
        self._app = app
        self._producer = producer

    def encode(self, entry: ScheduleEntry, call: Sending | None = None) -> bytes:
        if entry.workflow is not None:
            return write_stored(entry, None)
        check_not_unique(entry)
        if call is None:
            with leave_run():
                called = entry.task.options(tenant=entry.tenant) if entry.tenant else entry.task
                call = called.submission(*entry.args, **entry.kwargs)
                # Identical in each process that defines it.
                args, kwargs = entry.task.signature.canonical(
                    entry.args, dict(entry.kwargs), (call.envelope.args, call.envelope.kwargs), keeps_keys=True
                )
                call.envelope = replace(call.envelope, args=args, kwargs=kwargs)
        try:
            self._producer.queue(call.queue).check_order(call.envelope.order_key)
        except InvalidOption as error:
            raise InvalidOption(f"schedule {entry.name!r}: {error}") from error
        return write_stored(entry, call)

    async def define(self, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        (row,) = await self._store.schedules.find(self._app, [name])
        present = None if row is None else row.definition
        if present == after:
            return True
        if present != before:
            return False
        if after is None:
            change = ScheduleChange(app=self._app, name=name, before=row, is_removed=True)
        else:
            # Due at once, so that it begins when a scheduler first sees it.
            record = b"" if row is None else row.record
            change = ScheduleChange(
                app=self._app, name=name, before=row, definition=after, record=record, next=await self.now()
            )
        return (await self._store.schedules.write([change]))[0]

    async def definition(self, name: str) -> bytes | None:
        (row,) = await self._store.schedules.find(self._app, [name])
        return None if row is None or row.is_code else row.definition

    async def page(self, *, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        while len(found) < limit:
            wanted = limit - len(found)
            rows = await self._store.schedules.list(self._app, prefix=prefix, after=after, limit=wanted)
            found.update((row.name, row.definition) for row in rows if not row.is_code)
            if len(rows) < wanted:
                break
            after = rows[-1].name
        return found

    async def read(self, entries: Sequence[ScheduleEntry]) -> list[ScheduleRecord]:
        found: list[ScheduleRecord] = []
        for start in range(0, len(entries), _PAGE):
            names = [entry.name for entry in entries[start : start + _PAGE]]
            rows = await self._store.schedules.find(self._app, names)
            found += [ScheduleRecord() if row is None else record_of(row) for row in rows]
        alive = await self._store.schedules.alive([run.job_id for record in found for run in record.active])
        for record in found:
            record.active = [ActiveRun(run.job_id, LAST_INSTANT) for run in record.active if run.job_id in alive]
        return found

    async def history(self, entry: ScheduleEntry, record: ScheduleRecord, *, limit: int) -> list[Occurrence]:
        (row,) = await self._store.schedules.find(self._app, [entry.name])
        if row is None:
            return []
        fired = await self._store.schedules.occurrences(row.id, limit=limit)
        # A run requested by hand is not an occurrence. If both have the same instant, it came last.
        found = [*reversed(record.history), *(Emitted(one.instant, one.at, one.kind) for one in fired)]
        return [Occurrence.of(one) for one in sorted(found, key=_sort_key, reverse=True)][:limit]

    async def change(self, entry: ScheduleEntry, change: Callable[[ScheduleRecord], T]) -> T:
        for _ in range(_TRIES):
            (row,) = await self._store.schedules.find(self._app, [entry.name])
            record = ScheduleRecord() if row is None else record_of(row)
            answer = change(record)
            written = ScheduleChange(
                app=self._app,
                name=entry.name,
                before=row,
                is_code=not entry.is_dynamic,
                definition=self.encode(entry) if row is None else row.definition,
                record=encode_record(record),
                next=await self.now(),
            )
            if (await self._store.schedules.write([written]))[0]:
                return answer
        raise InvalidOption(f"schedule {entry.name!r}: other writers changed it during {_TRIES} attempts; try again")

    async def now(self) -> int:
        return await self._store.now_ms()

    async def upsert(self, entries: Mapping[str, ScheduleEntry]) -> None:
        """Store the schedules that the app's code defines, and remove those that it no longer defines.

        Schedules that cannot be stored are omitted, with an error in the log.

        Raises:
            StoreUnavailable: the store could not be reached; some may have been stored.
        """
        definitions: dict[str, bytes] = {}
        for name, entry in entries.items():
            try:
                definitions[name] = self.encode(entry)
            except (InvalidOption, EncodeError) as error:
                _log.error("cannot store schedule %s, it will not fire: %s", name, error)
        known = {row.name: row for row in await self._code_schedules()}
        changes: list[ScheduleChange] = []
        for row in known.values():
            if row.name not in entries:
                _log.warning("removing schedule %s: the code of app %s no longer defines it", row.name, self._app)
                changes.append(ScheduleChange(app=self._app, name=row.name, before=row, is_removed=True))
        now = await self.now()
        new = [name for name in definitions if name not in known]
        taken = await self._find(new)
        for name, definition in definitions.items():
            there = known.get(name, taken.get(name))
            if there is None or there.definition != definition or not there.is_code:
                changes.append(
                    ScheduleChange(
                        app=self._app,
                        name=name,
                        before=there,
                        is_code=True,
                        definition=definition,
                        record=b"" if there is None else there.record,
                        next=now,
                    )
                )
        for start in range(0, len(changes), _PAGE):
            # Skip what another scheduler has stored meanwhile.
            await self._store.schedules.write(changes[start : start + _PAGE])

    async def _find(self, names: Collection[str]) -> dict[str, StoredSchedule]:
        found: dict[str, StoredSchedule] = {}
        wanted = list(names)
        for start in range(0, len(wanted), _PAGE):
            rows = await self._store.schedules.find(self._app, wanted[start : start + _PAGE])
            found.update((row.name, row) for row in rows if row is not None)
        return found

    async def _code_schedules(self) -> list[StoredSchedule]:
        found: list[StoredSchedule] = []
        while page := await self._store.schedules.list(
            self._app, after=found[-1].name if found else "", limit=_PAGE, only_code=True
        ):
            found += page
        return found


def _sort_key(emitted: Emitted) -> tuple[int, int]:
    return emitted.at, emitted.instant
