"""Deletion of rows: of ended jobs, of tenants, and of expired keys and leases."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from taskmq.model.jobs.quotas import KEPT_DAYS, usage_prefix
from taskmq.model.keys import tenant_key
from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.claims import forget_claims, free_keys_of, keep_results_of
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.steps import JobId, Row, Steps, ask, find_numbers, job_id

_GONE: Final = "delete from taskmq.job_history where id = any($1::uuid[]) returning id, tenant, key"
_TOLD: Final = (
    "delete from taskmq.job_log where job = any($1::text[])",
    "delete from taskmq.run_failure where job = any($1::text[])",
    # An open manual allocation belongs to a user of the node.
    "delete from taskmq.allocation where label = any($1::text[]) and (token is not null or ended is not null)",
)
_DEFINITIONS: Final = (
    "delete from taskmq.definition_version where tenant = $1",
    "delete from taskmq.definition where tenant = $1",
)
# There may be very many: deleted in portions, which keeps transactions short and other callers unblocked.
_MANY_OF_TENANT: Final = tuple(
    f"delete from taskmq.{table} where {number} = any(array("
    f"select {number} from taskmq.{table} where tenant = $1 order by {number} limit $2)) returning {number}"
    for table, number in (("job_log", "number"), ("run_failure", "number"), ("sent_job", "id"))
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
    "delete from taskmq.failure_mark where tenant = $1",
)
# Locked in the same order as by submissions.
_USAGE: Final = """
delete from taskmq.quota_usage where name in (
    select name from taskmq.quota_usage where substr(name, 1, length($1)) = $1
    order by name collate "C" for update)"""
# Results of idempotency keys that outlive the history of their jobs.
_CLAIMS: Final = """
delete from taskmq.claim where (name, place) in (
    select name, place from taskmq.claim where substr(name, 1, length($1)) = $1
    order by name collate "C", place for update)"""
_UNUSED: Final = """
select r.id from taskmq.saved_run r where r.touched < taskmq.now_ms() - 604800000
  and not exists (select 1 from taskmq.job j where j.id = r.id)"""
_OLD: Final = (
    # Saved values of jobs that ended without deleting them, a week after their last run.
    f"delete from taskmq.saved_value where id in ({_UNUSED})",
    f"delete from taskmq.saved_run where id in ({_UNUSED})",
    # Expired keys, whatever their jobs' state.
    "delete from taskmq.unique_key where until <= taskmq.now_ms()",
    # Leases that ended an hour ago. Those of partitions stay: their epochs are compared forever.
    """delete from taskmq.lease
    where substr(key, 1, 10) <> 'partition:' and expires <= taskmq.now_ms() - 3600000""",
    # A rate that was not used for a minute is as good as a new one.
    """delete from taskmq.rate where key in (
        select key from taskmq.rate where used < taskmq.now_ms() / 1000 - 60 for update skip locked)""",
    # Skips rows that a submission has locked. A rate may be used up for longer than a day.
    f"""delete from taskmq.quota_usage where name in (
        select name from taskmq.quota_usage
        where day < taskmq.now_ms() / {DAY_MS} - {KEPT_DAYS} and used_until < taskmq.now_ms()
        for update skip locked)""",
)


class EndedJobs(NamedTuple):
    """Tables of a database that have rows of ended jobs.

    Attributes:
        with_job_ids: further tables with rows keyed by the job's id.
        message: column of ended jobs with the message of their errors.
        forget_keys: deletes the keys of jobs, by id, tenant and key.
    """

    with_job_ids: Sequence[str]
    message: str
    forget_keys: Callable[[Sequence[Row]], Steps[None]]


def forget_ended(tables: EndedJobs, ids: Sequence[str], *, keeps_keys: bool = False) -> Steps[int]:
    """Implement `Retaining.forget_ended`."""
    known = [JobId(each) for each in ids if is_job_id(each)]
    if keeps_keys:
        yield from keep_results_of(known)
    gone = yield from forget_jobs(tables, known)
    if not keeps_keys:
        yield from free_keys_of(gone)
    for statement in _TOLD:
        yield from ask(statement, list(map(job_id, gone)))
    return len(gone)


def forget_jobs(tables: EndedJobs, ids: Sequence[Any]) -> Steps[list[Any]]:
    """Delete ended jobs, by the database's ids, with all rows about them; return the ids that existed."""
    rows = yield from ask(_GONE, list(ids))
    yield from tables.forget_keys([row for row in rows if row[2] is not None])
    gone = [row[0] for row in rows]
    for table in tables.with_job_ids:
        yield from ask(f"delete from taskmq.{table} where id = any($1::uuid[])", gone)
    yield from ask("delete from taskmq.failed_dependency where dependent = any($1::uuid[])", gone)
    return gone


def forget_some_of_tenant(tenant: str) -> Steps[bool]:
    """Delete a portion of each kind that a tenant may have many of; return whether more may remain."""
    gone = 0
    for statement in _MANY_OF_TENANT:
        gone = max(gone, len((yield from ask(statement, tenant, _AT_A_TIME))))
    return gone == _AT_A_TIME


def forget_tenant(tenant: str) -> Steps[None]:
    """Implement `Retaining.forget_tenant`, after `forget_some_of_tenant` has returned False."""
    for number in (yield from find_numbers("tenant", [tenant])).values():
        for statement in _DEFINITIONS:
            yield from ask(statement, number)
    for statement in _OF_TENANT:
        yield from ask(statement, tenant)
    yield from ask(_USAGE, usage_prefix(tenant))
    yield from ask(_CLAIMS, tenant_key(tenant, ""))


def forget_old() -> Steps[None]:
    """Delete expired keys, ended leases, unused rates, usage of past days, free claims, and unused saved values."""
    for statement in _OLD:
        yield from ask(statement)
    yield from forget_claims()
