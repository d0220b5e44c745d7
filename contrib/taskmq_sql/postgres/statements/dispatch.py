"""Statements that dispatch jobs, and return those that no worker started."""

from typing import Final

from taskmq_sql.postgres.statements import BEFORE_REPORTS, FENCE, JOB_COLUMNS, SHARD_OF_JOB

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
with {FENCE.format(key=key, epoch=epoch)},
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
select u.*, (select detail from taskmq.job_detail d where d.id = u.id) as detail, o.id as batch,
  (select count(*) from x) as expired from u, o"""


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
with {FENCE.format(key="$3", epoch="$4")},
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
with {FENCE.format(key="$1", epoch="$2")},
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
with {FENCE.format(key="$1", epoch="$2")},
b as (update taskmq.dispatch_batch set epoch = $2 where partition = $3 and epoch < $2 and exists (select from fence)
      returning id, confirmed, ids, tokens)
select b.id as batch, b.confirmed, j.id, j.key, j.tenant, j.task, j.queue, j.priority, j.attempt, j.token, j.due,
       j.expires, j.first_started, j.outages, j.crashes, j.body,
       (select detail from taskmq.job_detail d where d.id = j.id) as detail
from b cross join lateral unnest(b.ids, b.tokens) as i(id, token) left join lateral
  (select * from taskmq.job where id = i.id and token = i.token and state in (2, 3) offset 0) j on true"""


DISPATCH_AGAIN: Final = f"""
with {FENCE.format(key="$4", epoch="$5")}, {BEFORE_REPORTS}, u as (
  update taskmq.job j set state = 2, version = j.version + 1, started = null, crashes = coalesce(crashes, 0) + died
  from unnest($1::uuid[], $2::bigint[], $3::int[]) as r(id, token, died) left join b on b.id = r.id
  where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state in (2, 3)
    and j.cancel_requested is null and exists (select from fence)
  returning j.*, b.id is not null as was_running, b.started as began),
o as (insert into taskmq.dispatch_batch (partition, epoch, at, ids, tokens)
      select $6, $5, taskmq.now_ms(), array_agg(id), array_agg(token) from u having count(*) > 0 returning id)
select u.*, (select detail from taskmq.job_detail d where d.id = u.id) as detail, o.id as batch from u, o"""

UNDISPATCH: Final = f"""
with {FENCE.format(key="$5", epoch="$6")}, u as (
  update taskmq.job j set state = $3::smallint, version = j.version + 1, dispatched = null,
         due = case when $3::smallint = 1 then j.due else taskmq.now_ms() + $4::bigint end,
         scheduled = case when $3::smallint = 1 then j.scheduled else coalesce(j.scheduled, j.due) end
  from unnest($1::uuid[], $2::bigint[]) as r(id, token)
  where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state = 2
    and j.cancel_requested is null and exists (select from fence)
  returning j.id, j.due, j.tenant, j.queue, j.priority, j.version, j.state),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
t as (insert into taskmq.timer (shard, due, id) select {SHARD_OF_JOB}, due, id from u where state <> 1)
select u.id, u.version from fence left join u on true"""
"""Returns dispatched jobs that no worker started to their queues, unless they are being cancelled. If there are none,
the result is a row without an id. Without the lease, there is no row."""

WITHDRAWN: Final = f"""
with {FENCE.format(key="$2", epoch="$3")} select j.* from fence left join lateral
  (select id, token, state from taskmq.job where id = any($1::uuid[]) order by id for update) j on true"""
"""Locks jobs that are to end without a run, and returns their states. If there are none, the result is a row without
an id. Without the lease, there is no row."""


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


IN_FLIGHT: Final = f"""
select distinct on (j.id) {", ".join("j." + name for name in JOB_COLUMNS.split(", ")[:-1])}, null::bytea as body
from taskmq.dispatch_batch b cross join lateral unnest(b.ids, b.tokens) as i(id, token) cross join lateral
  (select * from taskmq.job where id = i.id and token = i.token and state in (2, 3) offset 0) j
where b.partition = $1 and b.at <= $2 and j.dispatched < $2 order by j.id"""
