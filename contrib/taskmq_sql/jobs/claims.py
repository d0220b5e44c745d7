"""Claims of dispatched jobs in the table `claim`: one row a place, and the dispatch that last held it.

A place is held while its job is under way with its token, so the end of a dispatch frees it without touching the row.
A key is also held while its job is suspended, or held because its calls differ: its error says so until the next one.
Place 0 of a claim is locked while its places change hands. A key gets a new fence for each message. A fence is the
time in µs, or the last fence plus one if that is greater: it grows even if the row was deleted meanwhile.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from taskmq.contracts.jobs import DispatchedJob, JobClaim, Lane, OpenedClaims, TakenClaims, WorkDone
from taskmq.model.history.suspensions import MISMATCH, SUSPENDED
from taskmq.model.keys import is_line_key
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES, UNDERWAY_CODES
from taskmq_sql.jobs.withdrawals import holds_lease, lock_jobs, return_behind
from taskmq_sql.steps import JobId, Row, SqlCalls, Steps, ask, clock, insert, job_id, names_of, read_call, write_call

_UNDER_WAY: Final = ", ".join(map(str, UNDERWAY_CODES))
_SUCCEEDED: Final = CODES[JobState.SUCCEEDED]
_PAUSES: Final = f"'{SUSPENDED}', '{MISMATCH}'"
# Most jobs that one call opens behind one claim.
_MOST: Final = 500
_MOST_GATES: Final = 1_000
_UNUSED_MS: Final = 3_600_000

_LOCK: Final = """
insert into taskmq.claim as c (name, place, fence) @rows(text, int, bigint)
on conflict (name, place) do update set fence = c.fence"""
_WANTED: Final = """
select c.name from taskmq.claim c
where c.name = any($1::text[]) and c.place = 0 and exists (select 1 from taskmq.gated g where g.gate = c.name)"""
_PLACES: Final = """
select name, place, job, token, fence, ttl, until, content_type, result from taskmq.claim
where name = any($1::text[])"""
_HOLDERS: Final = f"""
select id, case when state in ({_UNDER_WAY}) then token end, error_type in ({_PAUSES}) from taskmq.job
where id = any($1::uuid[])"""
_ENDS: Final = f"""
select id, finished, content_type, result from taskmq.job_history
where id = any($1::uuid[]) and state = {_SUCCEEDED}"""
_HOLD: Final = """
insert into taskmq.claim (name, place, job, token, fence, ttl) @rows(text, int, uuid, bigint, bigint, bigint)
on conflict (name, place) do update set job = excluded.job, token = excluded.token, fence = excluded.fence,
  ttl = excluded.ttl, until = null, content_type = null, result = null"""
_OPEN: Final = """
delete from taskmq.gated where id = any(array(
  select id from taskmq.gated where gate = $1 order by priority desc, due, id limit $2 for update skip locked))
returning queue, priority, tenant, due, id"""
_READY: Final = """
insert into taskmq.ready (queue, priority, tenant, due, id) @rows(int, smallint, int, bigint, uuid)"""
# One probe of the index for each gate, however many jobs wait behind it.
_GATES: Final = """
with recursive g (gate) as (
  select (select min(gate) from taskmq.gated where partition = $1 and gate > $2)
  union all
  select (select min(n.gate) from taskmq.gated n where n.partition = $1 and n.gate > g.gate)
  from g where g.gate is not null)
select gate from g where gate is not null limit $3"""

_LINED_UP: Final = "select id, name from taskmq.claim_line where id = any($1::uuid[])"
_QUEUE_UP: Final = "insert into taskmq.claim_line (name, id, queue) @rows(text, uuid, int)"
# The offset keeps PostgreSQL from joining the whole line, instead of walking it to its first live job.
_HEADS: Final = """
select c.name, (
  select l.id from taskmq.claim_line l where l.name = c.name
    and exists (select 1 from taskmq.job j where j.id = l.id and j.queue = l.queue limit 1 offset 0)
  order by l.name, l.number limit 1) as head
