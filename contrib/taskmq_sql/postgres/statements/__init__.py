"""Hot statements, prepared once per connection and planned by primary keys only.

A statement names its rows by key, as an array (`id = any(...)`) or as one probe each (`lateral`), and joins only the
results. So its plan is the same for an empty table and for millions of rows, whatever the statistics say, and can be
cached. With a join to the table itself, a plan made on an empty table cost ten times as much.

Every statement locks rows of `ready`, `gated` and `timer` before those of `job`, so no two of them can deadlock.
"""

from typing import Final

JOB_COLUMNS: Final = (
    "id, due, scheduled, token, expires, dispatched, started, tenant, queue, task, worker, version, attempt, "
    "priority, state, key, cancel_requested, error_type, error_message, traceback, first_started, body"
)
"""Columns of a job."""

SHARD_OF_JOB: Final = "(get_byte(uuid_send(id), 15) & 63)::smallint"
FENCE: Final = "fence as materialized (select from taskmq.lease where key = {key} and epoch = {epoch} \
and holder is not null for share)"
"""Condition that the lease of a partition is held."""

BEFORE_REPORTS: Final = """b as materialized (
  select id, started, worker from taskmq.job where id = any($1::uuid[]) and state = 3)"""
"""The jobs of reports, as they were before."""
