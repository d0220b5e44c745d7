"""Hot statements, prepared once per connection and planned by primary keys only.

A statement names its rows by key, as an array (`id = any(...)`) or as one probe each (`lateral`), and joins only the
results. So its plan is the same for an empty table and for millions of rows, whatever the statistics say, and can be
cached. With a join to the table itself, a plan made on an empty table cost ten times as much.

Every statement locks rows of `ready`, `gated` and `timer` before those of `job`, so no two of them can deadlock.
"""

from typing import Final

from taskmq_sql.identity.audit import AUDITED_COLUMNS
from taskmq_sql.steps import placeholders

JOB_COLUMNS: Final = (
    "id, due, scheduled, token, expires, dispatched, started, tenant, queue, task, worker, version, attempt, "
    "priority, state, key, cancel_requested, error_type, error_message, traceback, first_started, body"
)
_SHARD: Final = "(get_byte(uuid_send(id), 15) & 63)::smallint"

_FENCE: Final = "fence as materialized (select from taskmq.lease where key = {key} and epoch = {epoch} \
and holder is not null for share)"

_SUBMIT: Final = """
with {fence}i as materialized (
  select i.*, greatest(i.at, n.now) as due,
         (case when i.held then 12 when i.at <= n.now then {ready} else 13 end)::smallint as state
  from {rows} as i({columns}), (select taskmq.now_ms() as now) n),
{keys}
n as (insert into taskmq.job (id, due, expires, tenant, queue, task, priority, state, key, body{more})
      select id, due, expires, tenant, queue, task, priority, state, key, body{values} from i {chosen}
      {conflict} returning id, due, tenant, queue, priority, state, token),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from n where state = 1),
{rest}
t as (insert into taskmq.timer (shard, due, id) select {shard}, due, id from n where state = 13){batch}
select id, state{answer} from n"""
_SUBMITTED: Final = {
    "id": "uuid",
    "at": "bigint",
    "expires": "bigint",
    "tenant": "int",
    "queue": "int",
    "task": "int",
    "priority": "smallint",
    "held": "boolean",
    "key": "text",
    "fingerprint": "bytea",
    "body": "bytea",
}
_SUBMITTED_STEP: Final = {"run": "uuid", "step": "text", "child": "int"}
_SUBMITTED_REST: Final = {"detail": "text", "large": "bytea"}
_KEYED: Final = """k as (insert into taskmq.job_key (tenant, key, id, fingerprint)
      select tenant, key, id, fingerprint from i where key is not null on conflict do nothing returning id),"""
_OF_KEYED: Final = "where key is null or id in (select id from k)"
_REST: Final = """d as (insert into taskmq.job_detail (id, detail)
      select id, detail from i where detail is not null and id in (select id from n)),
b as (insert into taskmq.job_body (id, body)
      select id, large from i where large is not null and id in (select id from n)),"""


_READY: Final = {"fence": "", "ready": "1", "values": "", "batch": "", "answer": ""}


def _at_once(chance: str, key: str, epoch: str, partition: str) -> dict[str, str]:
    """Return what dispatches a new job, unless it would overtake one of its queue; the arguments name parameters."""
    return {
        "fence": f"{_FENCE.format(key=key, epoch=epoch)},\n",
        "ready": """case when exists (select from fence)
           and not exists (select from taskmq.ready r where r.queue = i.queue)
           and (i.expires is null or i.expires > n.now) then 2 else 1 end""",
        "values": f""", case when state = 2 then {1 << 32} | {chance}::bigint else 0 end,
        case when state = 2 then taskmq.now_ms() end""",
        "batch": f""",
o as (insert into taskmq.dispatch_batch (partition, epoch, at, ids, tokens)
      select {partition}, {epoch}, taskmq.now_ms(), array_agg(id), array_agg(token) from n
      where state = 2 having count(*) > 0 returning id)""",
        "answer": ", due, token, (select id from o) as batch",
    }


