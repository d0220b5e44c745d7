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
from taskmq.model.values.light_values import REFERENCE, join_values, keep_whole, read_reference
from taskmq_sql.steps import JobId, Query, Row, Steps, ask, first, insert, job_id

# A scalar subquery per row: PostgreSQL would scan the steps and children of a new table for a join.
_STEPS: Final = """
with k (run, name, child) as (@rows(uuid, text, int))
select k.run,
  (select record from taskmq.run_step s where s.run = k.run and s.name = k.name and s.child = k.child) from k"""
_CHILDREN_AFTER: Final = """
select record from taskmq.run_step where run = $1 and name = $2 and child > $3 order by run, name, child limit $4"""
_VALUES_OF: Final = """
with k (run, name) as (@rows(uuid, text))
select k.run, k.name,
  (select value from taskmq.run_step s where s.run = k.run and s.name = k.name and s.child = -1) from k"""
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
    """Return the result of a job as the value of a step, or why no step can use it."""
    if not result:
        # The task keeps no result.
        return b"null", ""
    if content_type == REFERENCE:
        content_type, blob = read_reference(result) or ("unknown", None)
        if blob is None or content_type != JSON:
            return b"null", (
                f"the result at results_at= has the content type {content_type!r}; steps of a workflow pass on JSON"
            )
        return keep_whole(blob), ""
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
            "set results_at=, or return less"
        )
    return value, ""


def steps(run: str, names: Sequence[str]) -> Steps[list[StepRecord]]:
    """Return those of these steps that have a record, in the order of their names."""
    found = yield from _read_steps([(run, StepKey(name)) for name in names])
    return sorted((step for _, step in found), key=lambda step: step.key.name)


def steps_of(names: Mapping[str, Sequence[str]]) -> Steps[dict[str, list[StepRecord]]]:
    """Implement `RunStore.steps_of`."""
    found: dict[str, list[StepRecord]] = {run: [] for run in names}
    keys = [(run, StepKey(name)) for run, wanted in names.items() for name in wanted]
    for run, step in (yield from _read_steps(keys)):
        found[run].append(step)
    return found


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
            values[key] = join_values(items[index] for index in range(step.total or 0))
    return values


def meet(needs: Sequence[tuple[Workspace, Need]]) -> Steps[None]:
    """Read what the state machines of runs need, each run's into its workspace."""
    here = {each.run.id: each for each, _ in needs}
    keys = [(each.run.id, key) for each, need in needs for key in need.steps]
    for run, step in (yield from _read_steps(keys)):
        here[run].put_steps([step])
    yield from _put_values([(each, name) for each, need in needs for name in need.values])
    for each, need in needs:
        if need.signal:
            rows = yield from ask(_SIGNALS, JobId(each.run.id), need.signal)
            each.put_signals(
                need.signal,
                [msgspec.structs.replace(_signal_decoder.decode(row[1]), number=row[0]) for row in rows],
            )


def write_steps(changed: Iterable[tuple[str, StepRecord, bytes | None]]) -> Query:
    """Write steps of runs, with the values of those that have succeeded."""
    return Query(
        _WRITE,
        tuple(
            (JobId(run), *step.key, _encoder.encode(step), value)
            for run, step, value in sorted(changed, key=lambda each: (each[0], each[1].key))
        ),
    )


def _read_steps(keys: Sequence[tuple[str, StepKey]]) -> Steps[list[tuple[str, StepRecord]]]:
    """Return those of these steps and children of runs that have a record."""
    found = yield from insert(_STEPS, [(JobId(run), *key) for run, key in keys])
    return [(job_id(run), _decoder.decode(record)) for run, record in found if record is not None]


def _put_values(wanted: Sequence[tuple[Workspace, str]]) -> Steps[None]:
    single: list[Row] = []
    here = {each.run.id: each for each, _ in wanted}
    for each, name in wanted:
        run = each.run.id
        if not each.content(StepKey(name)).has_children:
            single.append((JobId(run), name))
        elif fault := (yield from _describe_excess(run, name)):
            each.put_fault(name, fault)
        else:
            each.put_child_values(name, (yield from _child_values(run, name)))
    for run, name, value in (yield from insert(_VALUES_OF, single)):
        here[job_id(run)].put_value(name, None if value is None else bytes(value))


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
