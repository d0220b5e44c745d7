"""Tables of the file, and their versions.

`job` has one authoritative row per live job. `ready` and `timer` have a narrow row for each job that may be
dispatched or waits for its time; `job_history` has the ended jobs. Times are ms since the epoch, ids are the 16 bytes
of the UUID, and names (tenants, queues, tasks, workers) are numbers of `name`. `definition` has the last version of
each definition, `definition_version` all versions, and `task_registration` the forms that tasks have had.
`dependency` has the pending dependencies of waiting jobs, `upstream_end` the ends that are yet to be processed for
them, `failed_dependency` the dependencies of jobs that ended because of one of them. `setting` has operators' rules
about policies, pools and quotas, `quota_usage` the recent usage of each quota. `taskmq_sql.jobs.tables` describes the
tables of workflows and runs.

The version is the file's `user_version`. Its `application_id` distinguishes job stores from other SQLite files.
"""

import secrets
import sqlite3
from typing import Final

from taskmq.errors import StoreMismatch, StoreRefused, StoreUnavailable
from taskmq.model.jobs.proofs import new_report_key
from taskmq_embedded.file_kind import FileKind
from taskmq_sql.sqlite.file.baseline import BASELINE

_JOURNALS: Final = """
CREATE TABLE job_progress (
    id BLOB NOT NULL PRIMARY KEY, started INTEGER NOT NULL, updated INTEGER NOT NULL, done REAL NOT NULL, total REAL,
    attempt INTEGER NOT NULL, state INTEGER NOT NULL, note TEXT NOT NULL, details BLOB
) WITHOUT ROWID;
CREATE TABLE saved_run (
    id BLOB NOT NULL PRIMARY KEY, fence INTEGER NOT NULL, touched INTEGER NOT NULL, version INTEGER NOT NULL,
    number INTEGER NOT NULL, run TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE saved_value (
    id BLOB NOT NULL, name TEXT NOT NULL, is_reference INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (id, name)
)
"""

_REATTACHMENT: Final = """
CREATE TABLE failed_dependency (
    upstream BLOB NOT NULL, dependent BLOB NOT NULL, condition INTEGER NOT NULL, PRIMARY KEY (upstream, dependent)
) WITHOUT ROWID;
CREATE INDEX failed_dependency_dependent ON failed_dependency (dependent);
ALTER TABLE attempt ADD COLUMN state INTEGER;
ALTER TABLE attempt ADD COLUMN processor_ms INTEGER;
ALTER TABLE attempt ADD COLUMN peak_memory INTEGER;
ALTER TABLE job_history ADD COLUMN processor_ms INTEGER;
ALTER TABLE job_history ADD COLUMN peak_memory INTEGER
"""

_FIRST_KEY: Final = """
INSERT INTO report_key (id, secret, created) VALUES (?, ?, CAST(strftime('%s', 'now') AS INTEGER) * 1000)
"""

