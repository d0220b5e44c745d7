"""Steps of runs, their values, and the results of jobs as values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import MOST_VALUE_BYTES
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.runs.graphs import RunGraph
from taskmq.model.runs.records import InboxRow, StepKey, StepRecord
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.workspace import Need, Workspace
from taskmq_sql.steps import JobId, Query, Row, Steps, ask, first, insert

__all__ = ["children", "meet", "read_result", "read_values", "steps", "write_steps"]

_REFERENCE: Final = "taskmq/reference"
# A scalar subquery per row: PostgreSQL would scan the steps and children of a new table for a join.
_STEPS: Final = """
with k (run, name, child) as (@rows(uuid, text, int))
select (select record from taskmq.run_step s where s.run = k.run and s.name = k.name and s.child = k.child) from k"""
_CHILDREN_AFTER: Final = """
select record from taskmq.run_step where run = $1 and name = $2 and child > $3 order by run, name, child limit $4"""
_VALUE: Final = "select record, value from taskmq.run_step where run = $1 and name = $2 and child = $3"
_SIZE: Final = """
select sum(length(value)) from taskmq.run_step where run = $1 and name = $2 and child >= 0"""
_VALUES: Final = """
select child, value from taskmq.run_step
where run = $1 and name = $2 and child >= 0 and value is not null order by run, name, child"""
_SIGNALS: Final = "select number, record from taskmq.run_signal where run = $1 and name = $2 order by number"
_WRITE: Final = """
insert into taskmq.run_step (run, name, child, record, value) @rows(uuid, text, int, bytea, bytea)
on conflict (run, name, child) do update set
  record = excluded.record, value = coalesce(excluded.value, run_step.value)"""
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(StepRecord)
_signal_decoder: Final = msgspec.json.Decoder(InboxRow)


def read_result(content_type: str | None, result: bytes | None) -> tuple[bytes, str]:
    """Return the result of a job as JSON, or why no step can use it."""
    if not result:
        # The task keeps no result.
        return b"null", ""
    if content_type == _REFERENCE:
        return b"null", (
            "the result is kept in results_at=, from where no step can read it: return less, or a reference of your "
            "own, or raise result_inline="
        )
    value = bytes(result)
    if content_type == MSGPACK:
        try:
            value = msgspec.json.encode(msgspec.msgpack.decode(value))
        except (msgspec.MsgspecError, TypeError, ValueError):
            return b"null", "the result has no form in JSON, which steps of a workflow pass on"
    elif content_type != JSON:
        return b"null", f"the result has the content type {content_type!r}; steps of a workflow pass on JSON"
    if len(value) > MOST_VALUE_BYTES:
        return b"null", (
            f"the result has {len(value):,} bytes, and steps of a workflow pass on {MOST_VALUE_BYTES:,} at most: "
            "return less, or a reference of your own"
        )
    return value, ""


def steps(run: str, names: Sequence[str]) -> Steps[list[StepRecord]]:
    """Return those of these steps that have a record, in the order of their names."""
    return sorted((yield from _read_steps(run, map(StepKey, names))), key=lambda step: step.key.name)


def children(run: str, name: str, after: int, limit: int) -> Steps[list[StepRecord]]:
    """Implement `RunStore.children`."""
    return [_step(row) for row in (yield from ask(_CHILDREN_AFTER, JobId(run), name, max(after, -1), limit))]


def read_values(run: str, graph: RunGraph, keys: Iterable[StepKey]) -> Steps[dict[StepKey, bytes]]:
    """Implement `RunStore.values`."""
    values: dict[StepKey, bytes] = {}
    for key in dict.fromkeys(keys):
        found = yield from first(_VALUE, JobId(run), key.name, key.child)
        if found is None or (step := _step(found)).state is not StepState.SUCCEEDED:
            continue
        if key.is_child or not graph.step(key.name).has_children:
            values[key] = bytes(found[1])
        elif not (yield from _describe_excess(run, key.name)):
            items = yield from _child_values(run, key.name)
            values[key] = b"[" + b",".join(items[index] for index in range(step.total or 0)) + b"]"
    return values


def meet(run: str, here: Workspace, need: Need) -> Steps[None]:
    """Read what the state machine needs."""
    here.put_steps((yield from _read_steps(run, need.steps)))
    for name in need.values:
        yield from _put_value(run, here, name)
    if need.signal:
        rows = yield from ask(_SIGNALS, JobId(run), need.signal)
        here.put_signals(
            need.signal,
            [msgspec.structs.replace(_signal_decoder.decode(row[1]), number=row[0]) for row in rows],
        )


def write_steps(run: str, changed: Mapping[StepKey, StepRecord], values: Mapping[StepKey, bytes]) -> Query:
    """Write steps, with the values of those that have succeeded."""
    return Query(
        _WRITE,
        tuple((JobId(run), *key, _encoder.encode(changed[key]), values.get(key)) for key in sorted(changed)),
    )


def _read_steps(run: str, keys: Iterable[StepKey]) -> Steps[list[StepRecord]]:
    """Return those of these steps and children that have a record."""
    found = yield from insert(_STEPS, [(JobId(run), *key) for key in keys])
    return [_step(row) for row in found if row[0] is not None]


def _put_value(run: str, here: Workspace, name: str) -> Steps[None]:
    if here.content(StepKey(name)).has_children:
        if fault := (yield from _describe_excess(run, name)):
            here.put_fault(name, fault)
        else:
            here.put_child_values(name, (yield from _child_values(run, name)))
        return
    found = yield from first(_VALUE, JobId(run), name, -1)
    here.put_value(name, None if found is None or found[1] is None else bytes(found[1]))


def _describe_excess(run: str, name: str) -> Steps[str]:
    """Return why the values of a step's children are too large for a list; "" if they are not."""
    found = yield from first(_SIZE, JobId(run), name)
    size = 0 if found is None else int(found[0] or 0)
    if size <= MOST_VALUE_BYTES:
        return ""
    return (
        f"the results of step {name} have {size:,} bytes together, and steps of a workflow pass on "
        f"{MOST_VALUE_BYTES:,} at most: let its jobs return less, or references"
    )


def _child_values(run: str, name: str) -> Steps[dict[int, bytes]]:
    return {row[0]: bytes(row[1]) for row in (yield from ask(_VALUES, JobId(run), name))}


def _step(row: Row) -> StepRecord:
    return _decoder.decode(row[0])
