"""The job store's tables, which `taskmq_sql.migrations` creates, and their version.

    job            live jobs: the authoritative row. It has no index but its key, so updates stay in place (HOT)
    job_body       bodies longer than `LONGEST_BODY`
    job_detail     rare attributes of jobs, as JSON
    job_key        idempotency keys that submitters chose
    quota_usage    recent usage of tenants and users that have quotas
    dependency     pending upstream jobs of waiting jobs; `has_dependents` of a job marks the other side
    failed_dependency   dependencies of jobs that ended because of one of them
    upstream_end   ends of upstream jobs that their dependents have yet to process
    unique_key     unique keys, and the job that owns each
    claim          places of concurrency limits and idempotency keys, and the dispatch that holds each
    claim_line     one narrow row per live job with an order key: its place in the key's line
    rate           one row per rate limit and key: until when it is used up
    ready          one narrow row per queued job
    gated          one row per queued job that waits behind a gate; such a job has no row in `ready`
    timer          one narrow row per scheduled or retrying job
    job_progress   the last progress that each job's run reported, updated in place
    saved_run      the run that may save values of a job
    saved_value    saved steps and checkpoints of jobs
    tried_version  versions of the app that held a job, or for which it was released
    dispatch_batch outbox, and jobs under way by batch
    job_history    ended jobs, partitioned by the day of their end
    attempt        attempts that did not end their job, by day
    event          unusual events of jobs, by day
    tenant, queue, task, worker   names and their numbers
    schedule       definitions of schedules, and records of their occurrences
    schedule_due   one narrow row per schedule with a next due time
    occurrence     the outcome of each nominal instant
    workflow       workflows by tenant and name: the current version
    workflow_version    all versions of workflows; workflow_content has what each says, also those of runs without one
    run            runs of workflows, listed by `created`, late after `due`; `record` is a `RunRecord` in JSON
    run_step       steps of runs and their children, with their values
    run_inbox      events of runs that are yet to be applied, by number
    run_signal     signals that wait for a step
    run_answer     ids of senders, and the effect of their events
    run_timer      one row per timer of a step
    run_place      one row per open run of a workflow with `max_active_runs`: it is active or waits
    bulk           bulk operations and their progress
    lease          holders of partitions and duties; `epoch` only grows
    definition     job templates by tenant and name: the last version, and whether it was deleted
    definition_version  all versions of the templates
    task_registration   all forms of each task, as workers and schedulers reported them
    node           host nodes and the facts they report
    worker_status  the last status of each worker process, updated in place
    allocation     present and past allocations on nodes; one of a job counts while the job has the token it names
    setting        the number of partitions, and the older versions of the code that may use these tables
    report_key     keys that authenticate the tokens the store issued

`taskmq_sql.identity` describes the tables of users and the audit, `taskmq_sql.history` those of logs, metrics and
alerts.

Instants are ms since the epoch: as compact as a timestamp, exact, and the same on every database. Job ids are UUIDs
of version 7, so they sort by the time of submission, which they contain. SQLite files have tables of their own:
`taskmq_sql.sqlite.file.schema`.
"""

from typing import Final

BASELINE: Final = "0101"
"""The first version. Lower numbers belong to development versions, which no code reads."""
HEAD: Final = "0123"
"""The version that this code works with; `store check` compares it with that of the tables."""
VERSION_TABLE: Final = "schema_version"
SCHEMA: Final = "taskmq"
LONGEST_BODY: Final = 1536
"""Bytes of the longest body that stays in the job's row."""
BY_DAY: Final = {"job_history": "ended", "attempt": "at", "event": "at"}
"""Tables partitioned by day, and the column that decides the day."""
