"""Where the schedules of an app are kept: in its state, or in its job store."""

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

__all__ = ["ScheduleRecords", "StateRecords"]

T = TypeVar("T")

_PAGE: Final = 1_000


class ScheduleRecords(Protocol):
    """The definitions that were made at run time, and the records of all."""

    def written(self, entry: ScheduleEntry, call: Sending | None = None) -> bytes:
        """The definition as it is kept here.

        Args:
            call: of the entry's definition, where it has one.

        Raises:
            InvalidOption, EncodeError: it cannot be.
        """
        ...

    async def define(self, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        """Put a definition in the place of another one; None means none. False where neither is there."""
        ...

    async def definition(self, name: str) -> bytes | None:
        """The definition of that name that was made at run time."""
        ...

    async def page(self, *, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        """Up to `limit` that were made at run time, by name: those after `after` that begin with `prefix`."""
        ...

    async def read(self, entries: Sequence[ScheduleEntry]) -> list[ScheduleRecord]:
        """Their records, in their order."""
        ...

    async def history(self, entry: ScheduleEntry, record: ScheduleRecord, *, limit: int) -> list[Occurrence]:
        """What the schedule has emitted, the newest first; as much of it as is kept."""
        ...

    async def change(self, entry: ScheduleEntry, change: Callable[[ScheduleRecord], T]) -> T:
        """What `change` returns, called with the record, in which it changes something. The scheduler sees it."""
        ...

    async def now(self) -> int:
        """What time it is there, ms since the epoch."""
        ...


class StateRecords:
    """`ScheduleRecords` in a state, for beats.

    Args:
        store: the state's.
        app: the app's name.
    """

    def __init__(self, store: ScheduleStore, app: str, clock: Clock) -> None:
        self._store = store
        self._app = app
        self._clock = clock

    def written(self, entry: ScheduleEntry, call: Sending | None = None) -> bytes:  # noqa: ARG002 - beats know no definitions
        if entry.tenant:
            raise InvalidOption(f"schedule {entry.name!r}: schedules of tenants are for apps with a job store")
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
        """All that were made at run time."""
        place = 0
        found: dict[str, bytes] = {}
        while page := await self._store.changed(self._app, place, limit=_PAGE):
            found.update((change.name, change.definition) for change in page if change.definition is not None)
            place = page[-1].place
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
        # After it, so that who looks sees it.
        await self._store.tell(self._app, [entry.name])
        return answer

    async def now(self) -> int:
        return self._clock.now_ms()
