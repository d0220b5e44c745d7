"""The part of a job store that remembers what has happened."""

from typing import Any, Protocol, runtime_checkable

from taskmq.contracts.history.alerts import AlertStore
from taskmq.contracts.history.logs import LogStore
from taskmq.contracts.history.rollups import RollupStore
from taskmq.errors import UnsupportedFeature

__all__ = ["HistoryStore", "Remembering", "history_of"]


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


def history_of(store: Any) -> HistoryStore:
    """What a job store remembers.

    Raises:
        UnsupportedFeature: it remembers nothing.
    """
    if not isinstance(store, Remembering):
        raise UnsupportedFeature(f"the job store {store.address} keeps no logs, figures and alerts")
    return store.history