def _submit(
    *, may_exist: bool, is_one: bool, has_keys: bool, has_rest: bool, has_steps: bool, dispatches: bool = False
) -> str:
    columns = _SUBMITTED | (_SUBMITTED_REST if has_rest else {}) | (_SUBMITTED_STEP if has_steps else {})
    values = [f"${number}::{kind}" for number, kind in enumerate(columns.values(), 1)]
    more = "".join(f", {name}" for name in _SUBMITTED_STEP) if has_steps else ""
    parts = _at_once(*(f"${len(columns) + number}" for number in range(1, 5))) if dispatches else _READY
    return _SUBMIT.format(
        # Not unnested for a single job: asyncpg inspects each element of an array before it encodes it.
        rows=f"(select {', '.join(values)})" if is_one else f"unnest({', '.join(f'{each}[]' for each in values)})",
        columns=", ".join(columns),
        keys=_KEYED if has_keys else "",
        chosen=_OF_KEYED if has_keys else "",
        rest=_REST if has_rest else "",
        conflict="on conflict do nothing" if may_exist else "",
        more=f"{more}, token, dispatched" if dispatches else more,
        shard=_SHARD,
        **{**parts, "values": more + parts["values"]},
    )


SUBMIT: Final = {
    (may_exist, is_one, has_keys, has_rest, has_steps): _submit(
        may_exist=may_exist, is_one=is_one, has_keys=has_keys, has_rest=has_rest, has_steps=has_steps
    )
    for may_exist in (False, True)
    for is_one in (False, True)
    for has_keys in (False, True)
    for has_rest in (False, True)
    for has_steps in (False, True)
}
"""Inserts new jobs; returns the ids and states of the inserted ones. Keyed by: whether ids may exist, otherwise one
that does fails the statement; a single job or several; whether there are keys, by which (after their tenants) the
jobs are sorted; whether there are details or separate bodies; whether there are jobs of runs."""

SUBMIT_AT_ONCE: Final = {
    has_rest: _submit(
        may_exist=False, is_one=True, has_keys=False, has_rest=has_rest, has_steps=True, dispatches=True
    )
    for has_rest in (False, True)
}
"""Inserts one new job of a run, and dispatches it if the lease is held and no job of its queue is ready. The values
after those of `SUBMIT` are random bits for its token, and the lease: key, epoch, partition. Keyed by whether there is
a detail or a separate body."""

_TAKE: Final = """
with j as materialized (
  select queue, priority, tenant, due from taskmq.job where id = $1 and version = $2 and state = $3::smallint),
r as (delete from taskmq.ready where ctid = any(array(
   select d.ctid from j cross join lateral
     (select ctid from taskmq.ready r where r.queue = j.queue and r.priority = j.priority and r.tenant = j.tenant
        and r.due = j.due and r.id = $1 for update) d
   where $3::smallint = 1)) returning id),
g as (delete from taskmq.gated where ctid = any(array(
   select d.ctid from j cross join lateral (select ctid from taskmq.gated where id = $1 for update) d
   where $3::smallint = 1)) returning id),
t as (delete from taskmq.timer where ctid = any(array(
   select d.ctid from j cross join lateral
     (select ctid from taskmq.timer t where t.shard = $4::smallint and t.due = j.due and t.id = $1 for update) d
   where $3::smallint in (4, 13))) returning id),"""
_TAKEN: Final = """id = $1 and version = $2 and state = $3::smallint and ($3::smallint not in (1, 4, 13)
             or exists (select from r) or exists (select from g) or exists (select from t))"""
_CHANGED: Final = {
    "version": "version + 1",
    "state": """case when $3::smallint in (11, 12) and $5::smallint in (1, 13)
                  and exists (select from taskmq.dependency where dependent = $1) then 11 else $5::smallint end""",
    "queue": "coalesce($6::int, queue)",
    "priority": "coalesce($7::smallint, priority)",
    "due": "coalesce($8::bigint, due)",
    # A change sets it again.
    "scheduled": """case when $8::bigint is null then scheduled when $18::smallint <> 1
                     then coalesce(scheduled, due) end""",
    "expires": "case when $9::boolean then $10::bigint else expires end",
    "cancel_requested": "coalesce($11::text, cancel_requested)",
    "body": "case when $12::boolean then $13::bytea else body end",
    "error_type": "coalesce($15::text, error_type)",
    "error_message": "coalesce($16::text, error_message)",
    "traceback": "coalesce($17::text, traceback)",
}
_CHANGED_ROW: Final = ", ".join(_CHANGED.get(name, name) for name in JOB_COLUMNS.split(", "))
_KEEP: Final = f"""
u as (update taskmq.job set {", ".join(f"{name} = {value}" for name, value in _CHANGED.items())}
      where {_TAKEN} returning *),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
w as (insert into taskmq.timer (shard, due, id) select $4::smallint, due, id from u where state in (4, 13)),
c as (delete from taskmq.claim_line where $6::int is not null and id = any(array(
   select u.id from u cross join j where u.queue <> j.queue))),"""
