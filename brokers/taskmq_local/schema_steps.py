"""The tables of `taskmq.db`, and how they came to be.

A message is written once, into `messages`; where it stands is a narrow row beside it, so that taking and giving
back a large message moves a few bytes. Its id is its place in the queue:

    queues     the physical queues that exist
    messages   what was published and is ready or leased
    ready      (queue, id): waits for a consumer, in this order
    leases     id: in the hands of `owner`
    delayed    waits for its time; moves to `messages` and `ready`, under a new id, when that has come
    owners     who may hold leases; whether they are alive is told by the lock on their file, see `owners`
    consumers  which owner consumes which queue
    capacities how much may be ready in a queue that has a limit
    turns      to whom a shard of an ordered queue belongs, see `turns`
    counters   the last id given; ids are never given twice
    results, occurrences, starts   what the state keeps; a result's `seq` grows with every put
    waiting    messages that wait in the state; `version` is new with every put and swap, `taken` is until
               when somebody is about to publish it
    progress   how far jobs are, as their last runs have said
    checkpoints, saved   the last run of a job, and what its runs have saved
    broadcasts what was announced a short while ago, for those who listen, see `local_listener`
    revocations jobs that were cancelled, in the order of `place`
    keys       who holds what of the lease store, and until when

A released step is never changed: a new version is a new step.
"""

from typing import Final

__all__ = ["STEPS"]

_VERSION_1: Final = """
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
    INSERT INTO counters VALUES ('message', 0);
    CREATE TABLE results (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL,
        expires INTEGER NOT NULL,
        record BLOB NOT NULL
    );
    CREATE INDEX results_expires ON results (expires);
    CREATE TABLE occurrences (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        until INTEGER,
        expires INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX occurrences_expires ON occurrences (expires);
"""
_VERSION_2: Final = """
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
"""
_VERSION_3: Final = """
    CREATE TABLE capacities (queue INTEGER PRIMARY KEY, length INTEGER, bytes INTEGER);
    CREATE TABLE turns (
        queue INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        taker INTEGER NOT NULL,
        is_leaving INTEGER NOT NULL DEFAULT 0
    );
"""
_VERSION_4: Final = """
    CREATE TABLE broadcasts (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        expires INTEGER NOT NULL,
        topic TEXT NOT NULL,
        body BLOB NOT NULL
    );
"""
_VERSION_5: Final = """
    CREATE TABLE keys (
        key TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        token INTEGER NOT NULL,
        until INTEGER NOT NULL,
        note TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX keys_until ON keys (until);
    INSERT INTO counters VALUES ('lease', 0);
"""
_VERSION_6: Final = """
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
"""
_VERSION_7: Final = """
    CREATE TABLE revocations (
        job_id TEXT PRIMARY KEY,
        reason TEXT NOT NULL,
        place INTEGER NOT NULL UNIQUE,
        until INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX revocations_until ON revocations (until);
    INSERT INTO counters VALUES ('revocation', 0);
"""
_VERSION_8: Final = ""
STEPS: Final = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6, _VERSION_7, _VERSION_8)
"""One for each version, from 1 on: statements, separated by semicolons."""
