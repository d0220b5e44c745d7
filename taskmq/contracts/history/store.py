"""The part of a job store that remembers what has happened."""

from typing import Protocol, runtime_checkable

from taskmq.contracts.history.alerts import AlertStore
from taskmq.contracts.history.logs import LogStore
from taskmq.contracts.history.rollups import RollupStore

__all__ = ["HistoryStore", "Remembering"]


class HistoryStore(Protocol):
    """Logs, figures, failures and alerts; they live and end with their store."""

    @property
    def logs(self) -> LogStore: ...

    @property
    def rollups(self) -> RollupStore: ...

    @property
    def alerts(self) -> AlertStore: ...


@runtime_checkable
class Remembering(Protocol):
    """A job store that remembers what has happened."""

    @property
    def history(self) -> HistoryStore: ...