from taskmq.claim c where c.name = any($1::text[]) and c.place = 0"""
_LEAVE: Final = """
delete from taskmq.claim_line where (name, number) in (
  select l.name, l.number from taskmq.claim_line l
  where l.name = $1 and l.number < (select h.number from taskmq.claim_line h where h.name = $1 and h.id = $2)
    and not exists (select 1 from taskmq.job j where j.id = l.id) for update skip locked)"""
_OPEN_HEAD: Final = """
delete from taskmq.gated where id = $1 and gate = $2 returning queue, priority, tenant, due, id"""
_OPEN_HOLDERS: Final = """
delete from taskmq.gated where id = any(array(
  select g.id from taskmq.gated g
  where (g.id, g.gate) in (select c.job, c.name from taskmq.claim c where c.name = any($1::text[]))
  for update skip locked))
returning queue, priority, tenant, due, id"""
_LEFT: Final = """
delete from taskmq.claim_line where (name, number) in (
  select l.name, l.number from taskmq.claim_line l
  where not exists (select 1 from taskmq.job j where j.id = l.id) for update skip locked)"""

# One probe per place: PostgreSQL would turn an `exists` into a join with all jobs.
_HELD: Final = f"""coalesce((
  select true from taskmq.job j where j.id = c.job and (
    j.token = c.token and j.state in ({_UNDER_WAY}) or c.ttl is not null and j.error_type in ({_PAUSES}))), false)"""
_DONE: Final = f"""
select {{value}} from taskmq.job_history h where h.id = c.job and h.state = {_SUCCEEDED}
order by h.finished desc limit 1"""
_COPY: Final = f"""
update taskmq.claim as c set until = ({_DONE.format(value="h.finished + c.ttl")}),
  content_type = ({_DONE.format(value="h.content_type")}), result = ({_DONE.format(value="h.result")})
where c.until is null and not {_HELD}"""
_KEEP: Final = f"{_COPY} and c.ttl > $1"
_KEEP_OF: Final = f"{_COPY} and c.ttl is not null and c.job = any($1::uuid[])"
_LOCK_OF: Final = """
select 1 from taskmq.claim where ttl is not null and job = any($1::uuid[]) order by name, place for update"""
_FREE_OF: Final = "delete from taskmq.claim where ttl is not null and job = any($1::uuid[])"
# A place that is granted meanwhile has a new fence, so it stays.
_FORGET: Final = f"""
delete from taskmq.claim where (name, place) in (
  select c.name, c.place from taskmq.claim c where c.fence < $1 and not {_HELD}
    and coalesce(c.until, ({_DONE.format(value="h.finished + c.ttl")}), 0) <= $2 for update skip locked)"""


class SqlClaims(SqlCalls):
    """Claims of a `DispatchStore`, in the database's tables."""

    @write_call
    def take(self, partition: int, epoch: int, jobs: Sequence[DispatchedJob]) -> Steps[TakenClaims | None]:
        """See `DispatchStore.take_claims`."""
        if not (yield from holds_lease(partition, epoch)):
            return None
        now = yield from clock()
        names = sorted({claim.name for job in jobs for claim in job.claims})
        yield from insert(_LOCK, [(name, 0, 0) for name in names])
        places = [_place(row) for row in (yield from ask(_PLACES, names))]
        held = yield from _find_held(places)
        taking = _Taking(places, held, (yield from _find_done(places, held, now)), now=now)
        locked = yield from lock_jobs(job.id for job in jobs)
        if any(map(is_line_key, names)):
            taking.heads = yield from _line_up(jobs, {each: found.queue for each, found in locked.items()})
        for job in jobs:
            if (found := locked.get(job.id)) is not None and found.is_dispatched and found.token == job.token:
                taking.add(job)
        yield from insert(_HOLD, taking.rows)
        yield from return_behind(partition, taking.waiting)
        return TakenClaims(taking.fences, taking.waiting, taking.done)

    @write_call
    def open(self, places: Mapping[str, int]) -> Steps[OpenedClaims]:
        """See `DispatchStore.open_claims`."""
        names = [row[0] for row in (yield from ask(_WANTED, sorted(places)))]
        if not names:
            return OpenedClaims(frozenset(), frozenset())
        now = yield from clock()
        rows = [_place(row) for row in (yield from ask(_PLACES, names))]
        held = yield from _find_held(rows)
        free = {name: places[name] for name in names}
        for each in rows:
            free[each.name] -= (each.name, each.place) in held
        # All jobs of a key whose work is done get its result.
        done = yield from _find_done(rows, held, now)
        free |= dict.fromkeys(done, _MOST)
        opened: list[Row] = []
        waiting: set[str] = set()
        lines = [name for name in names if is_line_key(name)]
        if open_lines := [name for name in lines if free[name] > 0]:
            opened += yield from _open_lines(open_lines)
        waiting.update(lines)
        # A suspended job that runs again holds its key already.
        if keys := [each.name for each in rows if each.ttl is not None and (each.name, each.place) in held]:
            opened += yield from ask(_OPEN_HOLDERS, keys)
        for name in sorted(free.keys() - set(lines)):
            count = free[name]
            found: Sequence[Row] = ()
            if count > 0:
                found = yield from ask(_OPEN, name, min(count, _MOST))
            opened += found
            if count <= 0 or len(found) >= count:
                waiting.add(name)
        yield from insert(_READY, opened)
        queues = yield from names_of("queue", {row[0] for row in opened})
        tenants = yield from names_of("tenant", {row[2] for row in opened})
        lanes = frozenset(Lane(queues[queue], priority, tenants[tenant]) for queue, priority, tenant, _, _ in opened)
        return OpenedClaims(lanes, frozenset(waiting), frozenset(done))

    @read_call
    def closed_gates(self, partition: int, after: str) -> Steps[list[str]]:
        """See `DispatchStore.closed_gates`."""
        return [row[0] for row in (yield from ask(_GATES, partition, after, _MOST_GATES))]


