"""Contracts of a job store's history of runs: logs, figures by the minute, failures, alerts."""

from taskmq.contracts.history.alerts import AlertNotice, AlertStore, KeptRule, NoticeTurn
from taskmq.contracts.history.logs import LogStore
from taskmq.contracts.history.rollups import FailureFilter, FailurePage, RollupFilter, RollupStore
from taskmq.contracts.history.store import HistoryStore, Remembering, history_of

__all__ = [
    "AlertNotice",
    "AlertStore",
    "FailureFilter",
    "FailurePage",
    "HistoryStore",
    "KeptRule",
    "LogStore",
    "NoticeTurn",
    "Remembering",
    "RollupFilter",
    "RollupStore",
    "history_of",
]
