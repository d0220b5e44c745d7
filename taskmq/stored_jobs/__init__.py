"""Jobs of the store, as an app sees them: submitted, looked for, changed, and waited for.

    app.jobs.submit(task, ...) -> the call, checked by the task's signature -> NewJob
        -> committed together with what other callers submit in the same moment -> Job
    app.jobs.submit(name, ...) -> the app's task, a registered one or a definition (named_calls) -> the same
    app.jobs.change(id, ...)   -> read -> decide (model/jobs/changes) -> compare and set

`job_queries` reads, `job_changes` changes, `jobs` submits. A submission ends when the store has it. From then on a
scheduler decides, at the job's time, when it is handed to the broker; nothing here publishes anything but a hint that
there is work.
"""

from taskmq.stored_jobs.definitions import Definitions
from taskmq.stored_jobs.jobs import Jobs
from taskmq.stored_jobs.pools import Pools, QuotaState

__all__ = ["Definitions", "Jobs", "Pools", "QuotaState"]