class _Place(NamedTuple):
    """A place, and the dispatch that last held it."""

    name: str
    place: int
    job: str
    token: int
    fence: int
    ttl: int | None
    until: int | None
    content_type: str | None
    result: bytes | None


class _Taking:
    """The decisions of one call.

    Attributes:
        rows: places that got a new holder or fence.
        fences, waiting, done: as in `TakenClaims`.
        heads: the first job of each line.
    """

    def __init__(
        self,
        places: Sequence[_Place],
        held: set[tuple[str, int]],
        done: Mapping[str, WorkDone],
        *,
        now: int,
    ) -> None:
        self.rows: list[Row] = []
        self.fences: dict[str, int] = {}
        self.waiting: dict[str, str] = {}
        self.done: dict[str, WorkDone] = {}
        self.heads: Mapping[str, str | None] = {}
        self._done = done
        self._now = now
        self._fences: dict[tuple[str, int], int] = {(each.name, each.place): each.fence for each in places}
        # By the places of each claim. A job has one dispatch at a time.
        self._holders: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for each in places:
            if (each.name, each.place) in held:
                self._holders[each.name][each.place] = each.job

    def add(self, job: DispatchedJob) -> None:
        """Give the job its claims, or decide why it does not get them."""
        for claim in job.claims:
            if (done := self._done.get(claim.name)) is not None and claim.ttl is not None:
                self.done[job.id] = done
                return
            holders = self._holders[claim.name]
            is_behind = self.heads.get(claim.name, job.id) != job.id
            if is_behind or (job.id not in holders.values() and len(holders) >= claim.places):
                self.waiting[job.id] = claim.name
                return
        self.fences[job.id] = max((self._hold(claim, job) for claim in job.claims), default=0)

    def _hold(self, claim: JobClaim, job: DispatchedJob) -> int:
        holders = self._holders[claim.name]
        index = next((index for index, holder in holders.items() if holder == job.id), None)
        if index is None:
            index = next(index for index in range(claim.places) if index not in holders)
            holders[index] = job.id
        elif claim.ttl is None:
            return 0
        # A run of an earlier message of the same job may go on, so that each message has a later fence.
        key = (claim.name, index)
        fence = self._fences[key] = max(self._now * 1000, self._fences.get(key, 0) + 1)
        self.rows.append((claim.name, index, JobId(job.id), job.token, fence, claim.ttl))
        return 0 if claim.ttl is None else fence


