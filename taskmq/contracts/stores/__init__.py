"""Contracts for the state that workers, callers and beats share.

A `State` belongs to one event loop, like a broker. Each feature has its own small store. No store here is the only
record of a job that the broker has confirmed.
"""

from taskmq.contracts.stores.blobs import BlobStore
from taskmq.contracts.stores.checkpoints import BegunRun, CheckpointStore
from taskmq.contracts.stores.claims import Claimed, ClaimStore, Done, Granted, Held
from taskmq.contracts.stores.crash_counts import StartStore
from taskmq.contracts.stores.delays import DelayStore, TakenMessage, WaitingMessage
from taskmq.contracts.stores.leases import Coordinator, Lease, LeaseStore
from taskmq.contracts.stores.limits import Demand, LimitEntry, LimitStore, LimitUsage, PlaceDemand
from taskmq.contracts.stores.outbox import Outbox
from taskmq.contracts.stores.progress import ProgressRecord, ProgressStore
from taskmq.contracts.stores.results import ResultRecord, ResultStore, remembered_for
from taskmq.contracts.stores.revocations import Revocation, RevocationStore
from taskmq.contracts.stores.schedules import ChangedSchedule, KeptRecord, RecordChange, ScheduleStore
from taskmq.contracts.stores.state import (
    DiagnosableState,
    State,
    Stores,
    Timekeeper,
    coordinator_required,
    require_store,
    state_required,
)
from taskmq.model.envelope import BlobReference
from taskmq.model.keys import group_of, member_key, members_prefix
from taskmq.model.limits import RateDemand
from taskmq.model.outcome import ErrorRecord

__all__ = [
    "BegunRun",
    "BlobReference",
    "BlobStore",
    "ChangedSchedule",
    "CheckpointStore",
    "ClaimStore",
    "Claimed",
    "Coordinator",
    "DelayStore",
    "Demand",
    "DiagnosableState",
    "Done",
    "ErrorRecord",
    "Granted",
    "Held",
    "KeptRecord",
    "Lease",
    "LeaseStore",
    "LimitEntry",
    "LimitStore",
    "LimitUsage",
    "Outbox",
    "PlaceDemand",
    "ProgressRecord",
    "ProgressStore",
    "RateDemand",
    "RecordChange",
    "ResultRecord",
    "ResultStore",
    "Revocation",
    "RevocationStore",
    "ScheduleStore",
    "StartStore",
    "State",
    "Stores",
    "TakenMessage",
    "Timekeeper",
    "WaitingMessage",
    "coordinator_required",
    "group_of",
    "member_key",
    "members_prefix",
    "remembered_for",
    "require_store",
    "state_required",
]
