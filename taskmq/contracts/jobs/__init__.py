"""Contracts of the job store: what apps and operators do with jobs, and what schedulers do.

One row decides about each job. Every method that changes one compares its state and version, or its token, and sets
in the same transaction: so any number of processes may use a store at once, and a call that comes late, twice or from
a scheduler that was replaced changes nothing.
"""

from taskmq.contracts.jobs.bulks import BulkStore
from taskmq.contracts.jobs.catalogue import (
    Catalogued,
    DefinitionPage,
    DefinitionStore,
    PutDefinition,
    TaskStore,
)
from taskmq.contracts.jobs.dispatch import (
    PARTITIONS,
    AppliedReport,
    DispatchBatch,
    DispatchedJob,
    DispatchStore,
    DueJob,
    Lane,
    LaneHead,
    Pick,
    ReadyJob,
    Released,
    Withdrawn,
    forgotten_end,
    partition_of,
)
from taskmq.contracts.jobs.nodes import NodeStore, PlacedJob, UnplacedJob
from taskmq.contracts.jobs.records import (
    AttemptRecord,
    DependencyRefusal,
    HistoryEntry,
    JobAction,
    JobDetail,
    JobPage,
    JobRecord,
    JobUpdate,
    NewJob,
    Submitted,
    counted,
    over_quota,
    renamed,
    replacement,
)
from taskmq.contracts.jobs.retention import KeptJob, Prunable, Retaining
from taskmq.contracts.jobs.schedules import (
    SCHEDULE_SHARDS,
    DueSchedule,
    FiredOccurrence,
    JobScheduleStore,
    OccurrenceJob,
    ScheduleChange,
    ScheduleFiring,
    StoredSchedule,
    schedule_shard,
)
from taskmq.contracts.jobs.signals import READY_TOPIC, decode_lanes, encode_lanes, ready_topic
from taskmq.contracts.jobs.store import JobStore, Upgradable
from taskmq.model.keys import partition_key

__all__ = [
    "PARTITIONS",
    "READY_TOPIC",
    "SCHEDULE_SHARDS",
    "AppliedReport",
    "AttemptRecord",
    "BulkStore",
    "Catalogued",
    "DefinitionPage",
    "DefinitionStore",
    "DependencyRefusal",
    "DispatchBatch",
    "DispatchStore",
    "DispatchedJob",
    "DueJob",
    "DueSchedule",
    "FiredOccurrence",
    "HistoryEntry",
    "JobAction",
    "JobDetail",
    "JobPage",
    "JobRecord",
    "JobScheduleStore",
    "JobStore",
    "JobUpdate",
    "KeptJob",
    "Lane",
    "LaneHead",
    "NewJob",
    "NodeStore",
    "OccurrenceJob",
    "Pick",
    "PlacedJob",
    "Prunable",
    "PutDefinition",
    "ReadyJob",
    "Released",
    "Retaining",
    "ScheduleChange",
    "ScheduleFiring",
    "StoredSchedule",
    "Submitted",
    "TaskStore",
    "UnplacedJob",
    "Upgradable",
    "Withdrawn",
    "counted",
    "decode_lanes",
    "encode_lanes",
    "forgotten_end",
    "over_quota",
    "partition_key",
    "partition_of",
    "ready_topic",
    "renamed",
    "replacement",
    "schedule_shard",
]
