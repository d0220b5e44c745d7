"""History: the part of a job store that records past runs."""

from typing import Any, Protocol, runtime_checkable

from taskmq.contracts.history.alerts import AlertStore
from taskmq.contracts.history.depths import DepthStore
from taskmq.contracts.history.failures import FailureGroupStore
from taskmq.contracts.history.logs import LogStore
from taskmq.contracts.history.rollups import RollupStore
from taskmq.contracts.history.sent_jobs import SentJobStore
from taskmq.contracts.history.versions import VersionStore
from taskmq.errors import UnsupportedFeature


class HistoryStore(Protocol):
    """Logs, figures, depths, versions, groups of failures, sent jobs and alerts.

    They share the lifetime of their store.
    """

    @property
    def logs(self) -> LogStore: ...

    @property
    def rollups(self) -> RollupStore: ...

    @property
    def depths(self) -> DepthStore: ...

    @property
    def versions(self) -> VersionStore: ...

    @property
    def sent_jobs(self) -> SentJobStore: ...

    @property
    def failures(self) -> FailureGroupStore: ...

    @property
    def alerts(self) -> AlertStore: ...


@runtime_checkable
class Remembering(Protocol):
    """A job store with a history."""

    @property
    def history(self) -> HistoryStore: ...


def history_of(store: Any) -> HistoryStore:
    """Return the history of a job store.

    Raises:
        UnsupportedFeature: it has none.
    """
    if not isinstance(store, Remembering):
        raise UnsupportedFeature(f"the job store {store.address} keeps no logs, figures and alerts")
    return store.history