_FINISH: Final = f"""
gone as (delete from taskmq.job where {_TAKEN} returning *),
d as (insert into taskmq.upstream_end (id, state) select id, $5::smallint from gone where has_dependents),
i as (insert into taskmq.run_inbox (run, job, step, child, state, error)
      select run, id, step, child, $5::smallint,
             coalesce(nullif($15::text, '') || ': ', '') || coalesce($16::text, cancel_requested, '')
      from gone where run is not null),
l as (delete from taskmq.dependency where ctid = any(array(
   select d.ctid from gone cross join lateral (select ctid from taskmq.dependency where dependent = $1 for update) d
   where $3::smallint in (11, 12)))),
u as (insert into taskmq.job_history ({JOB_COLUMNS}, ended, finished)
      select {_CHANGED_ROW}, taskmq.now_ms(), taskmq.now_ms() from gone returning *),"""
_NOTE: Final = """
n as (delete from taskmq.job_body where id = any(array(
   select id from u where $12::boolean and $14::bytea is null))),
b as (insert into taskmq.job_body (id, body) select id, $14::bytea from u where $14::bytea is not null
      on conflict (id) do update set body = excluded.body),
e as (insert into taskmq.event (id, at, number, version, kind, state, actor, note)
      select id, taskmq.now_ms(), nextval('taskmq.event_number'), version, $18::smallint, state, $19::text, $20::text
      from u)"""
_AUDIT: Final = f""",
a as (insert into taskmq.audit (at, {AUDITED_COLUMNS})
      select taskmq.now_ms(), {placeholders(len(AUDITED_COLUMNS.split(", ")), begin=21)} from u)"""
_SHOW: Final = f"""
select {JOB_COLUMNS.removesuffix(", body")}, {{finished}} as finished,
  coalesce(body, $14::bytea, (select body from taskmq.job_body b where b.id = u.id)) as body,
  (select detail from taskmq.job_detail d where d.id = u.id) as detail
from u"""
_SHOW_LIVE: Final = _SHOW.format(finished="null::bigint")
_SHOW_ENDED: Final = _SHOW.format(finished="finished")

CHANGE: Final = _TAKE + _KEEP + _NOTE + _SHOW_LIVE
"""Changes one job, by its version. The transaction that deletes its row of `ready`, `gated` or `timer` owns the job.
If a job would become free but still has dependencies, it waits again; if the last of them ends right now, its version
differs."""

CHANGE_AUDITED: Final = _TAKE + _KEEP + _NOTE + _AUDIT + _SHOW_LIVE
"""`CHANGE` with an entry of the audit."""

CHANGE_ENDS: Final = _TAKE + _FINISH + _NOTE + _SHOW_ENDED
"""`CHANGE` for a change that ends the job."""

CHANGE_ENDS_AUDITED: Final = _TAKE + _FINISH + _NOTE + _AUDIT + _SHOW_ENDED

LANES: Final = """
with recursive l as (
  select r.queue, r.priority, r.tenant from taskmq.queue q cross join lateral
    (select queue, priority, tenant from taskmq.ready where queue = q.id
     order by queue, priority, tenant limit 1) r where q.partition = $1
  union all
  select r.queue, r.priority, r.tenant from l cross join lateral
    (select queue, priority, tenant from taskmq.ready
     where queue = l.queue and (priority, tenant) > (l.priority, l.tenant)
     order by queue, priority, tenant limit 1) r)
select queue, priority, tenant from l"""
"""Lists the lanes: one index probe per lane, however many jobs it has."""

HEADS: Final = """
with recursive l as (
  select r.* from unnest($1::int[]) as q(id) cross join lateral
    (select queue, priority, tenant, due, id from taskmq.ready where queue = q.id
     order by queue, priority, tenant, due, id limit 1) r
  union all
  select r.* from l cross join lateral
    (select queue, priority, tenant, due, id from taskmq.ready
     where queue = l.queue and (priority, tenant) > (l.priority, l.tenant)
     order by queue, priority, tenant, due, id limit 1) r)
select queue, priority, tenant, due, (select j.expires from taskmq.job j where j.id = l.id) as expires from l"""
"""Lists the lanes of these queues, with the first job of each."""


