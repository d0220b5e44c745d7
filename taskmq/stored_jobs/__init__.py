"""Jobs of the store, as an app submits, finds, changes and awaits them.

    app.jobs.submit(task, ...) -> the call, checked against the task's signature -> NewJob
        -> committed together with concurrent submissions of other callers -> Job
    app.jobs.submit(name, ...) -> the app's task, a registered one or a definition (named_calls) -> the same
    app.jobs.change(id, ...)   -> read -> decide (model/jobs/changes) -> compare and set

`job_queries` reads, `job_changes` changes, `jobs` submits. A submission ends when the store has committed it. From
then on a scheduler decides when to dispatch the job. This package publishes nothing but a hint that a job is ready.
"""

from taskmq.stored_jobs.definitions import Definitions
from taskmq.stored_jobs.jobs import Jobs
from taskmq.stored_jobs.pools import Pools, QuotaState

__all__ = ["Definitions", "Jobs", "Pools", "QuotaState"]
