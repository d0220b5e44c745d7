"""How jobs are looked for: a filter as conditions on the tables, and the pages that come of it.

A filter is answered by *scans*: of the live jobs, and of the ended ones by an index. A scan walks down the ids within
what its index tells apart, and checks the rest of the filter row by row; where there is such a rest it stops after
`BOUND` rows, and the page says so. So no filter makes the database read a whole table.

Ended jobs are divided by the day of their end. What was submitted of late has ended of late: the newest days are
asked first, and all of them only where these do not fill the page. So a page costs what is in these days, however
many are kept. Of a tenant's jobs of one task, or of one state, there are often too few: all days are asked at once.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    JSON,
    ColumnElement,
    Select,
    Table,
    and_,
    cast,
    exists,
    false,
    func,
    literal_column,
    null,
    select,
)

from taskmq.contracts.jobs import JobPage, JobRecord
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.jobs.partitions import DAY
from taskmq_sql.jobs.tables import job, job_detail, job_history

__all__ = ["BOUND", "Known", "Scan", "first_id", "page_of", "scans"]

BOUND: Final = 20_000
"""Rows that one scan looks at for one page."""
_SUCCEEDED: Final = 5
_LAST_INSTANT: Final = 2**48 - 1
# Those that both tables have.
_LIST_COLUMNS: Final = tuple(
    column.name for column in job.columns if column.name in job_history.columns and column.name != "body"
)
_Condition = ColumnElement[bool]


class Known(msgspec.Struct, frozen=True):
    """The names of a filter as the tables have them; None where the filter does not name any."""

    tenant: int | None = None
    tasks: Sequence[int] | None = None
    queues: Sequence[int] | None = None
    ids: Sequence[str] | None = None


class Scan(msgspec.Struct, frozen=True):
    """A walk down the ids of one table.

    Attributes:
        within: what an index tells apart, or the order of ids.
        rest: what is checked row by row.
        until_submitted: of what is looked for day by day: it was submitted before this instant.
    """

    table: Table
    within: Sequence[_Condition]
    rest: Sequence[_Condition]
    until_submitted: int | None = None

    def windows(self, newest: int, *, floor: str | None) -> "list[Scan]":
        """Walks of which the first one that fills a page is enough: what was submitted in the day up to `newest`
        (ms), in few days of the table; then everything.

        Args:
            floor: where the walk ends.
        """
        if self.until_submitted is None or self.table is not job_history:
            return [self]
        since = min(newest, self.until_submitted) - DAY
        columns = self.table.c
        recent = [columns.id >= first_id(since), columns.ended >= since - DAY]
        first = msgspec.structs.replace(self, within=[*self.within, *recent])
        if floor is not None and floor >= first_id(since):
            return [first]
        return [first, self]

    def rows(self, limit: int, *, after: object | None, until: object | None) -> Select[Any]:
        """The newest ones that fit.

        Args:
            after: a cursor: those before this id.
            until: where the walk ends; what has this id is looked at.
        """
        table = self.table
        detail = select(job_detail.c.detail).where(job_detail.c.id == table.c.id).scalar_subquery()
        columns: list[Any] = [table.c[name] for name in _LIST_COLUMNS]
        columns += [table.c[name] if name in table.c else null().label(name) for name in ("finished", "content_type")]
        statement: Select[Any] = select(*columns, detail.label("detail"))  # pyright: ignore[reportAssignmentType]
        return self._newest(statement, after, until).limit(limit)

    def count(self, cap: int, *, until: object | None) -> Select[Any]:
        """How many fit, up to `cap` + 1."""
        one: Any = literal_column("1")  # pyright: ignore[reportUnknownVariableType]
        found = self._newest(select(one).select_from(self.table), None, until).limit(cap + 1)
        return select(func.count()).select_from(found.subquery())

    def boundary(self, *, after: object | None) -> Select[Any]:
        """The id of the last row that the walk looks at, where there are so many."""
        id_ = self.table.c.id
        statement = select(id_).where(*self.within)
        if after is not None:
            statement = statement.where(id_ < after)
        return statement.order_by(id_.desc()).offset(BOUND - 1).limit(1)

    def _newest(self, statement: Select[Any], after: object | None, until: object | None) -> Select[Any]:
        id_ = self.table.c.id
        if after is not None:
            statement = statement.where(id_ < after)
        if until is not None:
            statement = statement.where(id_ >= until)
            if "ended" in self.table.columns:
                # What was submitted after that has not ended before it: earlier days are not looked at.
                statement = statement.where(self.table.c.ended >= submitted_at(str(until)) - DAY)
        return statement.where(*self.within, *self.rest).order_by(id_.desc())


def scans(which: JobFilter, known: Known) -> list[Scan]:
    """What answers the filter: live jobs first, so that one that ends meanwhile is not missed."""
    found: list[Scan] = []
    states = {CODES[state] for state in which.states if state in CODES}
    terminal = {CODES[state] for state in TERMINAL}
    if not which.states or states - terminal:
        found.append(_scan(job, which, known, states=states - terminal))
    if not which.states:
        found.append(_scan(job_history, which, known))
    elif _SUCCEEDED in states:
        found.append(_scan(job_history, which, known, states=states & terminal))
    else:
        # One walk a state: each has an index of its own in which it is a small part.
        found += [_scan(job_history, which, known, state=state) for state in sorted(states & terminal)]
    return found


def _scan(
    table: Table, which: JobFilter, known: Known, *, states: Iterable[int] = (), state: int | None = None
) -> Scan:
    columns = table.c
    within = _id_conditions(table, which, known)
    rest = _row_conditions(table, which)
    names: list[_Condition] = []
    if known.tenant is not None:
        names.append(columns.tenant == known.tenant)
    if known.tasks is not None:
        names.append(columns.task.in_(known.tasks))
    if state is not None:
        names.append(columns.state == literal_column(str(state)))
    if listed := sorted(states):
        rest.append(columns.state.in_([literal_column(str(each)) for each in listed]))
    if known.queues is not None:
        rest.append(columns.queue.in_(known.queues))
    has_index = table is job_history and (
        known.tasks is None or (len(known.tasks) == 1 and known.tenant is not None and (state is None or state))
    )
    if has_index:
        within += names
    else:
        rest += names
    if known.ids is not None:
        return Scan(table, within + rest, [])
    # What has a beginning says by itself which days it is about.
    is_parted = len(names) <= 1 and which.submitted_from is None
    until = (which.submitted_before or _LAST_INSTANT) if is_parted else None
    return Scan(table, within, rest, until)


def _id_conditions(table: Table, which: JobFilter, known: Known) -> list[_Condition]:
    id_ = table.c.id
    found: list[_Condition] = []
    if known.ids is not None:
        found.append(id_.in_(known.ids))
    if which.submitted_from is not None:
        found.append(id_ >= first_id(which.submitted_from))
        if "ended" in table.columns:
            # No job ends before it was submitted, by whichever of two clocks: days before that are not looked at.
            found.append(table.c.ended >= which.submitted_from - DAY)
    if which.submitted_before is not None:
        found.append(id_ < first_id(which.submitted_before))
    return found


def _row_conditions(table: Table, which: JobFilter) -> list[_Condition]:
    columns = table.c
    found: list[_Condition] = []
    if which.keys:
        found.append(columns.key.in_(which.keys))
    if which.errors:
        found.append(columns.error_type.in_(which.errors))
    if which.due_from is not None:
        found.append(columns.due >= which.due_from)
    if which.due_before is not None:
        found.append(columns.due < which.due_before)
    if which.min_attempt is not None:
        found.append(columns.attempt >= which.min_attempt)
    if which.min_ran is not None:
        has_end = "finished" in columns
        found.append(columns.finished - columns.started >= which.min_ran if has_end else false())
    if which.min_waited is not None:
        found.append(columns.started - columns.due >= which.min_waited)
    if which.labels:
        labels = cast(job_detail.c.detail, JSON)["labels"]
        has_all = and_(*(labels[name].as_string() == value for name, value in which.labels))
        found.append(exists().where(job_detail.c.id == columns.id, has_all))
    return found


def first_id(instant: int) -> str:
    """The smallest id of a job submitted at this instant (ms since the epoch)."""
    digits = f"{min(max(instant, 0), _LAST_INSTANT):012x}"
    return f"{digits[:8]}-{digits[8:]}-0000-0000-000000000000"


def page_of(jobs: Iterable[JobRecord], floors: Iterable[str], limit: int) -> JobPage:
    """The page of what the scans have found.

    Args:
        jobs: from all scans, in any order; one that ended meanwhile may be there twice, the ended one last.
        floors: the ids at which scans have stopped.
    """
    floor = max(floors, default="")
    found = {one.id: one for one in jobs if one.id >= floor}
    newest = sorted(found.values(), key=lambda one: one.id, reverse=True)
    if len(newest) > limit:
        return JobPage(newest[:limit], newest[limit - 1].id)
    return JobPage(newest, floor or None, is_bounded=bool(floor))
