"""How jobs are looked for: a filter as conditions on the tables, and the pages that come of it.

A filter is answered by *scans*: of the live jobs, and of the ended ones by an index. A scan walks down the ids within
what its index tells apart, and checks the rest of the filter row by row; where there is such a rest it stops after
`BOUND` rows, and the page says so. So no filter makes the database read a whole table. To find out where that is
takes longer than most pages do: these are full after a *glance* at the newest thousand.

Ended jobs are divided by the day of their end. What was submitted of late has ended of late: the newest days are
asked first, and all of them only where these do not fill the page. So a page costs what is in these days, however
many are kept. Of a tenant's jobs of one task, or of one state, there are often too few: all days are asked at once.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import JobPage, JobRecord
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.jobs.partitions import DAY
from taskmq_sql.jobs.tables import SCHEMA, job, job_detail, job_history

__all__ = ["BOUND", "Known", "Scan", "Statement", "first_id", "page_of", "scans"]

BOUND: Final = 20_000
"""Rows that one scan looks at for one page."""
_GLANCE: Final = 1_000
_SUCCEEDED: Final = 5
_LAST_INSTANT: Final = 2**48 - 1
# Those that both tables have.
_COLUMNS: Final = ", ".join(
    column.name for column in job.columns if column.name in job_history.columns and column.name != "body"
)
_DETAIL: Final = f"(select detail from {SCHEMA}.{job_detail.name} d where d.id = t.id) as detail"
_LISTED: Final = {
    job.name: f"select {_COLUMNS}, null::bigint as finished, null::text as content_type, {_DETAIL}",
    job_history.name: f"select {_COLUMNS}, finished, content_type, {_DETAIL}",
}

Statement = tuple[str, list[object]]
"""Its text, with a `$1`, `$2` and so on for its values."""
# The same before its values have numbers: with a `{}` for each.
_Part = tuple[str, tuple[object, ...]]


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

    table: str
    within: Sequence[_Part]
    rest: Sequence[_Part]
    until_submitted: int | None = None

    def windows(self, newest: int, *, floor: str | None) -> "list[Scan]":
        """Walks of which the first one that fills a page is enough: what was submitted in the day up to `newest`
        (ms), in few days of the table; then everything.

        Args:
            floor: where the walk ends.
        """
        if self.until_submitted is None or self.table != job_history.name:
            return [self]
        since = min(newest, self.until_submitted) - DAY
        recent: list[_Part] = [("id >= {}", (first_id(since),)), ("ended >= {}", (since - DAY,))]
        first = msgspec.structs.replace(self, within=[*self.within, *recent])
        if floor is not None and floor >= first_id(since):
            return [first]
        return [first, self]

    def glance(self, limit: int, *, after: object | None) -> Statement:
        """The newest ones that fit among the first thousand, where what is checked row by row often fits."""
        newest = _select("select *", self._source, self._before(after), ("limit {}", (_GLANCE,)))
        return _statement(_LISTED[self.table], (f"({newest[0]}) t", newest[1]), self.rest, ("limit {}", (limit,)))

    def rows(self, limit: int, *, after: object | None, until: object | None) -> Statement:
        """The newest ones that fit.

        Args:
            after: a cursor: those before this id.
            until: where the walk ends; what has this id is looked at.
        """
        conditions = self._conditions(after, until)
        return _statement(_LISTED[self.table], self._source, conditions, ("limit {}", (limit,)))

    def count(self, cap: int, *, until: object | None) -> Statement:
        """How many fit, up to `cap` + 1."""
        conditions = self._conditions(None, until)
        text, values = _statement("select 1", self._source, conditions, ("limit {}", (cap + 1,)))
        return f"select count(*) from ({text}) found", values

    def boundary(self, *, after: object | None) -> Statement:
        """The id of the last row that the walk looks at, where there are so many."""
        return _statement("select id", self._source, self._before(after), ("offset {} limit 1", (BOUND - 1,)))

    @property
    def _source(self) -> _Part:
        return f"{SCHEMA}.{self.table} t", ()

    def _before(self, after: object | None) -> list[_Part]:
        return [*self.within] if after is None else [*self.within, ("id < {}", (after,))]

    def _conditions(self, after: object | None, until: object | None) -> list[_Part]:
        found = [*self._before(after), *self.rest]
        if until is not None:
            found.append(("id >= {}", (until,)))
            if self.table == job_history.name:
                # What was submitted after that has not ended before it: earlier days are not looked at.
                found.append(("ended >= {}", (submitted_at(str(until)) - DAY,)))
        return found


def scans(which: JobFilter, known: Known) -> list[Scan]:
    """What answers the filter: live jobs first, so that one that ends meanwhile is not missed."""
    found: list[Scan] = []
    states = {CODES[state] for state in which.states if state in CODES}
    terminal = {CODES[state] for state in TERMINAL}
    if not which.states or states - terminal:
        found.append(_scan(job.name, which, known, states=states - terminal))
    if not which.states:
        found.append(_scan(job_history.name, which, known))
    elif _SUCCEEDED in states:
        found.append(_scan(job_history.name, which, known, states=states & terminal))
    else:
        # One walk a state: each has an index of its own in which it is a small part.
        found += [_scan(job_history.name, which, known, state=state) for state in sorted(states & terminal)]
    return found


def _scan(
    table: str, which: JobFilter, known: Known, *, states: Iterable[int] = (), state: int | None = None
) -> Scan:
    is_history = table == job_history.name
    within = _id_conditions(which, known, is_history=is_history)
    rest = _row_conditions(which, is_history=is_history)
    names: list[_Part] = []
    if known.tenant is not None:
        names.append(("tenant = {}", (known.tenant,)))
    if known.tasks is not None:
        names.append(_among("task", "int", known.tasks))
    if state is not None:
        names.append((f"state = {state}", ()))
    if listed := sorted(states):
        rest.append((f"state in ({', '.join(map(str, listed))})", ()))
    if known.queues is not None:
        rest.append(_among("queue", "int", known.queues))
    has_index = is_history and (
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


def _id_conditions(which: JobFilter, known: Known, *, is_history: bool) -> list[_Part]:
    found: list[_Part] = []
    if known.ids is not None:
        found.append(_among("id", "uuid", known.ids))
    if which.submitted_from is not None:
        found.append(("id >= {}", (first_id(which.submitted_from),)))
        if is_history:
            # No job ends before it was submitted, by whichever of two clocks: days before that are not looked at.
            found.append(("ended >= {}", (which.submitted_from - DAY,)))
    if which.submitted_before is not None:
        found.append(("id < {}", (first_id(which.submitted_before),)))
    return found


def _row_conditions(which: JobFilter, *, is_history: bool) -> list[_Part]:
    found: list[_Part] = []
    if which.keys:
        found.append(_among("key", "text", which.keys))
    if which.errors:
        found.append(_among("error_type", "text", which.errors))
    if which.due_from is not None:
        found.append(("due >= {}", (which.due_from,)))
    if which.due_before is not None:
        found.append(("due < {}", (which.due_before,)))
    if which.min_attempt is not None:
        found.append(("attempt >= {}", (which.min_attempt,)))
    if which.min_ran is not None:
        found.append(("finished - started >= {}", (which.min_ran,)) if is_history else ("false", ()))
    if which.min_waited is not None:
        found.append(("started - due >= {}", (which.min_waited,)))
    if which.labels:
        has_all = " and ".join(["d.detail::json -> 'labels' ->> {}::text = {}"] * len(which.labels))
        detail = f"exists (select from {SCHEMA}.{job_detail.name} d where d.id = t.id and {has_all})"
        found.append((detail, tuple(part for label in which.labels for part in label)))
    return found


def _among(column: str, kind: str, values: Sequence[object]) -> _Part:
    if len(values) == 1:
        # Not as an array, whose rows no index has in the order of ids.
        return f"{column} = {{}}", (values[0],)
    return f"{column} = any({{}}::{kind}[])", ([*values],)


def _select(head: str, source: _Part, conditions: Sequence[_Part], tail: _Part) -> _Part:
    where = " and ".join(text for text, _ in conditions) or "true"
    values = tuple(value for _, given in (source, *conditions, tail) for value in given)
    return f"{head} from {source[0]} where {where} order by id desc {tail[0]}", values


def _statement(head: str, source: _Part, conditions: Sequence[_Part], tail: _Part) -> Statement:
    text, values = _select(head, source, conditions, tail)
    return text.format(*(f"${place}" for place in range(1, len(values) + 1))), [*values]


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
