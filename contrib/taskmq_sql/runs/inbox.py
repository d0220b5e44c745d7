"""Inboxes of runs: sent rows, due timers, and the runs that have pending rows.

Rows of ended jobs are written by the statements that end the jobs, into columns of their own; `record` holds all
others. A row with neither only says that the run has more to do.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from taskmq.contracts.jobs import NewInboxRow
from taskmq.model.runs.records import InboxRow, StepRecord, StepTimer
from taskmq.model.runs.rules import StepState
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.runs.values import read_result
from taskmq_sql.steps import JobId, Query, Row, Steps, ask, clock, first, job_id, together

_EXISTS: Final = "select 1 from taskmq.run where id = $1 and state <> 0 for key share"
_SENDER: Final = """
insert into taskmq.run_answer (run, id) values ($1, $2) on conflict (run, id) do nothing returning id"""
_ANSWER: Final = "select answer from taskmq.run_answer where run = $1 and id = $2"
_ANSWERS: Final = """
insert into taskmq.run_answer (run, id, answer) @rows(uuid, text, text)
on conflict (run, id) do update set answer = excluded.answer"""
_PUT: Final = "insert into taskmq.run_inbox (run, record) @rows(uuid, bytea)"
# One probe per run, however many rows each has.
_PENDING: Final = """
with recursive r (run) as (
  select (select run from taskmq.run_inbox where run > $2 order by run limit 1)
  union all
  select (select i.run from taskmq.run_inbox i where i.run > r.run order by i.run limit 1)
  from r where r.run is not null)
select run from r where run is not null limit $1"""
_BEFORE_ALL: Final = "00000000-0000-0000-0000-000000000000"
# With the ended steps and children. Scalar subqueries, as PostgreSQL would scan a new table for a join.
_READ: Final = """
select {of_run}run, number, address::text, rows, record, job, step, child, state, content_type, value, error,
  (select record from taskmq.run_step t where t.run = s.run and t.name = s.step and t.child = -1),
  (select record from taskmq.run_step t
   where t.run = s.run and t.name = s.step and t.child = s.child and s.child >= 0)
from (
  select r.*, count(*) over () as rows,
    sum(coalesce(length(r.value), 0)) over (order by r.run, r.number) - coalesce(length(r.value), 0) as ahead
  from (select ctid as address, * from taskmq.run_inbox where run = any($1::uuid[])
        order by run, number limit $2) r) s
where ahead < $3::bigint order by run, number"""
_READ_ROWS: Final = _READ.format(of_run="")
# With the run, and the mark of its row, which differs after each change.
_READ_ALONE: Final = _READ.format(
    of_run="""taskmq.now_ms(), (select xmin::text from taskmq.run u where u.id = s.run),
  (select record from taskmq.run u where u.id = s.run and u.state <> 0), """
)
# Rows are deleted together with a change of their run, which is locked, or has not changed since they were read. So
# the row that was read is still in its place.
_APPLIED: Final = "delete from taskmq.run_inbox where ctid = any($1::text[]::tid[])"
_APPLIED_END: Final = "delete from taskmq.run_inbox where run = $1 and job = $2"
_DUE: Final = """
select number, run, step, generation from taskmq.run_timer where at <= $1
order by at, number limit $2 for update skip locked"""
_FIRED: Final = "delete from taskmq.run_timer where number = any($1::bigint[])"
_NEXT: Final = "select at from taskmq.run_timer where at > $1 order by at, number limit 1"
_TIMERS: Final = "insert into taskmq.run_timer (at, generation, run, step) @rows(bigint, int, uuid, text)"

# Bytes of values that one transaction reads; a single larger one is read alone.
_MOST_BYTES: Final = 32 * 1024 * 1024
# More rows are applied in a transaction.
_FEW: Final = 10
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(InboxRow)
_step_decoder: Final = msgspec.json.Decoder(StepRecord)
_STATES: Final[dict[int, StepState]] = {
    CODES[JobState.SUCCEEDED]: StepState.SUCCEEDED,
    CODES[JobState.FAILED]: StepState.FAILED,
    CODES[JobState.EXPIRED]: StepState.FAILED,
    CODES[JobState.CANCELLED]: StepState.CANCELLED,
    CODES[JobState.SKIPPED]: StepState.SKIPPED,
    CODES[JobState.UPSTREAM_FAILED]: StepState.UPSTREAM_FAILED,
}


def send(run: str, row: NewInboxRow) -> Steps[bool]:
    """Implement `RunStore.send`."""
    if (yield from first(_EXISTS, JobId(run))) is None:
        return False
    if row.id and (yield from first(_SENDER, JobId(run), row.id)) is None:
        return True
    yield from together([put_rows([(run, InboxRow(number=0, **msgspec.structs.asdict(row)))])])
    return True


def answer(run: str, sender: str) -> Steps[str | None]:
    """Implement `RunStore.answer`."""
    found = yield from first(_ANSWER, JobId(run), sender)
    return None if found is None else found[0]


def write_answers(answers: Iterable[tuple[str, str, str]]) -> Query:
    """Write the effects of rows: run, id of the sender, effect."""
    return Query(_ANSWERS, tuple((JobId(run), sender, text) for run, sender, text in sorted(answers)))


def pending(limit: int, after: str) -> Steps[list[str]]:
    """Implement `RunStore.pending`."""
    return [job_id(row[0]) for row in (yield from ask(_PENDING, limit, JobId(after or _BEFORE_ALL)))]


def wake(runs: Iterable[str]) -> Query:
    """Record that these runs have more to do."""
    return put_rows((run, None) for run in runs)


def put_rows(rows: Iterable[tuple[str, InboxRow | None]]) -> Query:
    """Add rows to the inboxes of runs; None only records that the run has more to do."""
    return Query(_PUT, tuple((JobId(run), None if row is None else _encoder.encode(row)) for run, row in rows))


class Inbox:
    """The earliest rows of a run.

    Attributes:
        marks: numbers of the rows that only say that the run has more to do.
        steps: steps and children whose jobs have ended.
        is_cut: whether the run may have later rows.
    """

    def __init__(self) -> None:
        self.events: list[InboxRow] = []
        self.marks: list[int] = []
        self.steps: list[StepRecord] = []
        self.is_cut = False
        self._addresses: dict[int, Any] = {}
        self._texts: set[bytes] = set()

    def add(self, row: Row) -> None:
        """Add the next row."""
        number, address, _, record, job, *end, step, child = row
        self._addresses[number] = address
        if record is not None:
            self.events.append(read_record(number, record))
        elif job is not None:
            self.events.append(read_end(number, job_id(job), end))
            for text in {step, child} - self._texts - {None}:
                self._texts.add(text)
                self.steps.append(_step_decoder.decode(text))
        else:
            self.marks.append(number)

    def addresses(self, numbers: Iterable[int]) -> list[Any]:
        """Return the addresses of rows that were read, for `delete_rows`."""
        return [self._addresses[number] for number in numbers if number in self._addresses]


class LoneRun(NamedTuple):
    """A run that is advanced alone, as it was read or written last.

    Attributes:
        now: the store's time in ms.
        mark: of the run's row, which differs after each change.
    """

    now: int
    mark: str
    record: bytes
    inbox: Inbox


def read_inboxes(runs: Sequence[str], limit: int) -> Steps[dict[str, Inbox]]:
    """Return the earliest rows of runs: in the order of the runs' ids, up to `limit` together."""
    inboxes = {run: Inbox() for run in sorted(runs)}
    found = yield from ask(_READ_ROWS, list(map(JobId, inboxes)), limit, _MOST_BYTES)
    last = ""
    for run, *row in found:
        last = job_id(run)
        inboxes[last].add(row)
    if found and (len(found) == limit or len(found) < found[0][3]):
        for run, inbox in inboxes.items():
            inbox.is_cut = run >= last
    return inboxes


