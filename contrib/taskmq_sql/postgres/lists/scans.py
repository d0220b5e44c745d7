"""Job filters as SQL: conditions on the tables, and pages of the results.

A filter becomes *scans*: one of the live jobs, and index scans of the ended ones. A scan descends by id within the
leading columns of its index and checks the rest of the filter row by row. If there is such a rest, it stops after
`BOUND` rows, and the page is marked as bounded. So no filter reads a whole table. Finding the bound takes longer than
most pages do; these are complete after a *glance* at the newest thousand rows.

A statement orders by all columns of its index, even by those it fixes to one value. No other index has that order, so
the planner chooses this one whatever its statistics say. One plan serves every tenant and is cached: with 30 days,
planning takes five times as long as execution.

Ended jobs are partitioned by the day of their end. Jobs submitted recently ended recently: a page reads the newest
days first, and all days only if these do not fill it. So its cost depends on those days, however many are kept. For
one tenant's jobs of one task or one state there are often too few; such filters read all days at once.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import JobPage, JobRecord
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.filters import UNSUCCESSFUL, JobFilter
from taskmq.model.states import TERMINAL, JobState
from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.jobs.tables import SCHEMA
from taskmq_sql.postgres.statements import JOB_COLUMNS

BOUND: Final = 20_000
"""Most rows that one scan reads for one page."""
_GLANCE: Final = 1_000
_SUCCEEDED: Final = 5
_RUNNING: Final = CODES[JobState.RUNNING]
_WAITS_FOR_WORKER: Final = f"({CODES[JobState.QUEUED]}, {CODES[JobState.DISPATCHED]})"
# A retry or a pause moves `due`, possibly past the first start.
_STARTS: Final = "when first_started >= due then first_started when started >= due then started"
# Evaluated once per statement, as a separate plan node.
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
"""Text with `$1`, `$2` and so on, and its values."""
# The same with `{}` for each value, before the values are numbered.
_Part = tuple[str, tuple[object, ...]]


class Known(msgspec.Struct, frozen=True):
    """Names of a filter as numbers of the tables; None if the filter does not name any."""

    tenant: int | None = None
    tasks: Sequence[int] | None = None
    queues: Sequence[int] | None = None
    ids: Sequence[str] | None = None


class Scan(msgspec.Struct, frozen=True):
    """A descending scan of one table by id.

    Attributes:
        names: leading columns of its index before the id, and their values.
        conditions: other conditions that need no bound.
        rest: conditions checked row by row.
        since, before: the range of the ids, without `before`.
        ids: explicit ids: a lookup instead of a scan.
        until_submitted: if days are read newest first, the instant before which the jobs were submitted.
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
        """Return scans of which the first that fills a page suffices: jobs submitted in the day up to `newest` (ms),
        which touch few days of the table; then everything.

        Args:
            floor: id at which the scan stops.
        """
        if self.until_submitted is None or self.table != _ENDED:
            return [self]
        recent = min(newest, self.until_submitted) - DAY_MS
        first = msgspec.structs.replace(
            self, since=first_id(recent), conditions=[*self.conditions, ("ended >= {}", (recent - DAY_MS,))]
        )
        if floor is not None and floor >= first_id(recent):
            return [first]
        return [first, self]

    def glance(self, limit: int, *, after: str | None) -> Statement:
        """Select matching rows among the newest thousand, where row-by-row conditions often suffice."""
        newest = self._select("select *", self._source, self._range(after), _GLANCE)
        return _statement(self._select(_LISTED[self.table], (f"({newest[0]}) t", newest[1]), self.rest, limit))

    def rows(self, limit: int, *, after: str | None, until: str | None) -> Statement:
        """Select the newest matching rows.

        Args:
            after: a cursor: only ids below it.
            until: id at which the scan stops, inclusive.
        """
        return _statement(self._select(_LISTED[self.table], self._source, self._all(after, until), limit))

    def count(self, cap: int, *, until: str | None) -> Statement:
        """Count matching rows, up to `cap` + 1."""
        text, values = self._select("select 1", self._source, self._all(None, until), cap + 1)
        return _statement((f"select count(*) from ({text}) found", values))

    def count_states(self, most: int) -> Statement:
        """Count the newest rows of the index range by state: the matching ones, and all of them."""
        matching = " and ".join(text for text, _ in self.rest) or "true"
        text, values = self._select("select *", self._source, self._range(None), most)
        given = tuple(value for _, part in self.rest for value in part)
        head = f"select state, count(*) filter (where {matching}), count(*)"
        return _statement((f"{head} from ({text}) t group by state", (*given, *values)))

    def boundary(self, *, after: str | None) -> Statement:
        """Select the id of the last row within the bound, if the scan has that many rows."""
        text, values = self._select("select id", self._source, self._range(after), 1)
        return _statement((f"{text} offset {BOUND - 1}", values))

    @property
    def _source(self) -> _Part:
        table = f"{SCHEMA}.{self.table} t"
        if self.ids is None:
            return table, ()
        # Each id as a range of one id: while a day is empty, the planner may answer a condition on the id alone from
        # any index that contains it.
        one = f"(select * from {table} where t.id >= i.id and t.id <= i.id order by t.id desc)"
        return f"(select f.* from unnest({{}}::uuid[]) as i(id) cross join lateral {one} f offset 0) t", (self.ids,)

    def _all(self, after: str | None, until: str | None) -> list[_Part]:
        found = [*self._range(after, until), *self.rest]
        if until is not None and self.table == _ENDED:
            found.append(_ended_after(until))
        return found

    def _range(self, after: str | None, until: str | None = None) -> list[_Part]:
        """Return the conditions that limit the scan at both ends.

        An order ignores columns fixed by `=`, and another index may then provide it. So the first column is compared
        with a list, the second by a range. A row comparison sets the start of a scan but not its end; the range does
        that.
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
    """Return the scans that answer the filter, live jobs first, so that a job which ends meanwhile is not missed."""
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
        # One scan per state: each of them has a partial index.
        found += [_scan(_ENDED, which, known, state=state) for state in sorted(states & terminal)]
    return found


def _scan(
    table: str, which: JobFilter, known: Known, *, states: Iterable[int] = (), state: int | None = None
) -> Scan:
    is_history = table == _ENDED
    names = _leading_columns(known, state) if is_history and known.ids is None else {}
    conditions: list[_Part] = []
    if is_history and which.submitted_from is not None:
        conditions.append(_ended_after(first_id(which.submitted_from)))
    if is_history and which.finished_from is not None:
        conditions.append(("ended >= {}", (which.finished_from - DAY_MS,)))
    if is_history and which.finished_before is not None:
        conditions.append(("ended < {}", (which.finished_before + DAY_MS,)))
    if state is not None:
        # The condition of the partial indexes of unsuccessful jobs.
        conditions.append((f"state <> {_SUCCEEDED}", ()))
        if "state" not in names:
            conditions.append(("state = {}", (state,)))
        if which.wants_retried(STATES[state]) is False:
            # Most rows match, and a bound would make counts inexact.
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
    # A filter with a start already limits the days.
    names_given = sum(name is not None for name in (known.tenant, known.tasks, state))
    is_parted = which.submitted_from is None and which.finished_from is None and names_given <= 1
    until = (which.submitted_before or _LAST_INSTANT) if is_parted else None
    return Scan(table, list(names.items()), conditions, rest, since, before, until_submitted=until)


def _leading_columns(known: Known, state: int | None) -> dict[str, object]:
    """Return the leading columns and values of the best index of ended jobs."""
    names: dict[str, object] = {} if known.tenant is None else {"tenant": known.tenant}
    if names and known.tasks is not None and len(known.tasks) == 1:
        names["task"] = known.tasks[0]
    elif state is not None:
        names["state"] = state
    return names


def _ended_after(job_id: str) -> _Part:
    """Skip the days before the submission of a job, with a day of tolerance between two clocks."""
    return "ended >= {}", (submitted_at(job_id) - DAY_MS,)


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
            # `finished` is the worker's time, while the days are by the store's.
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
        found += _retry_conditions(which)
    if which.labels:
        has_all = " and ".join(["d.detail::json -> 'labels' ->> {}::text = {}"] * len(which.labels))
        detail = f"exists (select from {SCHEMA}.job_detail d where d.id = t.id and {has_all})"
        found.append((detail, tuple(part for label in which.labels for part in label)))
    return found


def _retry_conditions(which: JobFilter) -> list[_Part]:
    """Return the conditions on `retried_as` that the scan of one state does not imply."""
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
        # Not as an array: no index returns the rows of an array in the order of ids.
        return f"{column} = {{}}", (values[0],)
    return f"{column} = any({{}}::{kind}[])", ([*values],)


def _statement(part: _Part) -> Statement:
    text, values = part
    return text.format(*(f"${number}" for number in range(1, len(values) + 1))), [*values]


def first_id(instant: int) -> str:
    """Return the smallest id of a job submitted at this instant (ms since the epoch)."""
    digits = f"{min(max(instant, 0), _LAST_INSTANT):012x}"
    return f"{digits[:8]}-{digits[8:]}-0000-0000-000000000000"


def page_of(jobs: Iterable[JobRecord], floors: Iterable[str], limit: int) -> JobPage:
    """Combine the scans' results into a page.

    Args:
        jobs: of all scans, in any order; a job that ended meanwhile may occur twice, the ended row last.
        floors: the ids at which scans stopped.
    """
    floor = max(floors, default="")
    found = {one.id: one for one in jobs if one.id >= floor}
    newest = sorted(found.values(), key=lambda one: one.id, reverse=True)
    if len(newest) > limit:
        return JobPage(newest[:limit], newest[limit - 1].id)
    return JobPage(newest, floor or None, is_bounded=bool(floor))
