"""New runs: each begins with a row in its inbox."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.jobs import NewRun, StartedRun
from taskmq.errors import InvalidOption
from taskmq.model.runs.graphs import WorkflowContent, load_graph
from taskmq.model.runs.machine import open_run
from taskmq.model.runs.records import RunRecord, RunState
from taskmq.model.runs.validation import find_wrong_parameter
from taskmq.model.units import parse_duration, to_ms
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.runs.inbox import wake
from taskmq_sql.runs.workflows import content_of, current_version, forget_contents, has_version, keep_content
from taskmq_sql.steps import JobId, Steps, clock, first, together

__all__ = ["RUN_CODES", "check_content", "encode_run", "read_run", "start"]

RUN_CODES: Final[dict[RunState, int]] = {
    RunState.RUNNING: 1,
    RunState.SUCCEEDED: 2,
    RunState.FAILED: 3,
    RunState.CANCELLED: 4,
}
"""States of runs in the table; 0 is a run that is being deleted. A code is never reused for another meaning."""

_INSERT: Final = """
insert into taskmq.run (id, tenant, workflow, version, parent, state, record) values ($1, $2, $3, $4, $5, 1, $6)
on conflict (id) do nothing returning id"""
_VERSION_OF: Final = "select version from taskmq.run where id = $1"
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(RunRecord)
_params: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_content(content: bytes) -> str:
    """Return the version of a content.

    Raises:
        InvalidOption: it is not a text of `encode_workflow`.
    """
    try:
        load_graph(content)
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        raise InvalidOption(f"the content is not that of a workflow: {error}") from None
    return hashlib.sha256(content).hexdigest()


def start(runs: Sequence[NewRun]) -> Steps[list[StartedRun]]:
    """Implement `RunStore.start`."""
    now = yield from clock()
    started: list[StartedRun] = []
    for new in runs:
        answer = yield from _start(new, now)
        started.append(answer)
    yield from together([wake([each.id for each in started if each.is_new])])
    return started


def encode_run(run: RunRecord) -> bytes:
    """Encode the record of a run."""
    return _encoder.encode(run)


def read_run(record: bytes) -> RunRecord:
    """Decode the record of a run."""
    return _decoder.decode(record)


def _start(new: NewRun, now: int) -> Steps[StartedRun]:
    if not is_job_id(new.id):
        return StartedRun(id=new.id, is_new=False, refusal=f"{new.id[:100]!r} is not a UUID, as ids of runs are")
    if (before := (yield from first(_VERSION_OF, JobId(new.id)))) is not None:
        return StartedRun(id=new.id, is_new=False, version=before[0])
    version, text = yield from _find_content(new)
    if text is None:
        named = f"workflow {new.workflow!r} has no version {new.version!r}" if new.version else ""
        return StartedRun(id=new.id, is_new=False, refusal=named or f"there is no workflow {new.workflow!r}")
    graph = load_graph(text)
    if wrong := find_wrong_parameter(graph.content.params, msgspec.json.decode(new.params)):
        if new.content is not None:
            yield from forget_contents([version])
        return StartedRun(id=new.id, is_new=False, refusal=wrong)
    run = RunRecord(
        id=new.id,
        tenant=new.tenant,
        workflow=new.workflow,
        version=version,
        params=_complete(new.params, graph.content.params),
        timeout=_timeout_of(new, graph.content),
        labels=dict(new.labels),
        scheduled_for=new.scheduled_for,
        parent=new.parent,
        parent_step=new.parent_step,
        depth=new.depth,
        created=now,
    )
    open_run(run, len(graph.order))
    parent = JobId(new.parent) if new.parent else None
    made = yield from first(_INSERT, JobId(new.id), new.tenant, new.workflow, version, parent, encode_run(run))
    return StartedRun(id=new.id, is_new=made is not None, version=version)


def _find_content(new: NewRun) -> Steps[tuple[str, bytes | None]]:
    """Return version and content of a new run; None for the content if there is none."""
    if new.content is not None:
        version = check_content(new.content)
        yield from keep_content(version, new.content)
        return version, new.content
    version = new.version or (yield from current_version(new.tenant, new.workflow))
    if not (yield from has_version(new.tenant, new.workflow, version)):
        return version, None
    return version, (yield from content_of(version))


def _timeout_of(new: NewRun, content: WorkflowContent) -> int | None:
    """Return the maximum duration of a new run, ms; None: no limit."""
    if new.timeout is not None or content.timeout is None:
        return new.timeout
    return to_ms(parse_duration(content.timeout, what="timeout"))


def _complete(params: bytes, schemas: dict[str, dict[str, Any]]) -> bytes:
    """Return parameters with the defaults of those that are missing."""
    given = _params.decode(params)
    defaults = {
        name: msgspec.Raw(msgspec.json.encode(schema["default"]))
        for name, schema in schemas.items()
        if "default" in schema and name not in given
    }
    return msgspec.json.encode(given | defaults) if defaults else params
