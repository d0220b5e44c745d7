"""Contracts of a job store's history: logs, figures by the minute, depths, versions, failures, sent jobs, alerts."""

from taskmq.contracts.history.alerts import AlertNotice, AlertStore, KeptRule, NoticeTurn
from taskmq.contracts.history.depths import DepthStore, QueueDepth
from taskmq.contracts.history.failures import FailureCount, FailureGroupStore
from taskmq.contracts.history.logs import LogStore
from taskmq.contracts.history.rollups import FailureFilter, FailurePage, RollupFilter, RollupStore
from taskmq.contracts.history.sent_jobs import SentJobStore, sent_attempts, sent_record
from taskmq.contracts.history.store import HistoryStore, Remembering, history_of
from taskmq.contracts.history.versions import VersionStore

__all__ = [
    "AlertNotice",
    "AlertStore",
    "DepthStore",
    "FailureCount",
    "FailureFilter",
    "FailureGroupStore",
    "FailurePage",
    "HistoryStore",
    "KeptRule",
    "LogStore",
    "NoticeTurn",
    "QueueDepth",
    "Remembering",
    "RollupFilter",
    "RollupStore",
    "SentJobStore",
    "VersionStore",
    "history_of",
    "sent_attempts",
    "sent_record",
]