def _dispatch(gone: str, *, key: str, epoch: str, partition: str, over: str, chances: str) -> str:
    """Delete the rows of `ready` that a query selects and insert the batch; the arguments name its parameters.

    Args:
        chances: 32 random bits for the token of each job. The server would need 3 us to make those of one job.
    """
    return f"""
with {_FENCE.format(key=key, epoch=epoch)},
gone as (delete from taskmq.ready where ctid = any(array({gone}
   where exists (select from fence))) returning id),
u as (update taskmq.job j set state = 2, version = j.version + 1, started = null, crashes = null,
        dispatched = (select taskmq.now_ms()), token = ((((j.token >> 32) + 1) & 2097151) << 32) | r.chance
      from unnest(array(select id from gone), {chances}::bigint[]) as r(id, chance)
      where j.id = any(array(select id from gone)) and j.id = r.id and j.state = 1
        and (j.expires is null or j.expires > (select taskmq.now_ms()))
      returning j.id, j.key, j.tenant, j.task, j.queue, j.priority, j.attempt, j.token, j.due, j.expires,
                j.first_started, j.outages, j.crashes, j.body),
x as (delete from taskmq.job j where j.id = any(array(select id from gone)) and j.state = 1
        and j.expires <= (select taskmq.now_ms())
        and (select count(*) from gone) > (select count(*) from u) returning j.*),
h as (insert into taskmq.job_history ({JOB_COLUMNS}, ended, finished)
      select id, due, scheduled, token, expires, dispatched, started, tenant, queue, task, worker, version + 1,
             attempt, priority, 8, key, cancel_requested, '', {over}, '', first_started, body, taskmq.now_ms(),
             taskmq.now_ms()
      from x),
e as (insert into taskmq.upstream_end (id, state) select id, 8 from x where has_dependents),
i as (insert into taskmq.run_inbox (run, job, step, child, state, error)
      select run, id, step, child, 8, {over} from x where run is not null),
n as (insert into taskmq.event (id, at, number, version, kind, state, actor, note)
      select id, taskmq.now_ms(), nextval('taskmq.event_number'), version + 1, 15, 8, '', {over} from x),
o as (insert into taskmq.dispatch_batch (partition, epoch, at, ids, tokens)
      select {partition}, {epoch}, taskmq.now_ms(), array_agg(id), array_agg(token) from u having count(*) > 0
      returning id)
select u.*, (select detail from taskmq.job_detail d where d.id = u.id) as detail, o.id as batch from u, o"""


DISPATCH: Final = _dispatch(
    """
   select d.ctid from unnest($1::int[], $2::smallint[], $3::int[], $4::int[]) as w(queue, priority, tenant, n)
   cross join lateral
     (select ctid from taskmq.ready r where r.queue = w.queue and r.priority = w.priority and r.tenant = w.tenant
      order by r.queue, r.priority, r.tenant, r.due, r.id limit w.n for update skip locked) d""",
    key="$5",
    epoch="$6",
    partition="$7",
    over="$8",
    chances="$9",
)
"""Dispatches the first jobs of lanes; without the lease, changes nothing. Expired jobs end instead; the query for
them is skipped if all jobs were dispatched."""

PLACE: Final = _dispatch(
    """
   select d.ctid from unnest($1::uuid[]) as i(id)
   cross join lateral (select queue, priority, tenant, due from taskmq.job where id = i.id offset 0) j
   cross join lateral
     (select ctid from taskmq.ready r where r.queue = j.queue and r.priority = j.priority and r.tenant = j.tenant
        and r.due = j.due and r.id = i.id for update skip locked) d""",
    key="$2",
    epoch="$3",
    partition="$4",
    over="$5",
    chances="$6",
)
"""Dispatches jobs named one by one."""

PLACEABLE: Final = """
select id, coalesce(expires <= taskmq.now_ms(), false) as is_over from taskmq.job
where id = any($1::uuid[]) and state = 1"""
"""Lists which of these jobs are ready, and whether they have expired."""

WAITING: Final = """
select w.place, d.due, d.id, j.tenant, j.task, j.token, j.expires,
       (select detail from taskmq.job_detail t where t.id = d.id)
from unnest($1::int[], $2::smallint[], $3::int[], $4::int[], $5::bigint[], $6::uuid[])
     with ordinality as w(queue, priority, tenant, n, due, id, place)
cross join lateral
  (select due, id from taskmq.ready r where r.queue = w.queue and r.priority = w.priority and r.tenant = w.tenant
     and (r.due, r.id) > (w.due, w.id)
   order by r.queue, r.priority, r.tenant, r.due, r.id limit w.n) d
cross join lateral (select tenant, task, token, expires from taskmq.job where id = d.id offset 0) j
order by w.place, d.due, d.id"""
"""Lists the first jobs of lanes, after a cursor in each, with their details."""

