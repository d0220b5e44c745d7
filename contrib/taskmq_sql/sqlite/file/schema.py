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

_LIVE: Final = """
    id BLOB NOT NULL PRIMARY KEY,
    state INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    token INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    queue INTEGER NOT NULL,
    task INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    due INTEGER NOT NULL,
    expires INTEGER,
    dispatched INTEGER,
    started INTEGER,
    worker INTEGER,
    cancel_requested TEXT,
    error_type TEXT,
    error TEXT,
    traceback TEXT,
    key TEXT,
    detail TEXT"""

_JOBS: Final = f"""
CREATE TABLE name (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE job ({_LIVE},
    body BLOB NOT NULL,
    has_dependents INTEGER,
    scheduled INTEGER,
    first_started INTEGER,
    outages INTEGER
);
CREATE TABLE job_history ({_LIVE},
    finished INTEGER NOT NULL,
    content_type TEXT,
    body BLOB NOT NULL,
    result BLOB,
    scheduled INTEGER,
    retried_as BLOB,
    first_started INTEGER
);
CREATE INDEX job_history_tenant ON job_history (tenant, id);
CREATE INDEX job_history_task ON job_history (tenant, task, id);
-- Archives read a day at a time.
CREATE INDEX job_history_finished ON job_history (finished, id);
CREATE INDEX job_history_state ON job_history (state, id) WHERE state <> 5;
CREATE INDEX job_history_tenant_state ON job_history (tenant, state, id) WHERE state <> 5;
CREATE TABLE job_key (
    key TEXT NOT NULL, tenant INTEGER NOT NULL, id BLOB NOT NULL, fingerprint BLOB NOT NULL, PRIMARY KEY (key, tenant)
) WITHOUT ROWID;
CREATE TABLE label (
    name TEXT NOT NULL, value TEXT NOT NULL, id BLOB NOT NULL, PRIMARY KEY (name, value, id)
) WITHOUT ROWID;
CREATE INDEX label_job ON label (id);
CREATE TABLE ready (
    queue INTEGER NOT NULL, priority INTEGER NOT NULL, tenant INTEGER NOT NULL, due INTEGER NOT NULL,
    id BLOB NOT NULL,
    PRIMARY KEY (queue, priority, tenant, due, id)
) WITHOUT ROWID;
CREATE TABLE timer (
    shard INTEGER NOT NULL, due INTEGER NOT NULL, id BLOB NOT NULL, PRIMARY KEY (shard, due, id)
) WITHOUT ROWID;
CREATE TABLE dispatch_batch (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    partition INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    confirmed INTEGER NOT NULL DEFAULT 0,
    jobs BLOB NOT NULL
);
CREATE INDEX dispatch_batch_partition ON dispatch_batch (partition, id);
CREATE TABLE attempt (
    id BLOB NOT NULL, attempt INTEGER NOT NULL, started INTEGER, ended INTEGER NOT NULL, worker INTEGER,
    error_type TEXT, error TEXT, traceback TEXT
);
CREATE INDEX attempt_job ON attempt (id);
CREATE TABLE event (
    id BLOB NOT NULL, version INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL, state INTEGER NOT NULL,
    by TEXT NOT NULL, note TEXT NOT NULL, started INTEGER
);
CREATE INDEX event_job ON event (id);
CREATE INDEX event_at ON event (at);
CREATE TABLE lease (
    key TEXT NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT, expires INTEGER NOT NULL, note TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE unique_key (name TEXT NOT NULL PRIMARY KEY, id BLOB NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE gated (
    id BLOB NOT NULL PRIMARY KEY, due INTEGER NOT NULL, queue INTEGER NOT NULL, tenant INTEGER NOT NULL,
    partition INTEGER NOT NULL, priority INTEGER NOT NULL, gate TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX gated_order ON gated (partition, gate, priority DESC, due, id);
CREATE INDEX gated_tenant ON gated (tenant);
CREATE TABLE dependency (
    upstream BLOB NOT NULL, dependent BLOB NOT NULL, condition INTEGER NOT NULL, PRIMARY KEY (upstream, dependent)
) WITHOUT ROWID;
CREATE INDEX dependency_dependent ON dependency (dependent, upstream);
CREATE TABLE upstream_end (number INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL, state INTEGER NOT NULL);
CREATE TABLE bulk (
    id TEXT NOT NULL PRIMARY KEY, tenant TEXT, due INTEGER NOT NULL, ended INTEGER, version INTEGER NOT NULL,
    content TEXT NOT NULL, key TEXT
) WITHOUT ROWID;
CREATE INDEX bulk_open ON bulk (due, id) WHERE ended IS NULL;
CREATE INDEX bulk_tenant ON bulk (tenant, id);
CREATE UNIQUE INDEX bulk_key ON bulk (key);
CREATE TABLE report_key (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, secret BLOB NOT NULL, created INTEGER NOT NULL
)
"""

