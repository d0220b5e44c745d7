"""How jobs are looked for: a filter as conditions on the tables, and the pages that come of it.

A filter is answered by *scans*: of the live jobs, and of the ended ones by an index. A scan walks down the ids within
what its index tells apart, and checks the rest of the filter row by row; where there is such a rest it stops after
`BOUND` rows, and the page says so. So no filter makes the database read a whole table. To find out where that is
takes longer than most pages do: these are full after a *glance* at the newest thousand.

A statement names the whole order of its index, also of the columns of which it wants one value: no other index has
that order, so the planner takes this one, whatever it knows of the tables. So one plan does for every tenant, and is
kept: with 30 days, making one takes five times as long as carrying it out.

Ended jobs are divided by the day of their end. What was submitted of late has ended of late: the newest days are
asked first, and all of them only where these do not fill the page. So a page costs what is in these days, however
many are kept. Of a tenant's jobs of one task, or of one state, there are often too few: all days are asked at once.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import JobPage, JobRecord
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.filters import UNSUCCESSFUL, JobFilter
from taskmq.model.states import TERMINAL, JobState
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.jobs.partitions import DAY
from taskmq_sql.jobs.tables import SCHEMA
from taskmq_sql.postgres.statements import JOB_COLUMNS

__all__ = ["BOUND", "Known", "Scan", "Statement", "first_id", "page_of", "scans"]

BOUND: Final = 20_000
"""Rows that one scan looks at for one page."""
_GLANCE: Final = 1_000
_SUCCEEDED: Final = 5
_RUNNING: Final = CODES[JobState.RUNNING]
_WAITS_FOR_WORKER: Final = f"({CODES[JobState.QUEUED]}, {CODES[JobState.DISPATCHED]})"
# A retry or a pause gives a job another time, which may be later than its first start.
_STARTS: Final = "when first_started >= due then first_started when started >= due then started"
# Once a statement, as its own plan node.
_NOW: Final = f"(select {SCHEMA}.now_ms())"
_ARRAYS: Final = {"tenant": "int[]", "state": "smallint[]"}
_LAST_INSTANT: Final = 2**48 - 1
_LIVE: Final = "job"
_ENDED: Final = "job_history"
_COLUMNS: Final = JOB_COLUMNS.removesuffix(", body")
_DETAIL: Final = f"(select detail from {SCHEMA}.job_detail d where d.id = t.id) as detail"
_LISTED: Final = {
    _LIVE: f"select {_COLUMNS}, null::bigint as finished, null::text as content_type, {_DETAIL}",
    _ENDED: f"select {_COLUMNS}, finished, content_type, retried_as, {_DETAIL}",
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
        names: the columns that its index has before the id, and what they are.
        conditions: others for which the walk needs no bound.
        rest: what is checked row by row.
        since, before: the range of the ids; `before` is not in it.
        ids: those that are given: nothing is walked.
        until_submitted: of what is looked for day by day: it was submitted before this instant.
    """

    table: str
    names: Sequence[tuple[str, object]] = ()
    conditions: Sequence[_Part] = ()
    rest: Sequence[_Part] = ()
    since: str | None = None
    before: str | None = None
    ids: Sequence[str] | None = None
    until_submitted: int | None = None

    def windows(self, newest: int, *, floor: str | None) -> "list[Scan]":
        """Walks of which the first one that fills a page is enough: what was submitted in the day up to `newest`
        (ms), in few days of the table; then everything.

        Args:
            floor: where the walk ends.
        """
        if self.until_submitted is None or self.table != _ENDED:
            return [self]
        recent = min(newest, self.until_submitted) - DAY
        first = msgspec.structs.replace(
            self, since=first_id(recent), conditions=[*self.conditions, ("ended >= {}", (recent - DAY,))]
        )
        if floor is not None and floor >= first_id(recent):
            return [first]
        return [first, self]

    def glance(self, limit: int, *, after: str | None) -> Statement:
        """The newest ones that fit among the first thousand, where what is checked row by row often fits."""
        newest = self._select("select *", self._source, self._range(after), _GLANCE)
        return _statement(self._select(_LISTED[self.table], (f"({newest[0]}) t", newest[1]), self.rest, limit))

    def rows(self, limit: int, *, after: str | None, until: str | None) -> Statement:
        """The newest ones that fit.

        Args:
            after: a cursor: those before this id.
            until: where the walk ends; what has this id is looked at.
        """
        return _statement(self._select(_LISTED[self.table], self._source, self._all(after, until), limit))

    def count(self, cap: int, *, until: str | None) -> Statement:
        """How many fit, up to `cap` + 1."""
        text, values = self._select("select 1", self._source, self._all(None, until), cap + 1)
        return _statement((f"select count(*) from ({text}) found", values))

    def boundary(self, *, after: str | None) -> Statement:
        """The id of the last row that the walk looks at, where there are so many."""
        text, values = self._select("select id", self._source, self._range(after), 1)
        return _statement((f"{text} offset {BOUND - 1}", values))

    @property
    def _source(self) -> _Part:
        table = f"{SCHEMA}.{self.table} t"
        if self.ids is None:
            return table, ()
        # Each as a walk down a range of one id: while a day is empty, a condition on the id alone may take any index
        # that has it somewhere.
        one = f"(select * from {table} where t.id >= i.id and t.id <= i.id order by t.id desc)"
        return f"(select f.* from unnest({{}}::uuid[]) as i(id) cross join lateral {one} f offset 0) t", (self.ids,)

    def _all(self, after: str | None, until: str | None) -> list[_Part]:
        found = [*self._range(after, until), *self.rest]
        if until is not None and self.table == _ENDED:
            found.append(_ended_after(until))
        return found

    def _range(self, after: str | None, until: str | None = None) -> list[_Part]:
        """Where the walk begins and ends.

        An order does not need a column that is equal to one value, and another index may have the rest of that order:
        so the first column is looked for in a list, and the second in a range. A comparison of rows says where a walk
        begins, but does not end one; the range does.
        """
        first = max(filter(None, (self.since, until)), default=None)
        last = min(filter(None, (self.before, after)), default=None)
        found: list[_Part] = [(f"{name} = any({{}}::{_ARRAYS[name]})", ([value],)) for name, value in self.names[:1]]
        second = self.names[1:]
        columns = ", ".join([*(name for name, _ in second), "id"])
        marks = ", ".join(["{}"] * (len(second) + 1))
        for comparison, job_id in (("<", last), (">=", first)):
            if job_id is not None:
                found.append((f"({columns}) {comparison} ({marks})", (*(value for _, value in second), job_id)))
        for name, value in second:
            found += [(f"{name} <= {{}}", (value,)), (f"{name} >= {{}}", (value,))]
        return [*found, *self.conditions]

    def _select(self, head: str, source: _Part, conditions: Sequence[_Part], limit: int) -> _Part:
        where = " and ".join(text for text, _ in conditions) or "true"
        order = ", ".join(f"{column} desc" for column in (*(name for name, _ in self.names), "id"))
        values = tuple(value for _, given in (source, *conditions) for value in given)
        return f"{head} from {source[0]} where {where} order by {order} limit {{}}", (*values, limit)