_CLAIMS: Final = """
CREATE TABLE claim (
    name TEXT NOT NULL, place INTEGER NOT NULL, job BLOB, token INTEGER, fence INTEGER NOT NULL, ttl INTEGER,
    until INTEGER, content_type TEXT, result BLOB, PRIMARY KEY (name, place)
);
CREATE INDEX gated_gate ON gated (gate, priority DESC, due, id)
"""
_RATES: Final = "CREATE TABLE rate (key TEXT PRIMARY KEY, used REAL NOT NULL) WITHOUT ROWID"
_LINES: Final = """
CREATE TABLE claim_line (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, id BLOB NOT NULL, queue INTEGER NOT NULL
);
CREATE INDEX claim_line_name ON claim_line (name, number);
CREATE INDEX claim_line_id ON claim_line (id)
"""
_RUNS: Final = """
ALTER TABLE job ADD COLUMN run BLOB;
ALTER TABLE job ADD COLUMN step TEXT;
ALTER TABLE job ADD COLUMN child INTEGER;
CREATE TABLE workflow (
    tenant TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE TABLE workflow_version (
    tenant TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, version)
) WITHOUT ROWID;
CREATE INDEX workflow_version_version ON workflow_version (version);
CREATE TABLE workflow_content (version TEXT NOT NULL PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE run (
    id BLOB NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, workflow TEXT NOT NULL, version TEXT NOT NULL, parent BLOB,
    state INTEGER NOT NULL, ended INTEGER, record BLOB NOT NULL, value BLOB
);
CREATE INDEX run_tenant ON run (tenant, id);
CREATE INDEX run_workflow ON run (tenant, workflow, id);
CREATE INDEX run_state ON run (state, id) WHERE state <> 2;
CREATE INDEX run_parent ON run (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX run_version ON run (version);
CREATE INDEX run_ended ON run (ended) WHERE ended IS NOT NULL;
CREATE TABLE run_step (
    run BLOB NOT NULL, name TEXT NOT NULL, child INTEGER NOT NULL, record BLOB NOT NULL, value BLOB,
    PRIMARY KEY (run, name, child)
);
CREATE TABLE run_inbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run BLOB NOT NULL, job BLOB, step TEXT, child INTEGER, state INTEGER,
    content_type TEXT, value BLOB, error TEXT, record BLOB
);
CREATE INDEX run_inbox_run ON run_inbox (run, number);
CREATE TABLE run_signal (
    run BLOB NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (run, name, number)
);
CREATE TABLE run_answer (run BLOB NOT NULL, id TEXT NOT NULL, answer TEXT, PRIMARY KEY (run, id)) WITHOUT ROWID;
CREATE TABLE run_timer (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, generation INTEGER NOT NULL, run BLOB NOT NULL,
    step TEXT NOT NULL
);
CREATE INDEX run_timer_at ON run_timer (at, number)
"""
_RUN_LOGS: Final = """
ALTER TABLE job_log ADD COLUMN run BLOB;
ALTER TABLE job_log ADD COLUMN step TEXT;
ALTER TABLE job_log ADD COLUMN child INTEGER;
CREATE INDEX job_log_run ON job_log (run, number) WHERE run IS NOT NULL
"""
_RUNS_BY_TIME: Final = """
ALTER TABLE run ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
UPDATE run SET created = coalesce(json_extract(CAST(record AS TEXT), '$.created'), 0);
DROP INDEX run_tenant;
DROP INDEX run_workflow;
DROP INDEX run_state;
DROP INDEX run_parent;
CREATE INDEX run_created ON run (created, id);
CREATE INDEX run_tenant ON run (tenant, created, id);
CREATE INDEX run_workflow ON run (tenant, workflow, created, id);
CREATE INDEX run_state ON run (state, created, id) WHERE state <> 2;
CREATE INDEX run_parent ON run (parent, created, id) WHERE parent IS NOT NULL
"""
_RUN_FIGURES: Final = """
ALTER TABLE run ADD COLUMN due INTEGER;
CREATE INDEX run_figures ON run (tenant, workflow, state, coalesce(ended, created));
CREATE INDEX run_due ON run (tenant, workflow, due) WHERE ended IS NULL AND due IS NOT NULL
"""
_RUN_PLACES: Final = """
CREATE TABLE run_place (
    run BLOB NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, workflow TEXT NOT NULL, created INTEGER NOT NULL,
    generation INTEGER NOT NULL, most INTEGER NOT NULL, is_active INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX run_place_order ON run_place (tenant, workflow, created, run);
CREATE INDEX run_place_active ON run_place (tenant, workflow) WHERE is_active;
CREATE INDEX run_place_waiting ON run_place (tenant, workflow, created, run) WHERE NOT is_active
"""
_QUEUE_DEPTHS: Final = """
CREATE TABLE queue_depth (
    minute INTEGER NOT NULL, queue TEXT NOT NULL, stored INTEGER NOT NULL, ready INTEGER NOT NULL,
    in_hand INTEGER NOT NULL, PRIMARY KEY (minute, queue)
) WITHOUT ROWID
"""
_APP_VERSIONS: Final = """
CREATE TABLE worker_version (
    worker TEXT NOT NULL, version TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (worker, version)
) WITHOUT ROWID
"""
_TRIED_VERSIONS: Final = """
CREATE TABLE tried_version (id BLOB NOT NULL, version TEXT NOT NULL, PRIMARY KEY (id, version)) WITHOUT ROWID
"""
_GROUPS: Final = "ALTER TABLE membership ADD COLUMN groups TEXT NOT NULL DEFAULT '[]'"
_SENT_JOBS: Final = """
CREATE TABLE sent_job (
    id BLOB NOT NULL PRIMARY KEY, sent INTEGER NOT NULL, started INTEGER NOT NULL, ended INTEGER, due INTEGER,
    version INTEGER NOT NULL, attempt INTEGER NOT NULL, processor_ms INTEGER, priority INTEGER NOT NULL,
    state INTEGER NOT NULL, name TEXT NOT NULL, key TEXT, tenant TEXT NOT NULL, task TEXT NOT NULL,
    queue TEXT NOT NULL, worker TEXT NOT NULL, error_type TEXT, error_message TEXT, traceback TEXT, earlier TEXT
) WITHOUT ROWID;
CREATE INDEX sent_job_tenant ON sent_job (tenant, id);
CREATE INDEX sent_job_state ON sent_job (state, id) WHERE state <> 5;
CREATE INDEX sent_job_key ON sent_job (key, tenant, id) WHERE key IS NOT NULL
"""
_FAILURE_MARKS: Final = """
CREATE TABLE failure_mark (
    tenant TEXT NOT NULL, task TEXT NOT NULL, error TEXT NOT NULL, state TEXT NOT NULL, at INTEGER NOT NULL,
    until INTEGER, actor TEXT NOT NULL, note TEXT NOT NULL, PRIMARY KEY (tenant, task, error)
) WITHOUT ROWID
"""
_WORKER_STATUSES: Final = """
CREATE TABLE worker_status (
    name TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, heard INTEGER NOT NULL, status TEXT NOT NULL,
    PRIMARY KEY (name, host, pid)
) WITHOUT ROWID
"""
# Deletions of ended jobs find their keys.
_CLAIM_JOBS: Final = "CREATE INDEX claim_job ON claim (job) WHERE ttl IS NOT NULL"
_STORED_JOBS_ALONE: Final = f"{_CLAIMS};{_LINES};{_RATES};{_JOURNALS};{_REATTACHMENT}"


