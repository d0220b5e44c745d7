"""Figures of runs for alert rules: one walk over the workflows that have runs, a few probes for each."""

from typing import Final

from taskmq.model.history.alerts import MOST_USUAL
from taskmq.model.history.run_figures import MOST_FAILED, MOST_LONGEST, RunFigures
from taskmq.model.runs.records import RunState
from taskmq_sql.runs.starts import RUN_CODES
from taskmq_sql.steps import Steps, ask

_RUNNING, _SUCCEEDED, _FAILED = (
    RUN_CODES[state] for state in (RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED)
)
# Instants of ended runs are those of their ends, of others those of their starts; the index has this expression.
_AT: Final = "coalesce(ended, created)"
_RUNS: Final = "from taskmq.run where tenant = pair.tenant and workflow = pair.workflow and state = {state}"
_FIRST: Final = """
(select id from taskmq.run where {which} order by tenant, workflow, created, id limit 1)"""


def read_figures(
    tenant: str | None, since: int, after: tuple[str, str] | None, limit: int
) -> Steps[list[RunFigures]]:
    """Implement `RunStore.figures`."""
    if limit < 1:
        return []
    values: list[object] = [since]
    if after is not None:
        begin = _next("$2", "$3", is_whole=tenant is None)
        values += [after[0] if tenant is None else tenant, after[1]]
    elif tenant is None:
        begin = _FIRST.format(which="true")
    else:
        begin = _FIRST.format(which="tenant = $2")
        values.append(tenant)
    rows = yield from ask(_statement(begin, limit, is_whole=tenant is None), *values)
    return [
        RunFigures(
            tenant=row[0],
            workflow=row[1],
            failed=row[2],
            longest=max((each for each in row[3:5] if each is not None), default=None),
            oldest=row[5],
            usual=row[6],
            earlier=row[7],
            due=row[8],
        )
        for row in rows
    ]


def _next(tenant: str, workflow: str, *, is_whole: bool) -> str:
    """Return the id of the first run of the next workflow; a comparison of rows would not use the index on SQLite."""
    own = _FIRST.format(which=f"tenant = {tenant} and workflow > {workflow}")
    return f"coalesce({own}, {_FIRST.format(which=f'tenant > {tenant}')})" if is_whole else own


def _statement(begin: str, limit: int, *, is_whole: bool) -> str:
    following = _next("pair.tenant", "pair.workflow", is_whole=is_whole)
    usual = f"select ended - created as lasted {_last(_SUCCEEDED, f'{_AT} < $1', MOST_USUAL)}"
    return f"""
with recursive pair (tenant, workflow, place) as (
  select tenant, workflow, 1 from taskmq.run where id = {begin}
  union all
  select run.tenant, run.workflow, place + 1 from pair join taskmq.run on run.id = {following} where place < {limit}
)
select tenant, workflow,
  (select count(*) from (select 1 {_last(_FAILED, f"{_AT} >= $1", MOST_FAILED)}) failed),
  {_longest(_SUCCEEDED)},
  {_longest(_FAILED)},
  (select min({_AT}) {_RUNS.format(state=_RUNNING)}),
  (select lasted from (
    select lasted, row_number() over (order by lasted) as place, count(*) over () as many from ({usual}) usual
  ) ranked where place = (many + 1) / 2),
  (select count(*) from ({usual}) usual),
  (select min(due) from taskmq.run
   where tenant = pair.tenant and workflow = pair.workflow and ended is null and due is not null)
from pair order by place"""


def _longest(state: int) -> str:
    last = _last(state, f"{_AT} >= $1", MOST_LONGEST)
    return f"(select max(lasted) from (select ended - created as lasted {last}) ended)"


def _last(state: int, condition: str, limit: int) -> str:
    return f"{_RUNS.format(state=state)} and {condition} order by {_AT} desc limit {limit}"
