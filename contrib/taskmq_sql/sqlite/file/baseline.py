"""Tables of the first version of the file, which never change; `schema` has the later versions."""

from typing import Final

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

BASELINE: Final = (_JOBS, _IDENTITY, _SCHEDULES, _SHARES, _HISTORY)
"""Statements that create the tables."""
