"""Stores of an app's schedules: its state or its job store."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from taskmq.contracts.stores import ScheduleStore
from taskmq.errors import InvalidOption
from taskmq.middleware.chain import Sending
from taskmq.model.clock import Clock
from taskmq.model.keys import schedule_record_key
from taskmq.schedules.definition import ScheduleEntry, check_without_store, write_definition
from taskmq.schedules.record import ScheduleRecord, decode_record
from taskmq.schedules.record_access import change_record
from taskmq.schedules.status import Occurrence

T = TypeVar("T")

_PAGE: Final = 1_000


class ScheduleRecords(Protocol):
    """Definitions added at run time, and the records of all schedules."""

    def encode(self, entry: ScheduleEntry, call: Sending | None = None) -> bytes:
        """Encode a definition for this store.

        Args:
            call: call of the entry's definition, if it has one.

        Raises:
            InvalidOption, EncodeError: it cannot be encoded.
        """
        ...

    async def define(self, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        """Replace the definition `before` by `after`, where None means none; False if the stored one is neither."""
        ...

    async def definition(self, name: str) -> bytes | None:
        """Return the definition added at run time under this name."""
        ...

    async def page(self, *, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        """Return up to `limit` runtime definitions by name, after `after`, with names that begin with `prefix`."""
        ...

    async def read(self, entries: Sequence[ScheduleEntry]) -> list[ScheduleRecord]:
        """Return the records of the entries, in their order."""
        ...

    async def history(self, entry: ScheduleEntry, record: ScheduleRecord, *, limit: int) -> list[Occurrence]:
        """Return the emitted occurrences, newest first, as far as they are stored."""
        ...

    async def change(self, entry: ScheduleEntry, change: Callable[[ScheduleRecord], T]) -> T:
        """Call `change` with the record, which it modifies, and return its result. The scheduler sees the change."""
        ...

    async def now(self) -> int:
        """Return the store's time, ms since the epoch."""
        ...


class StateRecords:
    """`ScheduleRecords` in a state, for beats.

    Args:
        store: the state's store.
        app: the app's name.
    """

    def __init__(self, store: ScheduleStore, app: str, clock: Clock) -> None:
        self._store = store
        self._app = app
        self._clock = clock

    def encode(self, entry: ScheduleEntry, call: Sending | None = None) -> bytes:  # noqa: ARG002 - beats know no definitions
        if entry.tenant:
            raise InvalidOption(f"schedule {entry.name!r}: schedules of tenants need a job store")
        check_without_store(entry)
        return write_definition(entry)

    async def define(self, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        return await self._store.define(self._app, name, before=before, after=after)

    async def definition(self, name: str) -> bytes | None:
        return (await self.definitions()).get(name)

    async def page(self, *, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        kept = await self.definitions()
        names = sorted(name for name in kept if name > after and name.startswith(prefix))
        return {name: kept[name] for name in names[:limit]}

    async def definitions(self) -> dict[str, bytes]:
        """Return all definitions added at run time."""
        cursor = 0
        found: dict[str, bytes] = {}
        while page := await self._store.list_changed(self._app, cursor, limit=_PAGE):
            found.update((change.name, change.definition) for change in page if change.definition is not None)
            cursor = page[-1].cursor
        return found

    async def read(self, entries: Sequence[ScheduleEntry]) -> list[ScheduleRecord]:
        found: list[ScheduleRecord] = []
        for start in range(0, len(entries), _PAGE):
            names = [schedule_record_key(self._app, entry.name) for entry in entries[start : start + _PAGE]]
            found += [
                decode_record(kept, name=name)
                for name, kept in zip(names, await self._store.read(names), strict=True)
            ]
        return found

    async def history(self, entry: ScheduleEntry, record: ScheduleRecord, *, limit: int) -> list[Occurrence]:  # noqa: ARG002 - it is in the record
        return [Occurrence.of(emitted) for emitted in reversed(record.history)][:limit]

    async def change(self, entry: ScheduleEntry, change: Callable[[ScheduleRecord], T]) -> T:
        answer = await change_record(self._store, schedule_record_key(self._app, entry.name), change)
        # Notify after the change, so that a reader sees it.
        await self._store.tell(self._app, [entry.name])
        return answer

    async def now(self) -> int:
        return self._clock.now_ms()