FIRST: Final = (-1, "00000000-0000-0000-0000-000000000000")
"""The cursor before all jobs of a lane."""

LOOK: Final = """
select w.place, d.id, j.task, j.body, coalesce(j.expires <= taskmq.now_ms(), false) as is_over
from unnest($1::int[], $2::smallint[], $3::int[], $4::int[]) with ordinality as w(queue, priority, tenant, n, place)
cross join lateral
  (select due, id from taskmq.ready r where r.queue = w.queue and r.priority = w.priority and r.tenant = w.tenant
   order by r.queue, r.priority, r.tenant, r.due, r.id limit w.n) d
cross join lateral (select task, body, expires from taskmq.job where id = d.id offset 0) j
order by w.place, d.due, d.id"""
"""Lists the first jobs of lanes, with the values that decide their gates."""

PUT_BEHIND: Final = f"""
with {_FENCE.format(key="$3", epoch="$4")},
gone as (delete from taskmq.ready where ctid = any(array(
   select d.ctid from unnest($1::uuid[]) as i(id)
   cross join lateral (select queue, priority, tenant, due from taskmq.job where id = i.id and state = 1 offset 0) j
   cross join lateral
     (select ctid from taskmq.ready r where r.queue = j.queue and r.priority = j.priority and r.tenant = j.tenant
        and r.due = j.due and r.id = i.id for update skip locked) d
   where exists (select from fence))) returning queue, priority, tenant, due, id),
behind as (select ($2::text[])[array_position($1::uuid[], id)] as gate, * from gone),
lined as (
   insert into taskmq.claim_line (name, id, queue)
   select b.gate, b.id, b.queue from behind b where b.gate = any($6::text[])
     and not exists (select from taskmq.claim_line l where l.id = b.id and l.name = b.gate)
   order by b.due, b.id)
insert into taskmq.gated (partition, gate, priority, due, id, queue, tenant)
select $5, gate, priority, due, id, queue, tenant from behind"""
"""Moves ready jobs out of their lanes, each behind its gate; those behind a line ($6) without a place get one."""

OPEN_GATES: Final = f"""
with {_FENCE.format(key="$1", epoch="$2")},
gone as (delete from taskmq.gated where ctid = any(array(
   select d.ctid from unnest($4::text[], $5::int[]) as w(gate, n) cross join lateral
     (select ctid from taskmq.gated g where g.partition = $3 and g.gate = w.gate
      order by g.partition, g.gate, g.priority desc, g.due, g.id limit w.n for update skip locked) d
   where exists (select from fence))) returning gate, queue, priority, tenant, due, id),
r as (insert into taskmq.ready (queue, priority, tenant, due, id) select queue, priority, tenant, due, id from gone)
select gate, queue, priority, tenant from gone"""
"""Moves the first jobs behind each gate back into their lanes."""

GATE_OF: Final = "select gate from taskmq.gated where id = $1"

# The commit does not wait for the disk. Outside the database, no process acts on it before a later commit has
# flushed it, too; if the server loses it, the work is repeated. Set by statement and not by connection: behind a
# pooler, the setting would leak to other clients.
_UNSYNCED: Final = "unsynced as materialized (select set_config('synchronous_commit', 'off', true))"

CONFIRM: Final = f"""
with {_UNSYNCED}
update taskmq.dispatch_batch set confirmed = true where id = any($1::bigint[]) and exists (select from unsynced)"""
FORGET: Final = f"""
with {_UNSYNCED} delete from taskmq.dispatch_batch where id = any($1::bigint[]) and exists (select from unsynced)"""

TAKE_OVER: Final = f"""
with {_FENCE.format(key="$1", epoch="$2")},
b as (update taskmq.dispatch_batch set epoch = $2 where partition = $3 and epoch < $2 and exists (select from fence)
      returning id, confirmed, ids, tokens)
select b.id as batch, b.confirmed, j.id, j.key, j.tenant, j.task, j.queue, j.priority, j.attempt, j.token, j.due,
       j.expires, j.first_started, j.outages, j.crashes, j.body,
       (select detail from taskmq.job_detail d where d.id = j.id) as detail
from b cross join lateral unnest(b.ids, b.tokens) as i(id, token) left join lateral
  (select * from taskmq.job where id = i.id and token = i.token and state in (2, 3) offset 0) j on true"""