def scans(which: JobFilter, known: Known) -> list[Scan]:
    """What answers the filter: live jobs first, so that one that ends meanwhile is not missed."""
    found: list[Scan] = []
    states = {CODES[state] for state in which.states if state in CODES}
    terminal = {CODES[state] for state in TERMINAL}
    if which.retried != "yes" and (not which.states or states - terminal):
        found.append(_scan(_LIVE, which, known, states=states - terminal))
    if not which.states:
        found.append(_scan(_ENDED, which, known))
    elif _SUCCEEDED in states:
        found.append(_scan(_ENDED, which, known, states=states & terminal))
    else:
        # One walk a state: each has an index of its own in which it is a small part.
        found += [_scan(_ENDED, which, known, state=state) for state in sorted(states & terminal)]
    return found


def _scan(
    table: str, which: JobFilter, known: Known, *, states: Iterable[int] = (), state: int | None = None
) -> Scan:
    is_history = table == _ENDED
    names = _leading(known, state) if is_history and known.ids is None else {}
    conditions: list[_Part] = []
    if is_history and which.submitted_from is not None:
        conditions.append(_ended_after(first_id(which.submitted_from)))
    if is_history and which.finished_from is not None:
        conditions.append(("ended >= {}", (which.finished_from - DAY,)))
    if is_history and which.finished_before is not None:
        conditions.append(("ended < {}", (which.finished_before + DAY,)))
    if state is not None:
        # What the indexes of all that has not succeeded are made of.
        conditions.append((f"state <> {_SUCCEEDED}", ()))
        if "state" not in names:
            conditions.append(("state = {}", (state,)))
        if which.wants_retried(STATES[state]) is False:
            # Most are so, and a bound would make a count of them vague.
            conditions.append(("retried_as is null", ()))
    rest = _row_conditions(which, is_history=is_history)
    if listed := sorted(states):
        rest.append((f"state in ({', '.join(map(str, listed))})", ()))
    if known.queues is not None:
        rest.append(_among("queue", "int", known.queues))
    if known.tenant is not None and "tenant" not in names:
        rest.append(("tenant = {}", (known.tenant,)))
    if known.tasks is not None and "task" not in names:
        rest.append(_among("task", "int", known.tasks))
    since = None if which.submitted_from is None else first_id(which.submitted_from)
    before = None if which.submitted_before is None else first_id(which.submitted_before)
    if known.ids is not None:
        return Scan(table, (), [*conditions, *rest], since=since, before=before, ids=known.ids)
    # What has a beginning says by itself which days it is about.
    names_given = sum(name is not None for name in (known.tenant, known.tasks, state))
    is_parted = which.submitted_from is None and which.finished_from is None and names_given <= 1
    until = (which.submitted_before or _LAST_INSTANT) if is_parted else None
    return Scan(table, list(names.items()), conditions, rest, since, before, until_submitted=until)


