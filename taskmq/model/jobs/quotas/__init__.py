"""Quotas: how much a tenant, or one of its users, may submit to the store and have running. Pure.

    a submitted job -> the quota of its tenant, and that of its owner ->
        room in both: it is created; else: it is refused with the limit, and when there is room again
    a step of a run -> the same two quotas ->
        room in both: its job is created; else: it waits, and asks again
    a job at its turn -> the same for running jobs ->
        room in both: it is dispatched; else: it waits, and others pass it

The usage of a quota holds this day's count and bytes (days of UTC), and the instant until which a rate is used up
(the generic cell rate algorithm: one number, whatever the rate). The store counts the waiting and the running jobs of
a tenant on demand.

limits    quotas, and what is recorded of their use
books     books that count jobs and refuse those beyond a limit
"""

from taskmq.model.jobs.quotas.books import (
    CountedJob,
    QuotaBook,
    RunBook,
    free_from,
    looked_at,
    queued_limits,
    usage_names,
)
from taskmq.model.jobs.quotas.limits import (
    EVERYBODY,
    KEPT_DAYS,
    HeldBack,
    OnLimit,
    Quota,
    QuotaExcess,
    Quotas,
    QuotaUsage,
    read_quotas,
    run_name,
    step_name,
    usage_name,
    usage_prefix,
)

__all__ = [
    "EVERYBODY",
    "KEPT_DAYS",
    "CountedJob",
    "HeldBack",
    "OnLimit",
    "Quota",
    "QuotaBook",
    "QuotaExcess",
    "QuotaUsage",
    "Quotas",
    "RunBook",
    "free_from",
    "looked_at",
    "queued_limits",
    "read_quotas",
    "run_name",
    "step_name",
    "usage_name",
    "usage_names",
    "usage_prefix",
]