END: Final = f"""
with gone as (
  delete from taskmq.job j
  using unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::int[], $5::bigint[], $6::bigint[], $7::text[],
               $8::bytea[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[])
        as r(id, token, outcome, ran_by, began, until, content_type, result, kind, message, trace, cpu, memory)
  where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state in (2, 3)
  returning j.*, r.outcome, r.ran_by, r.began, r.until, r.content_type, r.result, r.kind, r.message, r.trace, r.cpu,
            r.memory),
e as (insert into taskmq.upstream_end (id, state) select id, outcome from gone where has_dependents),
i as (insert into taskmq.run_inbox (run, job, step, child, state, content_type, value, error)
      select run, id, step, child, outcome, content_type, result,
             coalesce(nullif(kind, '') || ': ', '') || coalesce(message, cancel_requested, '')
      from gone where run is not null),
h as (insert into taskmq.job_history ({JOB_COLUMNS}, ended, finished, content_type, result, processor_ms,
                                      peak_memory)
      select id, due, scheduled, token, expires, dispatched, coalesce(began, started), tenant, queue, task,
             coalesce(ran_by, worker), version + 1, attempt, priority, outcome, key, cancel_requested,
             case when kind is null and outcome in (7, 8) and cancel_requested is not null then '' else kind end,
             case when kind is null and outcome in (7, 8) then cancel_requested else message end,
             case when kind is null and outcome in (7, 8) and cancel_requested is not null then '' else trace end,
             coalesce(first_started, began, started), body, now, coalesce(until, now), content_type, result, cpu,
             memory
      from gone, (select taskmq.now_ms() as now) n)
select id, queue, version + 1 as version, has_dependents, started, worker, run from gone"""
"""Ends jobs by (id, token). No fence: the token decides, whichever scheduler applies the report."""

_BEFORE: Final = """b as materialized (
  select id, started, worker from taskmq.job where id = any($1::uuid[]) and state = 3)"""

STARTED: Final = f"""
with {_BEFORE}
update taskmq.job j set state = 3, version = j.version + 1, started = coalesce(r.began, j.started),
       first_started = coalesce(j.first_started, r.began), worker = coalesce(r.ran_by, j.worker)
from unnest($1::uuid[], $2::bigint[], $3::int[], $4::bigint[]) as r(id, token, ran_by, began)
     left join b on b.id = r.id
where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state in (2, 3)
returning j.id, j.queue, j.version, b.started, b.worker"""

AGAIN: Final = f"""
with n as materialized (select taskmq.now_ms() as now), {_BEFORE}, u as (
  update taskmq.job j set state = r.after, version = j.version + 1,
         due = case when r.after in (1, 12) then j.due else coalesce(r.at, (select now from n) + r.delay) end,
         scheduled = case when r.after in (1, 12) then j.scheduled else coalesce(j.scheduled, j.due) end,
         attempt = j.attempt + (r.after = 4)::int, dispatched = case when r.after <> 4 then j.dispatched end,
         started = coalesce(r.began, j.started), first_started = coalesce(j.first_started, r.began, j.started),
         outages = case when r.after = 4 then null
                        when r.is_outage then coalesce(j.outages, 0) + 1 else j.outages end,
         worker = coalesce(r.ran_by, j.worker),
         error_type = r.kind, error_message = r.message, traceback = r.trace
  from unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[],
              $8::text[], $9::text[], $10::text[], $11::boolean[], $12::bigint[], $13::bigint[], $14::bigint[])
       as r(id, token, after, ran_by, began, until, delay, kind, message, trace, is_outage, cpu, memory, at)
       left join b on b.id = r.id
  where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state in (2, 3)
    and j.cancel_requested is null
  returning j.id, j.due, j.tenant, j.queue, j.priority, j.version, j.attempt, j.state, r.ran_by, r.began, r.until,
            r.kind, r.message, r.trace, r.cpu, r.memory, b.started as was_started, b.worker as was_run_by),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
t as (insert into taskmq.timer (shard, due, id) select {_SHARD}, due, id from u where state not in (1, 12)),
a as (insert into taskmq.attempt (id, at, started, ended, attempt, worker, error_type, error_message, traceback,
                                  processor_ms, peak_memory)
      select id, now, began, coalesce(until, now), attempt - 1, ran_by, kind, message, trace, cpu, memory
      from u, n where state = 4)
select id, queue, version, state, was_started as started, was_run_by as worker from u"""
"""Returns jobs to their queues, holds them, or schedules their retry, by (id, token), unless they are being
cancelled."""

