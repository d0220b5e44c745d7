"""Lists of runs, the newest first, by one of the indexes; what no index has is compared row by row."""

import re
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from taskmq.contracts.jobs import RunFilter, RunPage
from taskmq.errors import InvalidOption
from taskmq.model.runs.records import RunRecord, RunState
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.runs.starts import RUN_CODES, read_run
from taskmq_sql.steps import JobId, Steps, ask

__all__ = ["list_ended", "list_runs"]

_LIST: Final = "select record from taskmq.run where {where} order by id desc limit {limit}"
_ENDED: Final = """
select record from taskmq.run where ended >= $1 and (ended > $1 or id > $2) and state <> 0
order by ended, id limit $3"""
_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)
_BITS_OF_TIME: Final = 80
_END_OF_TIME: Final = 2**48 - 1
# Rows that one call compares at most.
_COMPARED: Final = 10_000
_TOGETHER: Final = 500


def list_runs(which: RunFilter, after: str | None, limit: int) -> Steps[RunPage]:
    """Implement `RunStore.list_runs`."""
    if after is not None and not is_job_id(after):
        raise InvalidOption(f"after={after[:80]!r} is not a cursor: pass the `after` of the previous page")
    before = str(_LAST if after is None else UUID(after))
    if which.until is not None:
        before = min(before, _first_id(which.until))
    if which.parent and not is_job_id(which.parent):
        return RunPage([], None)
    matches = _rest_of(which)
    found: list[RunRecord] = []
    compared = 0
    together = _TOGETHER if matches is not None else limit + 1
    while True:
        text, values = _statement(which, before, together)
        runs = [read_run(row[0]) for row in (yield from ask(text, *values))]
        for run in runs:
            if matches is not None and not matches(run):
                continue
            if len(found) == limit:
                return RunPage(found, found[-1].id if found else None)
            found.append(run)
        if len(runs) < together:
            return RunPage(found, None)
        compared += len(runs)
        before = runs[-1].id
        if compared >= _COMPARED:
            return RunPage(found, before, is_bounded=True)


def list_ended(since: int, after: str, limit: int) -> Steps[list[RunRecord]]:
    """Implement `RunStore.ended_since`."""
    rows = yield from ask(_ENDED, since, JobId(after or str(_FIRST)), limit)
    return [read_run(row[0]) for row in rows]


def _statement(which: RunFilter, before: str, limit: int) -> tuple[str, list[Any]]:
    conditions = ["id < $1", "id >= $2"]
    values: list[Any] = [JobId(before), JobId(_first_id(which.since or 0))]

    def add(condition: str, value: object) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    if which.tenant is not None:
        add("tenant = {}", which.tenant)
    if which.workflow and "*" not in which.workflow:
        add("workflow = {}", which.workflow)
    if which.parent:
        add("parent = {}", JobId(which.parent))
    if which.states:
        conditions.append(f"state in ({', '.join(str(RUN_CODES[state]) for state in which.states)})")
    else:
        conditions.append("state <> 0")
    return _LIST.format(where=" and ".join(conditions), limit=limit), values


def _rest_of(which: RunFilter) -> Callable[[RunRecord], bool] | None:
    """Return a predicate for the conditions that the statement does not check; None if it checks all."""
    has_pattern = "*" in which.workflow
    if not has_pattern and not which.labels and not which.is_held:
        return None
    pattern = re.compile(".*".join(map(re.escape, which.workflow.split("*"))), re.DOTALL)

    def matches(run: RunRecord) -> bool:
        if has_pattern and pattern.fullmatch(run.workflow) is None:
            return False
        if which.is_held and run.state is RunState.RUNNING and run.held is None:
            return False
        return which.labels.items() <= run.labels.items()

    return matches


def _first_id(instant: int) -> str:
    """Return a lower bound of all ids of this instant (ms) or later."""
    return str(UUID(int=min(max(instant, 0), _END_OF_TIME) << _BITS_OF_TIME))