def _leading(known: Known, state: int | None) -> dict[str, object]:
    """The columns before the id in the index of ended jobs that fits best, and what they are to be."""
    names: dict[str, object] = {} if known.tenant is None else {"tenant": known.tenant}
    if names and known.tasks is not None and len(known.tasks) == 1:
        names["task"] = known.tasks[0]
    elif state is not None:
        names["state"] = state
    return names


def _ended_after(job_id: str) -> _Part:
    """No job ends before it was submitted, by whichever of two clocks: days before that are not looked at."""
    return "ended >= {}", (submitted_at(job_id) - DAY,)


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
    for sign, instant in ((">=", which.finished_from), ("<", which.finished_before)):
        if instant is not None:
            # By a worker's clock, while the days are by the store's.
            found.append((f"finished {sign} {{}}", (instant,)) if is_history else ("false", ()))
    if which.min_attempt is not None:
        found.append(("attempt >= {}", (which.min_attempt,)))
    if which.min_ran is not None:
        ran = "finished - started >= {}" if is_history else f"state = {_RUNNING} and {_NOW} - started >= {{}}"
        found.append((ran, (which.min_ran,)))
    if which.min_waited is not None:
        until_now = "" if is_history else f" when state in {_WAITS_FOR_WORKER} then {_NOW}"
        found.append((f"case {_STARTS}{until_now} end - due >= {{}}", (which.min_waited,)))
    if is_history:
        found += _retried(which)
    if which.labels:
        has_all = " and ".join(["d.detail::json -> 'labels' ->> {}::text = {}"] * len(which.labels))
        detail = f"exists (select from {SCHEMA}.job_detail d where d.id = t.id and {has_all})"
        found.append((detail, tuple(part for label in which.labels for part in label)))
    return found


def _retried(which: JobFilter) -> list[_Part]:
    """Return the conditions on repetitions of ended jobs that the walk down one state does not have."""
    if which.retried == "yes":
        return [("retried_as is not null", ())]
    if which.retried == "no" and not which.states:
        return [("retried_as is null", ())]
    if JobState.SUCCEEDED in which.states and not which.retried and which.states & UNSUCCESSFUL:
        return [(f"(retried_as is null or state = {_SUCCEEDED})", ())]
    if JobState.SUCCEEDED in which.states and which.retried == "no":
        return [("retried_as is null", ())]
    return []


def _among(column: str, kind: str, values: Sequence[object]) -> _Part:
    if len(values) == 1:
        # Not as an array, whose rows no index has in the order of ids.
        return f"{column} = {{}}", (values[0],)
    return f"{column} = any({{}}::{kind}[])", ([*values],)


def _statement(part: _Part) -> Statement:
    text, values = part
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