DISPATCH_AGAIN: Final = f"""
with {_FENCE.format(key="$4", epoch="$5")}, {_BEFORE}, u as (
  update taskmq.job j set state = 2, version = j.version + 1, started = null, crashes = coalesce(crashes, 0) + died
  from unnest($1::uuid[], $2::bigint[], $3::int[]) as r(id, token, died) left join b on b.id = r.id
  where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state in (2, 3)
    and j.cancel_requested is null and exists (select from fence)
  returning j.*, b.id is not null as was_running, b.started as began),
o as (insert into taskmq.dispatch_batch (partition, epoch, at, ids, tokens)
      select $6, $5, taskmq.now_ms(), array_agg(id), array_agg(token) from u having count(*) > 0 returning id)
select u.*, (select detail from taskmq.job_detail d where d.id = u.id) as detail, o.id as batch from u, o"""

UNDISPATCH: Final = f"""
with {_FENCE.format(key="$5", epoch="$6")}, u as (
  update taskmq.job j set state = $3::smallint, version = j.version + 1, dispatched = null,
         due = case when $3::smallint = 1 then j.due else taskmq.now_ms() + $4::bigint end,
         scheduled = case when $3::smallint = 1 then j.scheduled else coalesce(j.scheduled, j.due) end
  from unnest($1::uuid[], $2::bigint[]) as r(id, token)
  where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state = 2
    and j.cancel_requested is null and exists (select from fence)
  returning j.id, j.due, j.tenant, j.queue, j.priority, j.version, j.state),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
t as (insert into taskmq.timer (shard, due, id) select {_SHARD}, due, id from u where state <> 1)
select u.id, u.version from fence left join u on true"""
"""Returns dispatched jobs that no worker started to their queues, unless they are being cancelled. If there are none,
the result is a row without an id. Without the lease, there is no row."""

WITHDRAWN: Final = f"""
with {_FENCE.format(key="$2", epoch="$3")} select j.* from fence left join lateral
  (select id, token, state from taskmq.job where id = any($1::uuid[]) order by id for update) j on true"""
"""Locks jobs that are to end without a run, and returns their states. If there are none, the result is a row without
an id. Without the lease, there is no row."""

EXISTING: Final = """
select j.id, j.token, j.state, j.version, j.queue, j.tenant, j.cancel_requested from taskmq.job j
where j.id = any($1::uuid[]) order by j.id for update"""
"""Locks the live jobs whose reports did not match, and returns their present states."""

FORGOTTEN: Final = (
    """
delete from taskmq.ready where ctid = any(array(
  select d.ctid from unnest($1::uuid[]) as i(id)
  cross join lateral (select queue, priority, tenant, due from taskmq.job where id = i.id offset 0) j
  cross join lateral (select ctid from taskmq.ready r where r.queue = j.queue and r.priority = j.priority
                        and r.tenant = j.tenant and r.due = j.due and r.id = i.id for update) d))""",
    f"""
delete from taskmq.timer where ctid = any(array(
  select d.ctid from unnest($1::uuid[]) as i(id)
  cross join lateral (select {_SHARD} as shard, due from taskmq.job where id = i.id offset 0) j
  cross join lateral (select ctid from taskmq.timer t where t.shard = j.shard and t.due = j.due and t.id = i.id
                      for update) d))""",
    """
delete from taskmq.gated where ctid = any(array(
  select d.ctid from unnest($1::uuid[]) as i(id)
  cross join lateral (select ctid from taskmq.gated where id = i.id for update) d))""",
    """
update taskmq.job j set state = 2, token = r.token from unnest($1::uuid[], $2::bigint[]) as r(id, token)
where j.id = any($1::uuid[]) and j.id = r.id""",
)
"""Record dispatches that the store does not remember, for jobs that are locked already."""

EVENTS: Final = """
insert into taskmq.event (id, at, number, version, kind, state, actor, note, started)
select r.id, taskmq.now_ms(), nextval('taskmq.event_number'), r.version, r.kind, r.state, r.actor, r.note, r.started
from unnest($1::uuid[], $2::int[], $3::smallint[], $4::smallint[], $5::text[], $6::text[], $7::bigint[])
     as r(id, version, kind, state, actor, note, started)"""

