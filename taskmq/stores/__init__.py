"""Contracts for the state that workers, callers and beats share.

A `State` belongs to one event loop, like a broker. Each feature has its own small store; nothing here is
the sole truth for a job that the broker has confirmed.
"""

from taskmq.stores.checkpoints import BegunRun, CheckpointStore
from taskmq.stores.delays import DelayStore, TakenMessage, WaitingMessage
from taskmq.stores.leases import Lease, LeaseStore
from taskmq.stores.occurrences import OccurrenceStore
from taskmq.stores.progress import ProgressRecord, ProgressStore
from taskmq.stores.results import ErrorRecord, ResultRecord, ResultStore
from taskmq.stores.revocations import Revocation, RevocationStore
from taskmq.stores.starts import StartStore
from taskmq.stores.state import DiagnosableState, State, Timekeeper

__all__ = [
    "BegunRun",
    "CheckpointStore",
    "DelayStore",
    "DiagnosableState",
    "ErrorRecord",
    "Lease",
    "LeaseStore",
    "OccurrenceStore",
    "ProgressRecord",
    "ProgressStore",
    "ResultRecord",
    "ResultStore",
    "Revocation",
    "RevocationStore",
    "StartStore",
    "State",
    "TakenMessage",
    "Timekeeper",
    "WaitingMessage",
]