def _line_up(jobs: Sequence[DispatchedJob], queues: Mapping[str, int]) -> Steps[dict[str, str | None]]:
    """Give jobs without a place in their line the last one; return the first job of each line.

    Args:
        queues: numbers of the live jobs' queues.
    """
    lines = {job.id: claim.name for job in jobs for claim in job.claims if is_line_key(claim.name)}
    found = {(job_id(row[0]), row[1]) for row in (yield from ask(_LINED_UP, [JobId(job) for job in lines]))}
    new = [
        (name, JobId(job), queues[job]) for job, name in lines.items() if job in queues and (job, name) not in found
    ]
    yield from insert(_QUEUE_UP, new)
    return (yield from _find_heads(sorted(set(lines.values()))))


def _find_heads(names: Sequence[str]) -> Steps[dict[str, str | None]]:
    """Return the first live job of each line."""
    rows = yield from ask(_HEADS, names)
    return {row[0]: None if row[1] is None else job_id(row[1]) for row in rows}


def _open_lines(names: Sequence[str]) -> Steps[Sequence[Row]]:
    """Take the first jobs of lines from behind their gates, and forget the ended jobs before them."""
    opened: list[Row] = []
    for name, head in (yield from _find_heads(names)).items():
        if head is not None:
            yield from ask(_LEAVE, name, JobId(head))
            opened += yield from ask(_OPEN_HEAD, JobId(head), name)
    return opened


def _find_held(places: Sequence[_Place]) -> Steps[set[tuple[str, int]]]:
    """Return the places that a dispatch or a suspended job holds, as claims and indexes."""
    jobs = sorted({each.job for each in places if each.job})
    rows = (yield from ask(_HOLDERS, [JobId(job) for job in jobs])) if jobs else ()
    live = {job_id(row[0]): (row[1], bool(row[2])) for row in rows}
    held: set[tuple[str, int]] = set()
    for each in places:
        token, is_suspended = live.get(each.job, (None, False))
        if token == each.token or (is_suspended and each.ttl is not None):
            held.add((each.name, each.place))
    return held


def _find_done(places: Sequence[_Place], held: set[tuple[str, int]], now: int) -> Steps[dict[str, WorkDone]]:
    """Return the results of keys whose work was done and is still remembered."""
    keys = [each for each in places if each.ttl is not None and each.job and (each.name, each.place) not in held]
    wanted = sorted({each.job for each in keys if each.until is None})
    rows = (yield from ask(_ENDS, [JobId(job) for job in wanted])) if wanted else ()
    ends = {job_id(row[0]): row for row in sorted(rows, key=lambda row: int(row[1]))}
    found: dict[str, WorkDone] = {}
    for each in keys:
        until, content_type, result = each.until, each.content_type, each.result
        if until is None and (row := ends.get(each.job)) is not None:
            until, content_type, result = int(row[1]) + (each.ttl or 0), row[2], row[3]
        if until is not None and until > now:
            found[each.name] = WorkDone(each.job, content_type or "", result or b"")
    return found


def forget_claims() -> Steps[None]:
    """Delete free places, keys whose result is forgotten, and places of ended jobs in lines."""
    now = yield from clock()
    yield from ask(_FORGET, (now - _UNUSED_MS) * 1000, now)
    yield from ask(_LEFT)


def keep_results(ms: int) -> Steps[None]:
    """Copy the results of keys that are remembered for longer than the history of their jobs.

    Args:
        ms: how long the history is kept.
    """
    yield from ask(_KEEP, ms)


def keep_results_of(jobs: Sequence[JobId]) -> Steps[None]:
    """Copy the results of the keys of these jobs, which are about to be deleted."""
    yield from ask(_KEEP_OF, list(jobs))


def free_keys_of(jobs: Sequence[JobId]) -> Steps[None]:
    """Forget what the keys of these jobs remember; no run holds them any more."""
    # In the order in which all lock places, so that no two transactions wait for each other.
    yield from ask(_LOCK_OF, list(jobs))
    yield from ask(_FREE_OF, list(jobs))


def _place(row: Row) -> _Place:
    name, place, job, token, *rest = row
    return _Place(name, place, "" if job is None else job_id(job), token or 0, *rest)