DUE: Final = """
select t.due, t.id, t.shard from unnest($1::smallint[]) as s(shard) cross join lateral
  (select due, id, shard from taskmq.timer where shard = s.shard and due < $2 order by shard, due, id limit $3) t
order by t.due, t.id limit $3"""

FIRE: Final = f"""
with {_UNSYNCED},
fence as materialized (
  select l.key from unnest($4::text[], $5::bigint[]) as h(key, epoch) cross join lateral
    (select key from taskmq.lease where key = h.key and epoch = h.epoch and holder is not null for share) l
  where exists (select from unsynced)),
gone as (delete from taskmq.timer where ctid = any(array(
   select d.ctid from unnest($1::smallint[], $2::bigint[], $3::uuid[], $6::text[]) as f(shard, due, id, key)
   cross join lateral
     (select ctid from taskmq.timer where shard = f.shard and due = f.due and id = f.id for update) d
   where f.key in (select key from fence))) returning id),
u as (update taskmq.job j set state = 1, version = j.version + 1
      where j.id = any(array(select id from gone)) and j.state in (4, 13)
      returning j.id, j.queue, j.priority, j.tenant, j.due),
q as (insert into taskmq.ready (queue, priority, tenant, due, id) select queue, priority, tenant, due, id from u)
select distinct queue, priority, tenant from u"""
"""Fires timers of any number of partitions. $6 has the partition key of each timer; $4 and $5 the leases held."""

ANY_END: Final = "select exists (select from taskmq.upstream_end)"

TAKE_ENDS: Final = """
select number, id, state from taskmq.upstream_end order by number limit $1 for update skip locked"""
"""Locks the earliest ends that no other scheduler is processing."""

WAITING_FOR: Final = """
select e.number, d.upstream, d.dependent, d.condition, e.state
from unnest($1::bigint[], $2::uuid[], $3::smallint[]) as e(number, id, state) cross join lateral
  (select upstream, dependent, condition from taskmq.dependency where upstream = e.id
   order by upstream, dependent limit $4) d
order by e.number, d.dependent limit $4"""
"""Lists dependencies on jobs that ended."""

UPSTREAM_FAILED: Final = f"""
with gone as (
  delete from taskmq.job j using unnest($1::uuid[], $2::smallint[], $3::text[]) as r(id, outcome, why)
  where j.id = any($1::uuid[]) and j.id = r.id and j.state in (11, 12) returning j.*, r.outcome, r.why),
e as (insert into taskmq.upstream_end (id, state) select id, outcome from gone where has_dependents),
i as (insert into taskmq.run_inbox (run, job, step, child, state, error)
      select run, id, step, child, outcome, why from gone where run is not null),
n as (insert into taskmq.event (id, at, number, version, kind, state, actor, note)
      select id, taskmq.now_ms(), nextval('taskmq.event_number'), version + 1, 15, outcome, '', why from gone)
insert into taskmq.job_history ({JOB_COLUMNS}, ended, finished)
select id, due, scheduled, token, expires, dispatched, started, tenant, queue, task, worker, version + 1, attempt,
       priority, outcome, key, cancel_requested, '', why, '', first_started, body, now, now
from gone, (select taskmq.now_ms() as now) n"""
"""Ends jobs whose dependencies can no longer be met."""

FREE: Final = f"""
with n as materialized (select taskmq.now_ms() as now),
u as (
  update taskmq.job j set version = j.version + 1,
         state = case when j.state = 12 then 12 when j.due <= (select now from n) then 1 else 13 end,
         due = case when j.state = 12 then j.due else greatest(j.due, (select now from n)) end
  where j.id = any($1::uuid[]) and j.state in (11, 12)
  returning j.id, j.due, j.tenant, j.queue, j.priority, j.state),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
t as (insert into taskmq.timer (shard, due, id) select {_SHARD}, due, id from u where state = 13)
select distinct queue from u where state = 1"""
"""Frees jobs that wait for nothing any more. A held one gets a new version, so a concurrent release reads it
again."""

IN_FLIGHT: Final = f"""
select distinct on (j.id) {", ".join("j." + name for name in JOB_COLUMNS.split(", ")[:-1])}, null::bytea as body
from taskmq.dispatch_batch b cross join lateral unnest(b.ids, b.tokens) as i(id, token) cross join lateral
  (select * from taskmq.job where id = i.id and token = i.token and state in (2, 3) offset 0) j
where b.partition = $1 and b.at <= $2 and j.dispatched < $2 order by j.id"""
