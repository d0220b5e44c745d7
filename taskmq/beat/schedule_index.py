"""Index of schedules: those of the code, and those made at run time."""

import logging
from collections.abc import Mapping
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.stores import ScheduleStore
from taskmq.errors import TaskMQError
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.definition import check_not_unique, check_without_store, read_definition

_log = logging.getLogger("taskmq.beat")

_PAGE: Final = 1_000


class ScheduleIndex:
    """The schedules of one app, as of the last look.

    Args:
        fires: whether a beat fires them; schedulers fire those of a job store.
    """

    def __init__(self, app: TaskMQ, store: ScheduleStore, *, fires: bool) -> None:
        self._app = app
        self._store = store
        self._cursor = 0
        self._fires = fires
        self._entries: dict[str, ScheduleEntry] = dict(app.schedules) if fires else {}

    @property
    def entries(self) -> Mapping[str, ScheduleEntry]:
        return self._entries

    async def look(self) -> list[str]:
        """Load changes since the last look; return the names of changed and removed schedules.

        Raises:
            StateUnavailable: the state could not be reached.
        """
        changed: dict[str, None] = {}
        while page := await self._store.list_changed(self._app.name, self._cursor, limit=_PAGE):
            for change in page:
                self._learn(change.name, change.definition)
                changed[change.name] = None
            self._cursor = page[-1].cursor
        return list(changed)

    def _learn(self, name: str, definition: bytes | None) -> None:
        if not self._fires or name in self._app.schedules:
            # Defined by the code; it was logged, or it hides one that was made before.
            return
        self._entries.pop(name, None)
        if definition is None:
            return
        try:
            entry = read_definition(definition, name=name, tasks=self._app.tasks)
            # Its task may have got these options since it was stored.
            check_not_unique(entry)
            check_without_store(entry)
        except TaskMQError as error:
            _log.error("schedule %s: this beat cannot emit it: %s", name, error)
        else:
            self._entries[name] = entry
