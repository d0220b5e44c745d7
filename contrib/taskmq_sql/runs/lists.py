"""Lists of runs, the newest first, by one of the indexes; what no index has is compared row by row.

Ids that are derived from chosen names do not sort by time, so runs sort by the instant of their start, then by id.
"""

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

_Place = tuple[int, str]
"""The start (ms) and the id of a run."""

_LIST: Final = "select record, created from taskmq.run where {where} order by created desc, id desc limit {limit}"
_ENDED: Final = """
select record from taskmq.run where ended >= $1 and (ended > $1 or id > $2) and state <> 0
order by ended, id limit $3"""
_FIRST_ID: Final = str(UUID(int=0))
_END_OF_TIME: Final = 2**62
_INSTANT: Final = re.compile("[0-9]{1,15}")
# Rows that one call compares at most.
_COMPARED: Final = 10_000
_TOGETHER: Final = 500


def list_runs(which: RunFilter, after: str | None, limit: int) -> Steps[RunPage]:
    """Implement `RunStore.list_runs`."""
    before = _read_cursor(after)
    if which.until is not None:
        before = min(before, (which.until, _FIRST_ID))
    if which.parent and not is_job_id(which.parent):
        return RunPage([], None)
    matches = _rest_of(which)
    found: list[RunRecord] = []
    last = before
    compared = 0
    together = _TOGETHER if matches is not None else limit + 1
    while True:
        text, values = _statement(which, before, together)
        rows = yield from ask(text, *values)
        for record, created in rows:
            run = read_run(record)
            before = (created, run.id)
            if matches is not None and not matches(run):
                continue
            if len(found) == limit:
                return RunPage(found, _write_cursor(last) if found else None)
            found.append(run)
            last = before
        if len(rows) < together:
            return RunPage(found, None)
        compared += len(rows)
        if compared >= _COMPARED:
            return RunPage(found, _write_cursor(before), is_bounded=True)


def list_ended(since: int, after: str, limit: int) -> Steps[list[RunRecord]]:
    """Implement `RunStore.ended_since`."""
    rows = yield from ask(_ENDED, since, JobId(after or _FIRST_ID), limit)
    return [read_run(row[0]) for row in rows]


def _read_cursor(after: str | None) -> _Place:
    """Return the place of the last run of the page before; one behind all runs for the first page.

    Raises:
        InvalidOption: it is not a cursor.
    """
    if after is None:
        return _END_OF_TIME, _FIRST_ID
    created, _, run_id = after.partition(".")
    if not _INSTANT.fullmatch(created) or not is_job_id(run_id):
        raise InvalidOption(f"after={after[:80]!r} is not a cursor: pass the `after` of the previous page")
    return int(created), run_id


def _write_cursor(place: _Place) -> str:
    return "{}.{}".format(*place)


def _statement(which: RunFilter, before: _Place, limit: int) -> tuple[str, list[Any]]:
    created, run_id = before
    conditions = ["(created, id) < ($1, $2)", "created >= $3"]
    values: list[Any] = [created, JobId(run_id), min(which.since or 0, _END_OF_TIME)]

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
        if which.is_held and run.state is RunState.RUNNING and run.hold is None:
            return False
        return which.labels.items() <= run.labels.items()

    return matches
