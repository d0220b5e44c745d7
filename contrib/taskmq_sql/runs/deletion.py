"""Deletion of ended runs, a portion of their rows at a time."""

from typing import Final

from taskmq_sql.runs.workflows import forget_contents
from taskmq_sql.steps import JobId, Row, Steps, ask, first, job_id

_TOGETHER: Final = 500
_ENDED: Final = "select id from taskmq.run where ended <= $1 order by ended limit 1"
_OF_TENANT: Final = """
select id from taskmq.run where tenant = $1 and ended is not null order by created, id limit 1"""
# From here on no call finds the run. A redrive may have begun before.
_HIDE: Final = "update taskmq.run set state = 0 where id = $1 and ended is not null returning version"
_STEPS: Final = """
delete from taskmq.run_step where (run, name, child) in (
  select run, name, child from taskmq.run_step where run = $1 order by run, name, child limit $2) returning child"""
_REST: Final = tuple(
    f"delete from taskmq.{table} where run = $1" for table in ("run_inbox", "run_signal", "run_answer")
)
_RUN: Final = "delete from taskmq.run where id = $1"


def forget_some_ended(before: int) -> Steps[bool]:
    """Delete some rows of the run that ended first, at an instant (ms) or before; return whether more may be left."""
    return (yield from _forget_some((yield from first(_ENDED, before))))


def forget_some_of_tenant(tenant: str) -> Steps[bool]:
    """Delete some rows of an ended run of a tenant; return whether more may be left."""
    return (yield from _forget_some((yield from first(_OF_TENANT, tenant))))


def _forget_some(found: Row | None) -> Steps[bool]:
    if found is None:
        return False
    run = JobId(job_id(found[0]))
    if (hidden := (yield from first(_HIDE, run))) is None:
        return True
    if len((yield from ask(_STEPS, run, _TOGETHER))) == _TOGETHER:
        return True
    for statement in (*_REST, _RUN):
        yield from ask(statement, run)
    yield from forget_contents([hidden[0]])
    return True