_IDENTITY: Final = """
CREATE TABLE tenant (
    name TEXT NOT NULL PRIMARY KEY, description TEXT NOT NULL DEFAULT '', created INTEGER, disabled INTEGER
) WITHOUT ROWID;
CREATE TABLE user (
    id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, name_key TEXT NOT NULL UNIQUE, email TEXT NOT NULL,
    password TEXT NOT NULL, created INTEGER NOT NULL, version INTEGER NOT NULL, disabled INTEGER,
    password_changed INTEGER, last_login INTEGER
);
CREATE TABLE membership (
    user_id TEXT NOT NULL, tenant TEXT NOT NULL, role TEXT NOT NULL, tasks TEXT NOT NULL,
    PRIMARY KEY (user_id, tenant)
) WITHOUT ROWID;
CREATE INDEX membership_tenant ON membership (tenant);
CREATE TABLE session (
    digest BLOB NOT NULL PRIMARY KEY, id TEXT NOT NULL UNIQUE, user_id TEXT NOT NULL, created INTEGER NOT NULL,
    last_used INTEGER NOT NULL, idle_ms INTEGER NOT NULL, ends INTEGER NOT NULL, address TEXT NOT NULL,
    agent TEXT NOT NULL
);
CREATE INDEX session_user ON session (user_id);
CREATE TABLE token (
    digest BLOB NOT NULL PRIMARY KEY, id TEXT NOT NULL UNIQUE, user_id TEXT NOT NULL, name TEXT NOT NULL,
    scopes TEXT, tenants TEXT, tasks TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER, last_used INTEGER,
    UNIQUE (user_id, name)
);
CREATE TABLE login_failure (
    key TEXT NOT NULL PRIMARY KEY, failures INTEGER NOT NULL, at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, action TEXT NOT NULL, kind TEXT NOT NULL,
    subject TEXT NOT NULL, tenant TEXT NOT NULL, user_id TEXT NOT NULL, via TEXT NOT NULL,
    credential TEXT NOT NULL, request_id TEXT NOT NULL, who BLOB, who_salt BLOB, who_commitment BLOB NOT NULL,
    what BLOB, what_salt BLOB, what_commitment BLOB NOT NULL
);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_tenant ON audit (tenant, number);
CREATE INDEX audit_user ON audit (user_id, number);
CREATE INDEX audit_subject ON audit (kind, subject, number);
CREATE TABLE audit_seal (position INTEGER PRIMARY KEY, number INTEGER NOT NULL UNIQUE, hash BLOB NOT NULL)
"""

_SCHEDULES: Final = """
CREATE TABLE schedule (
    id INTEGER PRIMARY KEY AUTOINCREMENT, next_at INTEGER, version INTEGER NOT NULL, shard INTEGER NOT NULL,
    is_code INTEGER NOT NULL, app TEXT NOT NULL, name TEXT NOT NULL, definition BLOB NOT NULL, record BLOB NOT NULL,
    UNIQUE (app, name)
);
CREATE INDEX schedule_code ON schedule (app, name) WHERE is_code;
CREATE TABLE schedule_due (
    shard INTEGER NOT NULL, next_at INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (shard, next_at, id)
) WITHOUT ROWID;
CREATE TABLE occurrence (
    schedule INTEGER NOT NULL, instant INTEGER NOT NULL, run TEXT NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,
    job BLOB, PRIMARY KEY (schedule, instant, run)
) WITHOUT ROWID;
CREATE INDEX occurrence_at ON occurrence (at);
CREATE TABLE definition (
    tenant INTEGER NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, is_deleted INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE TABLE definition_version (
    tenant INTEGER NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, at INTEGER NOT NULL, actor TEXT NOT NULL,
    content TEXT NOT NULL, PRIMARY KEY (tenant, name, version)
);
CREATE TABLE task_registration (
    task TEXT NOT NULL, origin TEXT NOT NULL, digest BLOB NOT NULL, content TEXT NOT NULL, worker TEXT NOT NULL,
    first_told INTEGER NOT NULL, last_told INTEGER NOT NULL, PRIMARY KEY (task, origin, digest)
)
"""