def _add_report_key(connection: sqlite3.Connection) -> None:
    # Created with the tables: every backup has the key, even one from before the first dispatch.
    key = new_report_key(secrets.token_bytes(35))
    connection.execute(_FIRST_KEY, (key.id, key.secret))


JOB_STORE: Final = FileKind(
    what="job store",
    # `tmqj`
    application_id=0x746D716A,
    first_version=103,
    baseline=BASELINE,
    # One step per version after the first; released steps never change.
    steps=(
        "ALTER TABLE job ADD COLUMN crashes INTEGER",
        _STORED_JOBS_ALONE,
        _RUNS,
        _RUN_LOGS,
        _RUNS_BY_TIME,
        _RUN_FIGURES,
        _RUN_PLACES,
        _QUEUE_DEPTHS,
        _APP_VERSIONS,
        _TRIED_VERSIONS,
        _GROUPS,
        _SENT_JOBS,
        _FAILURE_MARKS,
        _WORKER_STATUSES,
        _CLAIM_JOBS,
    ),
    fill=_add_report_key,
    page_pragmas=("page_size = 8192", "auto_vacuum = INCREMENTAL"),
    unavailable=StoreUnavailable,
    refused=StoreRefused,
    mismatch=StoreMismatch,
)
SCHEMA_VERSION: Final = JOB_STORE.version
"""The version that this taskmq works with."""
