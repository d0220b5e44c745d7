"""Tables of `taskmq.db`: the first version, and steps to later ones.

A message is written once, into `messages`; a narrow row in another table has its state, so leasing and requeuing a
large message moves few bytes. Its id is its position in the queue:

    queues     the physical queues
    messages   ready and leased messages
    ready      (queue, id): waits for a consumer, in this order
    leases     id: leased by `owner`
    delayed    waits for its time, then moves to `messages` and `ready` under a new id
    owners     owners of leases; the lock on their file shows whether they are alive, see `owners`
    consumers  queues that each owner consumes
    capacities the capacity of queues with limits
    turns      the taker that owns each shard of an ordered queue, see `turns`
    counters   the last id issued; ids are never reused
    results, starts   results of the state, and runs begun; `seq` grows with every put of a result; an expired result
               has the state 'expired' and an empty record until `remembered`
    waiting    messages that wait in the state; every put and swap sets a new `version`; until `taken`, a relay owns
               the message
    progress   the last progress of jobs
    checkpoints, saved   the last run of each job, and values that its runs saved
    broadcasts recent announcements, see `listener`
    revocations cancelled jobs, in the order of `place`
    schedule_records, schedules   records of schedules, and schedules created at run time
    keys       leases of the lease store
    limits, limit_lines, limit_holds   shared limits: their state, waiting jobs with their promised instants, and
               holders of permits with their expiry
    claims     keys whose work is done once, with holders and outcomes

Released steps never change: a new version is a new step.
"""

from typing import Final

from taskmq_embedded.file_kind import FileKind
from taskmq_embedded.work import FileFailure

_BASELINE: Final = """
    CREATE TABLE queues (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
    INSERT INTO queues (name) VALUES ('taskmq.unroutable');
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        body BLOB NOT NULL,
        content_type TEXT NOT NULL,
        job_id TEXT NOT NULL,
        task TEXT NOT NULL,
        root TEXT,
        enqueued INTEGER,
        headers TEXT
    );
    CREATE TABLE ready (
        queue INTEGER NOT NULL,
        id INTEGER NOT NULL,
        deliveries INTEGER NOT NULL,
        PRIMARY KEY (queue, id)
    ) WITHOUT ROWID;
    CREATE TABLE leases (
        id INTEGER PRIMARY KEY,
        queue INTEGER NOT NULL,
        owner TEXT NOT NULL,
        deliveries INTEGER NOT NULL
    );
    CREATE TABLE delayed (
        id INTEGER PRIMARY KEY,
        body BLOB NOT NULL,
        content_type TEXT NOT NULL,
        job_id TEXT NOT NULL,
        task TEXT NOT NULL,
        root TEXT,
        enqueued INTEGER,
        headers TEXT,
        queue TEXT NOT NULL,
        due INTEGER NOT NULL
    );
    CREATE INDEX delayed_due ON delayed (due, id);
    CREATE TABLE owners (name TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE consumers (owner TEXT NOT NULL, number INTEGER NOT NULL, queue INTEGER NOT NULL);
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE results (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL,
        expires INTEGER NOT NULL,
        record BLOB NOT NULL,
        remembered INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX results_expires ON results (expires);
    CREATE TABLE starts (job_id TEXT PRIMARY KEY, begun INTEGER NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX starts_expires ON starts (expires);
    CREATE TABLE waiting (
        version INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL UNIQUE,
        task TEXT NOT NULL,
        queue TEXT NOT NULL,
        due INTEGER NOT NULL,
        taken INTEGER NOT NULL DEFAULT 0,
        message BLOB NOT NULL
    );
    CREATE INDEX waiting_due ON waiting (due, version);
    CREATE TABLE capacities (queue INTEGER PRIMARY KEY, length INTEGER, bytes INTEGER);
    CREATE TABLE turns (
        queue INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        taker INTEGER NOT NULL,
        is_leaving INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE broadcasts (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        expires INTEGER NOT NULL,
        topic TEXT NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE keys (
        key TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        token INTEGER NOT NULL,
        until INTEGER NOT NULL,
        note TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX keys_until ON keys (until);
    CREATE TABLE progress (
        job_id TEXT PRIMARY KEY,
        attempt INTEGER NOT NULL,
        started INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        record BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX progress_expires ON progress (expires);
    CREATE TABLE checkpoints (
        job_id TEXT PRIMARY KEY,
        token INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        expires INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX checkpoints_expires ON checkpoints (expires);
    CREATE TABLE saved (
        job_id TEXT NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (job_id, name)
    ) WITHOUT ROWID;
    CREATE TABLE revocations (
        job_id TEXT PRIMARY KEY,
        reason TEXT NOT NULL,
        place INTEGER NOT NULL UNIQUE,
        until INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX revocations_until ON revocations (until);
    CREATE TABLE schedule_records (
        name TEXT PRIMARY KEY,
        version TEXT NOT NULL,
        value BLOB NOT NULL,
        expires INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX schedule_records_expires ON schedule_records (expires);
    CREATE TABLE schedules (
        scope TEXT NOT NULL,
        name TEXT NOT NULL,
        place INTEGER NOT NULL UNIQUE,
        at INTEGER NOT NULL,
        definition BLOB,
        PRIMARY KEY (scope, name)
    ) WITHOUT ROWID;
    CREATE TABLE claims (key TEXT PRIMARY KEY, expires INTEGER NOT NULL, record BLOB NOT NULL) WITHOUT ROWID;
    CREATE INDEX claims_expires ON claims (expires);
    CREATE TABLE limits (
        key TEXT PRIMARY KEY,
        arrival REAL NOT NULL,
        peak REAL NOT NULL,
        spill REAL NOT NULL,
        average REAL NOT NULL,
        last REAL NOT NULL,
        expires REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX limits_expires ON limits (expires);
    CREATE TABLE limit_lines (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL,
        job_id TEXT NOT NULL,
        promised REAL NOT NULL,
        UNIQUE (key, job_id)
    );
    CREATE INDEX limit_lines_order ON limit_lines (key, promised);
    CREATE INDEX limit_lines_promised ON limit_lines (promised);
    CREATE TABLE limit_holds (key TEXT NOT NULL, hold TEXT NOT NULL, until REAL NOT NULL, UNIQUE (key, hold));
    CREATE INDEX limit_holds_until ON limit_holds (until);
    INSERT INTO counters VALUES ('message', 0), ('lease', 0), ('revocation', 0), ('schedule', 0), ('claim', 0)
"""

QUEUE_FILE: Final = FileKind(
    what="queue file",
    application_id=0,
    first_version=100,
    baseline=(_BASELINE,),
    # One step per version after the first; released steps never change.
    steps=(),
    upgrades_itself=True,
    makes_folder=True,
    unavailable=FileFailure,
    mismatch=FileFailure,
)
