"""Contracts of the job store: what apps and operators do with jobs, and what schedulers do.

One row decides about each job. Every method that changes one compares its state and version, or its token, and sets
in the same transaction: so any number of processes may use a store at once, and a call that comes late, twice or from
a scheduler that was replaced changes nothing.
"""

from taskmq.contracts.jobs.dispatch import (
    SLOTS,
    AppliedReport,
    DispatchBatch,
    DispatchedJob,
    DispatchStore,
    DueJob,
    Lane,
    Pick,
    slot_key,
)
from taskmq.contracts.jobs.records import (
    AttemptRecord,
    HistoryEntry,
    JobDetail,
    JobPage,
    JobRecord,
    JobUpdate,
    NewJob,
    Submitted,
    replacement,
)
from taskmq.contracts.jobs.store import JobStore, Prunable, Upgradable

__all__ = [
    "SLOTS",
    "AppliedReport",
    "AttemptRecord",
    "DispatchBatch",
    "DispatchStore",
    "DispatchedJob",
    "DueJob",
    "HistoryEntry",
    "JobDetail",
    "JobPage",
    "JobRecord",
    "JobStore",
    "JobUpdate",
    "Lane",
    "NewJob",
    "Pick",
    "Prunable",
    "Submitted",
    "Upgradable",
    "replacement",
    "slot_key",
]
