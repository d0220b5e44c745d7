"""Describe the tables of the job store, which `taskmq_sql.migrations` makes, and name their version.

    job            live jobs: the one row that decides. No index but its key, so that every change is made in place
    job_body       bodies beyond `LONGEST_BODY`
    job_detail     what few jobs have, as JSON
    job_key        the ids that submitters chose
    quota_usage    what was submitted of late by tenants and users that have quotas
    dependency     what waiting jobs wait for, as far as it has not come; a job's `has_dependents` says that others do
    upstream_end   ends of such jobs, until those that waited have heard of them
    unique_key     the keys of which one job is to be the only one, and who has them
    ready          one narrow row per queued job
    gated          one row per queued job that waits behind a gate, and has none in `ready`
    timer          one narrow row per scheduled or retrying job
    dispatch_batch outbox and list of what is under way
    job_history    ended jobs, by day of their end
    attempt        attempts that did not end their job, by day
    event          what is no ordinary step, by day
    tenant, queue, task, worker   names, and the integers that stand for them
    schedule       definitions of schedules, and records of what has become of their occurrences
    schedule_due   one narrow row per schedule that has to be looked at
    occurrence     what has come of which nominal instant
    bulk           what is done to many jobs, and how far it is
    lease          who holds a partition or a duty; its `epoch` only grows
    definition     templates of jobs by tenant and name: which version is the last, and whether it was deleted
    definition_version  all their versions
    task_registration   the forms that tasks have had, as workers and schedulers have reported them
    node           machines, and what they say of themselves
    allocation     what of a node is taken, or was; one of a job counts while the job has the token that it names
    setting        the number of partitions, and which older code may use these tables
    report_key     by which the store knows the tokens that it has given out

`taskmq_sql.identity` describes the tables of users and the audit, and `taskmq_sql.history` those of logs, figures and
alerts.

Instants are ms since the epoch: as long as a timestamp, exact, and the same on every database. Ids of jobs are UUIDs
of version 7, so the order of ids is that of submissions, and the time of submission is in the id. A SQLite file has
tables of its own, `taskmq_sql.sqlite.file.schema`.
"""

from typing import Final

__all__ = ["BASELINE", "BY_DAY", "HEAD", "LONGEST_BODY", "SCHEMA", "VERSION_TABLE"]

BASELINE: Final = "0101"
"""The first version: lower numbers are those of development versions, which no code reads."""
HEAD: Final = "0101"
"""The version that this code works with; `store check` compares it with that of the tables."""
VERSION_TABLE: Final = "schema_version"
SCHEMA: Final = "taskmq"
LONGEST_BODY: Final = 1536
"""Bytes of a body that is kept in the job's row."""
BY_DAY: Final = {"job_history": "ended", "attempt": "at", "event": "at"}
"""Tables that are divided by day, and the column that says which."""
