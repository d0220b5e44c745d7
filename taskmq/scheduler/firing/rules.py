"""Cache of schedule definitions parsed from their rows."""

from collections import OrderedDict
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import StoredSchedule
from taskmq.schedules.definition import StoredRule, read_stored

_KEPT: Final = 1_000


class RuleCache:
    """The rules of the schedules that were used last.

    Args:
        app: app with the tasks and custom triggers.
    """

    def __init__(self, app: TaskMQ) -> None:
        self._app = app
        self._kept: OrderedDict[int, tuple[bytes, StoredRule]] = OrderedDict()

    def rule_of(self, row: StoredSchedule) -> StoredRule:
        """Return the rule that a row defines.

        Raises:
            InvalidOption: the definition cannot be parsed or started here.
        """
        found = self._kept.get(row.id)
        if found is not None and found[0] == row.definition:
            self._kept.move_to_end(row.id)
            return found[1]
        app = self._app
        own = app.schedules.get(row.name) if row.is_code and row.app == app.name else None
        rule = read_stored(row.definition, name=row.name, own=own)
        self._kept[row.id] = (row.definition, rule)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return rule
