"""Rows that are forgotten: of ended jobs, of tenants, and those that no call asks for any more."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from taskmq.model.jobs.quotas import KEPT_DAYS, usage_prefix
from taskmq_sql.jobs.partitions import DAY
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.steps import JobId, Row, Steps, ask, find_numbers, job_id

__all__ = ["EndedJobs", "forget_ended", "forget_jobs", "forget_old", "forget_some_of_tenant", "forget_tenant"]

_GONE: Final = "delete from taskmq.job_history where id = any($1::uuid[]) returning id, tenant, key"
_TOLD: Final = (
    "delete from taskmq.job_log where job = any($1::text[])",
    "delete from taskmq.run_failure where job = any($1::text[])",
    # One by hand that is open belongs to a user of the node.
    "delete from taskmq.allocation where label = any($1::text[]) and (token is not null or ended is not null)",
)
_DEFINITIONS: Final = (
    "delete from taskmq.definition_version where tenant = $1",
    "delete from taskmq.definition where tenant = $1",
)
# There may be very many: some at a time, so that no caller waits for all of them, and no transaction is that long.
_MANY_OF_TENANT: Final = tuple(
    f"delete from taskmq.{table} where number = any(array("
    f"select number from taskmq.{table} where tenant = $1 order by number limit $2)) returning number"
    for table in ("job_log", "run_failure")
)
_AT_A_TIME: Final = 1_000
_OF_TENANT: Final = (
    "delete from taskmq.rollup where tenant = $1",
    "delete from taskmq.rollup_sum where tenant = $1 and kind = 2",
    "delete from taskmq.allocation where tenant = $1 and ended is not null",
    "delete from taskmq.bulk where tenant = $1 and ended is not null",
    "delete from taskmq.alert_rule where tenant = $1",
    "delete from taskmq.alert where tenant = $1",
    "delete from taskmq.alert_silence where tenant = $1",
    "delete from taskmq.alert_notice where tenant = $1",
)
# In the order in which submissions lock them.
_USAGE: Final = """
delete from taskmq.quota_usage where name in (
    select name from taskmq.quota_usage where substr(name, 1, length($1)) = $1
    order by name collate "C" for update)"""
_OLD: Final = (
    # Free keys, whatever their jobs do.
    "delete from taskmq.unique_key where until <= taskmq.now_ms()",
    # Leases that ended an hour ago. Those of partitions stay: their epochs are compared for ever.
    """delete from taskmq.lease
    where substr(key, 1, 10) <> 'partition:' and expires <= taskmq.now_ms() - 3600000""",
    # Rows that a submission has locked are in use. A rate may be used up for longer than a day.
    f"""delete from taskmq.quota_usage where name in (
        select name from taskmq.quota_usage
        where day < taskmq.now_ms() / {DAY} - {KEPT_DAYS} and used_until < taskmq.now_ms() for update skip locked)""",
)


class EndedJobs(NamedTuple):
    """The tables of a database that have rows of ended jobs.

    Attributes:
        beside: tables with rows by the job's id.
        forget_keys: forgets the keys of jobs, by id, tenant and key.
    """

    beside: Sequence[str]
    forget_keys: Callable[[Sequence[Row]], Steps[None]]


def forget_ended(tables: EndedJobs, ids: Sequence[str]) -> Steps[int]:
    """Carry out `Retaining.forget_ended`."""
    gone = yield from forget_jobs(tables, [JobId(each) for each in ids if is_job_id(each)])
    for statement in _TOLD:
        yield from ask(statement, list(map(job_id, gone)))
    return len(gone)


def forget_jobs(tables: EndedJobs, ids: Sequence[Any]) -> Steps[list[Any]]:
    """Forget ended jobs by the database's ids, with what is kept about them; return the ids that were there."""
    rows = yield from ask(_GONE, list(ids))
    yield from tables.forget_keys([row for row in rows if row[2] is not None])
    gone = [row[0] for row in rows]
    for table in tables.beside:
        yield from ask(f"delete from taskmq.{table} where id = any($1::uuid[])", gone)
    return gone


def forget_some_of_tenant(tenant: str) -> Steps[bool]:
    """Forget some of each kind of which a tenant may have very many; return whether there may be more."""
    gone = 0
    for statement in _MANY_OF_TENANT:
        gone = max(gone, len((yield from ask(statement, tenant, _AT_A_TIME))))
    return gone == _AT_A_TIME


def forget_tenant(tenant: str) -> Steps[None]:
    """Carry out `Retaining.forget_tenant` once `forget_some_of_tenant` has left nothing."""
    for number in (yield from find_numbers("tenant", [tenant])).values():
        for statement in _DEFINITIONS:
            yield from ask(statement, number)
    for statement in _OF_TENANT:
        yield from ask(statement, tenant)
    yield from ask(_USAGE, usage_prefix(tenant))


def forget_old() -> Steps[None]:
    """Forget free unique keys, leases that have ended, and usage of days that are over."""
    for statement in _OLD:
        yield from ask(statement)
