"""The tables of `taskmq.db`, in the first version and those after it.

A message is written once, into `messages`; where it stands is a narrow row beside it, so that taking and giving
back a large message moves a few bytes. Its id is its place in the queue:

    queues     the physical queues that exist
    messages   what was published and is ready or leased
    ready      (queue, id): waits for a consumer, in this order
    leases     id: in the hands of `owner`
    delayed    waits for its time; moves to `messages` and `ready`, under a new id, when that has come
    owners     who may hold leases; the lock on their file shows whether they are alive, see `owners`
    consumers  which owner consumes which queue
    capacities how much may be ready in a queue that has a limit
    turns      to whom a shard of an ordered queue belongs, see `turns`
    counters   the last id given; ids are never given twice
    results, starts   what the state keeps; a result's `seq` grows with every put; one whose time is
               over is 'expired' and empty until `remembered`
    waiting    messages that wait in the state; `version` is new with every put and swap, `taken` is until
               when a relay is about to publish it
    progress   how far jobs are, as their last runs have said
    checkpoints, saved   the last run of a job, and what its runs have saved
    broadcasts what was announced a short while ago, for those who listen, see `listener`
    revocations jobs that were cancelled, in the order of `place`
    schedule_records, schedules   how far each schedule is, and those that were made at run time
    keys       who holds what of the lease store, and until when
    flows, flow_nodes, flow_edges   workflows; who has arrived at a node, and whose followers are to be visited
    flow_offers, flow_lanes, flow_ends   what of them is to be published, waits for its turn (place above 0), has
               ended
    limits, limit_lines, limit_holds   what all workers share of limits: how each stands, who waits until when, and
               who has its places until when
    claims     keys whose work is done once: who is at it, and what came of it

A released step is never changed: a new version is a new step.
"""

from typing import Final

from taskmq_embedded.file_kind import FileKind
from taskmq_embedded.work import FileFailure

__all__ = ["QUEUE_FILE"]

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
    CREATE TABLE flows (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        head BLOB NOT NULL,
        ttl INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        run INTEGER NOT NULL DEFAULT 0,
        token INTEGER NOT NULL DEFAULT 0,
        cancelled TEXT,
        started INTEGER NOT NULL DEFAULT 0,
        tenant TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX flows_expires ON flows (expires);
    CREATE INDEX flows_started ON flows (started, id);
    CREATE INDEX flows_tenant ON flows (tenant, started, id);
    CREATE TABLE flow_nodes (
        flow INTEGER NOT NULL,
        key TEXT NOT NULL,
        kind TEXT NOT NULL,
        rule TEXT NOT NULL,
        call BLOB NOT NULL,
        bound INTEGER NOT NULL,
        lane TEXT NOT NULL,
        parent TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'waiting',
        total INTEGER,
        value BLOB NOT NULL DEFAULT x'',
        token INTEGER NOT NULL DEFAULT 0,
        owner TEXT NOT NULL DEFAULT '',
        until INTEGER NOT NULL DEFAULT 0,
        visit INTEGER,
        UNIQUE (flow, key)
    );
    CREATE INDEX flow_nodes_visit ON flow_nodes (flow) WHERE visit IS NOT NULL;
    CREATE INDEX flow_nodes_open ON flow_nodes (flow) WHERE state IN ('waiting', 'ready');
    CREATE TABLE flow_edges (
        flow INTEGER NOT NULL,
        before TEXT NOT NULL,
        place INTEGER NOT NULL,
        after TEXT NOT NULL,
        arrived INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (flow, before, place)
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX flow_edges_after ON flow_edges (flow, after, before);
    CREATE INDEX flow_edges_missing ON flow_edges (flow, after) WHERE arrived = 0;
    CREATE TABLE flow_offers (
        flow INTEGER NOT NULL,
        key TEXT NOT NULL,
        taker TEXT NOT NULL DEFAULT '',
        until INTEGER NOT NULL,
        PRIMARY KEY (flow, key)
    ) WITHOUT ROWID;
    CREATE INDEX flow_offers_until ON flow_offers (flow, until);
    CREATE TABLE flow_lanes (
        flow INTEGER NOT NULL,
        lane TEXT NOT NULL,
        key TEXT NOT NULL,
        place INTEGER NOT NULL,
        PRIMARY KEY (flow, lane, key)
    ) WITHOUT ROWID;
    CREATE INDEX flow_lanes_place ON flow_lanes (flow, lane, place);
    CREATE TABLE flow_ends (place INTEGER PRIMARY KEY AUTOINCREMENT, flow INTEGER NOT NULL, key TEXT NOT NULL);
    CREATE INDEX flow_ends_flow ON flow_ends (flow, place);
    CREATE TABLE flow_appends (
        flow INTEGER NOT NULL,
        node TEXT NOT NULL,
        name TEXT NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (flow, node, name)
    ) WITHOUT ROWID;
    INSERT INTO counters VALUES ('message', 0), ('lease', 0), ('revocation', 0), ('schedule', 0), ('claim', 0)
"""

QUEUE_FILE: Final = FileKind(
    what="queue file",
    application_id=0,
    first_version=100,
    baseline=(_BASELINE,),
    # One for each version after the first; one that was released never changes.
    steps=(),
    upgrades_itself=True,
    makes_folder=True,
    unavailable=FileFailure,
    mismatch=FileFailure,
)
