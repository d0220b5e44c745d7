"""Statements that insert jobs."""

from collections.abc import Mapping
from typing import Final

from taskmq_sql.postgres.statements import FENCE, SHARD_OF_JOB

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
SHARED: Final = range(3, 8)
"""The places of the values that are never null: one of them may stand for those of all jobs."""
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
        "fence": f"{FENCE.format(key=key, epoch=epoch)},\n",
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
    # Not unnested for a single job: asyncpg inspects each element of an array before it encodes it.
    values = [f"${number}::{kind}" for number, kind in enumerate(columns.values(), 1)]
    rows = f"(select {', '.join(values)})" if is_one else _unnest(columns)
    more = "".join(f", {name}" for name in _SUBMITTED_STEP) if has_steps else ""
    parts = _at_once(*(f"${len(columns) + number}" for number in range(1, 5))) if dispatches else _READY
    return _SUBMIT.format(
        rows=rows,
        columns=", ".join(columns),
        keys=_KEYED if has_keys else "",
        chosen=_OF_KEYED if has_keys else "",
        rest=_REST if has_rest else "",
        conflict="on conflict do nothing" if may_exist else "",
        more=f"{more}, token, dispatched" if dispatches else more,
        shard=SHARD_OF_JOB,
        **{**parts, "values": more + parts["values"]},
    )


def _unnest(columns: Mapping[str, str]) -> str:
    arrays = {name: f"${number}::{kind}[]" for number, (name, kind) in enumerate(columns.items(), 1)}
    values = [
        f"coalesce({name}, ({array})[1])" if place in SHARED else name
        for place, (name, array) in enumerate(arrays.items())
    ]
    return f"(select {', '.join(values)} from unnest({', '.join(arrays.values())}) as u({', '.join(columns)}))"


SUBMIT_ALIKE: Final = {
    True: """
with q as (insert into taskmq.ready (queue, priority, tenant, due, id) values ($2, $4, $1, taskmq.now_ms(), $5))
insert into taskmq.job (id, due, tenant, queue, task, priority, state, body)
values ($5, taskmq.now_ms(), $1, $2, $3, $4, 1, $6)""",
    # The time of a statement is one, but its calculation takes half a microsecond.
    False: """
with q as (insert into taskmq.ready (queue, priority, tenant, due, id)
  select $2, $4, $1, (select taskmq.now_ms()), id from unnest($5::uuid[]) as i(id))
insert into taskmq.job (id, due, tenant, queue, task, priority, state, body)
select id, (select taskmq.now_ms()), $1, $2, $3, $4, 1, body from unnest($5::uuid[], $6::bytea[]) as i(id, body)""",
}
"""Inserts ordinary jobs that may run now, and differ in their ids and bodies only; an id that exists fails it. The
values before those are their tenant, queue, task and priority. Keyed by whether there is a single job."""
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
