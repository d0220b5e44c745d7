"""Events of runs: sent rows, due timers, and the runs that have some.

Rows of ended jobs are written by the statements that end the jobs, into columns of their own; `record` holds all
others. A row with neither only says that the run has more to do.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.jobs import NewInboxRow
from taskmq.model.runs.records import InboxRow, StepTimer
from taskmq.model.runs.rules import StepState
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.runs.values import read_result
from taskmq_sql.steps import JobId, Row, Steps, ask, clock, first, insert, job_id

__all__ = [
    "add_timers",
    "answer",
    "fire_timers",
    "pending",
    "put_rows",
    "read_inbox",
    "read_record",
    "send",
    "wake",
    "write_answers",
]

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
  select (select run from taskmq.run_inbox order by run limit 1)
  union all
  select (select i.run from taskmq.run_inbox i where i.run > r.run order by i.run limit 1)
  from r where r.run is not null)
select run from r where run is not null limit $1"""
_READ: Final = """
select number, record, job, step, child, state, content_type, value, error from (
  select r.*, sum(coalesce(length(r.value), 0)) over (order by r.number) - coalesce(length(r.value), 0) as ahead
  from (select * from taskmq.run_inbox where run = $1 order by number limit $2) r) s
where ahead < $3::bigint order by number"""
_DUE: Final = """
select number, run, step, generation from taskmq.run_timer where at <= $1
order by at, number limit $2 for update skip locked"""
_FIRED: Final = "delete from taskmq.run_timer where number = any($1::bigint[])"
_NEXT: Final = "select at from taskmq.run_timer where at > $1 order by at, number limit 1"
_TIMERS: Final = "insert into taskmq.run_timer (at, generation, run, step) @rows(bigint, int, uuid, text)"

# Bytes of values that one transaction reads; a single larger one is read alone.
_MOST_BYTES: Final = 32 * 1024 * 1024
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(InboxRow)
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
    yield from put_rows(run, [InboxRow(number=0, **msgspec.structs.asdict(row))])
    return True


def answer(run: str, sender: str) -> Steps[str | None]:
    """Implement `RunStore.answer`."""
    found = yield from first(_ANSWER, JobId(run), sender)
    return None if found is None else found[0]


def write_answers(run: str, answers: dict[str, str]) -> Steps[None]:
    """Write the effects of rows, by the ids of their senders."""
    yield from insert(_ANSWERS, [(JobId(run), sender, text) for sender, text in sorted(answers.items())])


def pending(limit: int) -> Steps[list[str]]:
    """Implement `RunStore.pending`."""
    return [job_id(row[0]) for row in (yield from ask(_PENDING, limit))]


def wake(runs: Sequence[str]) -> Steps[None]:
    """Record that these runs have more to do."""
    yield from insert(_PUT, [(JobId(run), None) for run in runs])


def put_rows(run: str, rows: Sequence[InboxRow]) -> Steps[None]:
    """Add rows to the inbox of a run."""
    yield from insert(_PUT, [(JobId(run), _encoder.encode(row)) for row in rows])


def read_inbox(run: str, limit: int) -> Steps[tuple[list[InboxRow], list[int]]]:
    """Return the earliest rows of a run, and the numbers of those that only say that it has more to do."""
    events: list[InboxRow] = []
    others: list[int] = []
    for number, record, job, *end in (yield from ask(_READ, JobId(run), limit, _MOST_BYTES)):
        if record is not None:
            events.append(read_record(number, record))
        elif job is not None:
            events.append(_read_end(number, job_id(job), end))
        else:
            others.append(number)
    return events, others


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
    yield from insert(_PUT, rows)
    yield from ask(_FIRED, [row[0] for row in due])
    if len(due) == limit:
        return now
    found = yield from first(_NEXT, now)
    return None if found is None else int(found[0])


def add_timers(run: str, timers: Sequence[StepTimer]) -> Steps[None]:
    """Add timers of steps."""
    yield from insert(_TIMERS, [(each.at, each.generation, JobId(run), each.step) for each in timers])


def _read_end(number: int, job: str, end: Sequence[Any]) -> InboxRow:
    """Return the row of an ended job; a result that no step can use makes it a failure."""
    step, child, code, content_type, result, error = end
    state, value = _STATES[code], b"null"
    if state is StepState.SUCCEEDED:
        value, error = read_result(content_type, result)
        state = StepState.FAILED if error else state
    return InboxRow(
        number=number, kind="end", step=step, child=child, job=job, state=state, value=value, error=error or ""
    )
