"""Queries of an app's schedules: the reading half of `app.schedules`."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from taskmq.client.producer import Producer
from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.stores import require_store
from taskmq.errors import InvalidOption, ScheduleNotFound
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.model.units import to_datetime
from taskmq.schedules.definition import (
    ScheduleEntry,
    read_definition,
)
from taskmq.schedules.kept_records import ScheduleRecords, StateRecords
from taskmq.schedules.record import HISTORY
from taskmq.schedules.status import (
    ListedSchedule,
    Occurrence,
    SchedulePage,
    ScheduleStatus,
    status_of,
)
from taskmq.tasks.tasks import Tasks

_log = logging.getLogger("taskmq.schedules")

_PAGE: Final = 500
# After all names with that prefix: it is unprintable, so no name contains it.
_BEHIND: Final = "\U0010ffff"


class ScheduleQueries(Mapping[str, ScheduleEntry]):
    """Queries that read schedules from the code and from the store, else from the state."""

    def __init__(self, app_name: str, tasks: Tasks, producer: Producer) -> None:
        self._app_name = app_name
        self._tasks = tasks
        self._producer = producer
        self._static: dict[str, ScheduleEntry] = {}

    def __getitem__(self, name: str) -> ScheduleEntry:
        return self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    @property
    def _own(self) -> dict[str, ScheduleEntry]:
        # Included modules must have defined theirs first.
        len(self._tasks)
        return self._static

    @property
    def _sessions(self) -> Sessions:
        return self._producer.sessions

    async def aentry(self, name: str) -> ScheduleEntry:
        """Return the schedule with this name, including those added at run time.

        Raises:
            ScheduleNotFound: no schedule has this name.
        """
        return await self._find(name)

    entry = blocking(aentry)

    async def alist(
        self, prefix: str = "", *, tenant: str | None = None, after: str | None = None, limit: int = 50
    ) -> SchedulePage:
        """Return a page of up to `limit` schedules by name, including those added at run time.

        Without a store, schedules whose task this app lacks are omitted.

        Args:
            prefix: prefix of their names; of a tenant's, the part after the tenant.
            tenant: only schedules of this tenant; "": of none; None: all.
        """
        if limit < 1:
            raise InvalidOption(f"limit={limit}: must be at least 1")
        found, behind = await self._page(prefix, tenant=tenant, after=after or "", limit=limit)
        entries, records = [*found.values()], self._records()
        kept, now = await records.read(entries), await records.now()
        listed = [
            ListedSchedule(entry, status_of(entry, record, [], now=now))
            for entry, record in zip(entries, kept, strict=True)
        ]
        return SchedulePage(listed, behind)

    list = blocking(alist)

    async def aall(self, *, tenant: str | None = None) -> dict[str, ScheduleEntry]:
        """Return all schedules by name at once, even millions; `list` returns one page."""
        found: dict[str, ScheduleEntry] = {}
        after: str | None = ""
        while after is not None:
            page, after = await self._page("", tenant=tenant, after=after, limit=_PAGE)
            found |= page
        return found

    all = blocking(aall)

    async def astatus(self, name: str) -> ScheduleStatus:
        """Return the counts of a schedule's occurrences so far."""
        entry, records = await self._find(name), self._records()
        (record,) = await records.read([entry])
        history = await records.history(entry, record, limit=HISTORY)
        return status_of(entry, record, history, now=await records.now())

    status = blocking(astatus)

    async def ahistory(self, name: str, *, limit: int = HISTORY) -> Sequence[Occurrence]:
        """Return the emitted occurrences, newest first: the last twenty, or with a store as far back as jobs go."""
        entry, records = await self._find(name), self._records()
        (record,) = await records.read([entry])
        return await records.history(entry, record, limit=limit)

    history = blocking(ahistory)

    async def anext(self, name: str, *, count: int = 5) -> Sequence[datetime]:
        """Return the next nominal instants of a schedule, up to `count`; none while it is paused."""
        from taskmq.schedules.triggers import instants_after

        entry, records = await self._find(name), self._records()
        (record,) = await records.read([entry])
        if record.paused is not None:
            return []
        following = islice(instants_after(entry.trigger, await records.now()), count)
        return [to_datetime(instant) for instant in following]

    next = blocking(anext)  # noqa: A003 - the method above

    async def aexplain(self, name: str) -> str:
        """Describe in words what a schedule starts, and when."""
        entry = await self._find(name)
        return f"{entry.starts}: {entry.trigger.describe()}"

    explain = blocking(aexplain)

    async def _page(
        self, prefix: str, *, tenant: str | None, after: str, limit: int
    ) -> tuple[dict[str, ScheduleEntry], str | None]:
        """Return up to `limit` entries, and the name after which there are more."""
        begin = tenant_key(tenant or None, prefix)
        kept = await self._runtime_definitions(begin, after, limit + 1, is_no_tenants=tenant == "")
        own = {} if tenant else {name: entry for name, entry in self._own.items() if name.startswith(begin)}
        names = sorted({*kept, *(name for name in own if name > after)})
        found: dict[str, ScheduleEntry] = {}
        for name in names[:limit]:
            try:
                found[name] = own.get(name) or read_definition(kept[name], name=name, tasks=self._tasks)
            except InvalidOption as error:
                _log.warning("schedule omitted: %s", error)
        return found, names[limit - 1] if len(names) > limit else None

    async def _runtime_definitions(
        self, begin: str, after: str, limit: int, *, is_no_tenants: bool
    ) -> dict[str, bytes]:
        """Return up to `limit` runtime definitions with this prefix: all, or only those without a tenant."""
        found: dict[str, bytes] = {}
        if not begin.isprintable():
            return found
        records = self._records()
        while len(found) < limit:
            wanted = limit - len(found)
            page = await records.page(prefix=begin, after=after, limit=wanted)
            for name, definition in page.items():
                if is_no_tenants and (tenant := split_tenant_key(name)[0]):
                    after = tenant_key(tenant, _BEHIND)
                    break
                found[name], after = definition, name
            else:
                if len(page) < wanted:
                    break
        return found

    async def _find(self, name: str) -> ScheduleEntry:
        if (own := self._own.get(name)) is not None:
            return own
        kept = await self._records().definition(name)
        if kept is None:
            raise self._not_found(name)
        return read_definition(kept, name=name, tasks=self._tasks)

    def _not_found(self, name: str) -> ScheduleNotFound:
        return ScheduleNotFound(f"no schedule {name!r}; list them with `taskmq schedule list`")

    def _records(self) -> ScheduleRecords:
        sessions = self._producer.sessions
        session = sessions.current()
        if session.store is not None:
            # Imported late, since apps without a store do not need it.
            from taskmq.schedules.store_records import StoredRecords

            return StoredRecords(session.store, self._app_name, self._producer)
        store = require_store(session.stores.schedules, "schedules need")
        return StateRecords(store, self._app_name, sessions.clock)