def read_alone(run: str) -> Steps[LoneRun | None]:
    """Read a run with its inbox; return None if it does not exist, or its inbox has no row or many."""
    found = yield from ask(_READ_ALONE, [JobId(run)], _FEW, _MOST_BYTES)
    if not found or len(found) == _FEW or len(found) < found[0][6] or found[0][2] is None:
        return None
    inbox = Inbox()
    for row in found:
        inbox.add(row[4:])
    now, mark, record = found[0][:3]
    return LoneRun(int(now), mark, record, inbox)


def delete_rows(addresses: Sequence[Any]) -> Query:
    """Delete rows that this transaction has read."""
    return Query(_APPLIED, (list(addresses),) if addresses else ())


def delete_end(run: str, job: str) -> Query:
    """Delete the row of an ended job, which was not read."""
    return Query(_APPLIED_END, (JobId(run), JobId(job)))


def read_record(number: int, record: bytes) -> InboxRow:
    """Return a row from its number and its record."""
    return msgspec.structs.replace(_decoder.decode(record), number=number)


def fire_timers(limit: int) -> Steps[int | None]:
    """Implement `RunStore.fire_timers`."""
    now = yield from clock()
    due = yield from ask(_DUE, now, limit)
    rows: list[Row] = []
    for _, run, step, generation in due:
        row = InboxRow(number=0, kind="timer", step=step, generation=generation)
        rows.append((JobId(job_id(run)), _encoder.encode(row)))
    if due:
        yield from together([Query(_PUT, tuple(rows)), Query(_FIRED, ([row[0] for row in due],))])
    if len(due) == limit:
        return now
    found = yield from first(_NEXT, now)
    return None if found is None else int(found[0])


def add_timers(timers: Iterable[tuple[str, StepTimer]]) -> Query:
    """Add timers of the steps of runs."""
    return Query(_TIMERS, tuple((each.at, each.generation, JobId(run), each.step) for run, each in timers))


def read_end(number: int, job: str, end: Sequence[Any]) -> InboxRow:
    """Return the row of an ended job; a result that no step can use makes it a failure.

    Args:
        end: name of the step, index of the child, code of the state, content type and result of the job, its error.
    """
    step, child, code, content_type, result, error = end
    state, value = _STATES[code], b"null"
    if state is StepState.SUCCEEDED:
        value, error = read_result(content_type, result)
        state = StepState.FAILED if error else state
    return InboxRow(
        number=number, kind="end", step=step, child=child, job=job, state=state, value=value, error=error or ""
    )