_SHARES: Final = """
CREATE TABLE setting (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE quota_usage (
    name TEXT NOT NULL PRIMARY KEY, day INTEGER NOT NULL, jobs INTEGER NOT NULL, bytes INTEGER NOT NULL,
    used_until REAL NOT NULL
);
CREATE TABLE node (
    name TEXT NOT NULL PRIMARY KEY, id TEXT NOT NULL, told TEXT NOT NULL, lost_after INTEGER,
    heartbeat INTEGER NOT NULL, registered INTEGER NOT NULL, epoch INTEGER NOT NULL, is_busy INTEGER NOT NULL,
    is_draining INTEGER NOT NULL, is_lost INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE allocation (
    id TEXT NOT NULL PRIMARY KEY, node TEXT NOT NULL, epoch INTEGER NOT NULL, job BLOB, token INTEGER,
    label TEXT NOT NULL, tenant TEXT NOT NULL, task TEXT NOT NULL, amounts TEXT NOT NULL, since INTEGER NOT NULL,
    until INTEGER, ended INTEGER
) WITHOUT ROWID;
CREATE INDEX allocation_open ON allocation (node) WHERE ended IS NULL;
CREATE INDEX allocation_job ON allocation (job) WHERE ended IS NULL;
CREATE INDEX allocation_label ON allocation (label, id);
CREATE INDEX allocation_ended ON allocation (ended)
"""

_HISTORY: Final = """
CREATE TABLE job_log (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, token INTEGER NOT NULL, line INTEGER NOT NULL,
    attempt INTEGER NOT NULL, level INTEGER NOT NULL, job TEXT NOT NULL, tenant TEXT NOT NULL, task TEXT NOT NULL,
    queue TEXT NOT NULL, worker TEXT NOT NULL, logger TEXT NOT NULL, message TEXT NOT NULL, UNIQUE (job, token, line)
);
CREATE INDEX job_log_level ON job_log (level, at);
CREATE INDEX job_log_tenant ON job_log (tenant, number);
CREATE TABLE rollup (
    minute INTEGER NOT NULL, task TEXT NOT NULL, queue TEXT NOT NULL, tenant TEXT NOT NULL, figures TEXT NOT NULL,
    PRIMARY KEY (minute, task, queue, tenant)
) WITHOUT ROWID;
CREATE TABLE rollup_sum (
    minute INTEGER NOT NULL, kind INTEGER NOT NULL, task TEXT NOT NULL, queue TEXT NOT NULL, tenant TEXT NOT NULL,
    figures TEXT NOT NULL, PRIMARY KEY (kind, tenant, minute, task, queue)
) WITHOUT ROWID;
CREATE INDEX rollup_sum_minute ON rollup_sum (minute);
CREATE TABLE run_failure (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, seconds REAL, attempt INTEGER NOT NULL,
    job TEXT NOT NULL, event TEXT NOT NULL, task TEXT NOT NULL, queue TEXT NOT NULL, tenant TEXT NOT NULL,
    worker TEXT NOT NULL, error TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL DEFAULT '',
    traceback TEXT NOT NULL DEFAULT ''
);
CREATE INDEX run_failure_at ON run_failure (at);
CREATE INDEX run_failure_job ON run_failure (job);
CREATE INDEX run_failure_tenant ON run_failure (tenant, number);
CREATE TABLE alert_rule (
    tenant TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE TABLE alert (
    tenant TEXT NOT NULL, rule TEXT NOT NULL, subject TEXT NOT NULL, version INTEGER NOT NULL,
    changed INTEGER NOT NULL, content TEXT NOT NULL, PRIMARY KEY (tenant, rule, subject)
) WITHOUT ROWID;
CREATE TABLE alert_silence (
    id TEXT NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, ends INTEGER NOT NULL, content TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE alert_notice (
    id TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL, next_at INTEGER, tries INTEGER NOT NULL, content TEXT NOT NULL,
    tenant TEXT NOT NULL DEFAULT '', host TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX alert_notice_tenant ON alert_notice (tenant, at);
CREATE INDEX alert_notice_due ON alert_notice (tenant, next_at, id) WHERE next_at IS NOT NULL
"""

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
_BASELINE: Final = (_JOBS, _IDENTITY, _SCHEDULES, _SHARES, _HISTORY)


def _add_report_key(connection: sqlite3.Connection) -> None:
    # Created with the tables: every backup has the key, even one from before the first dispatch.
    key = new_report_key(secrets.token_bytes(35))
    connection.execute(_FIRST_KEY, (key.id, key.secret))


JOB_STORE: Final = FileKind(
    what="job store",
    # `tmqj`
    application_id=0x746D716A,
    first_version=103,
    baseline=_BASELINE,
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
