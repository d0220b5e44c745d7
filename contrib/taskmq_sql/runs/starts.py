"""New runs: each begins with a row in its inbox, and with a place if its workflow limits the active ones."""

import hashlib
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.contracts.jobs import NewRun, StartedRun
from taskmq.errors import InvalidOption
from taskmq.model.runs.graphs import RunGraph, WorkflowContent, load_graph
from taskmq.model.runs.machine import open_run
from taskmq.model.runs.records import RunRecord, RunState
from taskmq.model.runs.validation import find_wrong_parameter
from taskmq.model.units import parse_duration, to_ms
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.runs.inbox import wake
from taskmq_sql.runs.places import add_places
from taskmq_sql.runs.workflows import content_of, current_version, forget_contents, has_version, keep_content
from taskmq_sql.steps import JobId, Row, Steps, ask, clock, insert, job_id, together

RUN_CODES: Final[dict[RunState, int]] = {
    RunState.RUNNING: 1,
    RunState.SUCCEEDED: 2,
    RunState.FAILED: 3,
    RunState.CANCELLED: 4,
    RunState.QUEUED: 5,
}
"""States of runs in the table; 0 is a run that is being deleted. A code is never reused for another meaning."""

_INSERT: Final = """
insert into taskmq.run (id, tenant, workflow, version, parent, state, record, created, due)
@rows(uuid, text, text, text, uuid, smallint, bytea, bigint, bigint)
on conflict (id) do nothing returning id"""
_VERSIONS_OF: Final = "select id, version from taskmq.run where id = any($1::uuid[])"
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(RunRecord)
_params: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_content(content: bytes) -> str:
    """Return the version of a content.

    Raises:
        InvalidOption: it is not a text of `encode_workflow`.
    """
    return _load_content(content).version


def start(runs: Sequence[NewRun]) -> Steps[list[StartedRun]]:
    """Implement `RunStore.start`."""
    now = yield from clock()
    versions = yield from _find_versions([new.id for new in runs if is_job_id(new.id)])
    sources = yield from _find_sources([new for new in runs if is_job_id(new.id) and new.id not in versions])
    started: list[StartedRun] = []
    rows: list[Row] = []
    queued: list[tuple[RunRecord, int]] = []
    unused: set[str] = set()
    for new in runs:
        if not is_job_id(new.id):
            refusal = f"{new.id[:100]!r} is not a UUID, as ids of runs are"
            started.append(StartedRun(id=new.id, is_new=False, refusal=refusal))
        elif new.id in versions:
            started.append(StartedRun(id=new.id, is_new=False, version=versions[new.id]))
        elif refusal := _find_refusal(new, source := sources[_key_of(new)]):
            started.append(StartedRun(id=new.id, is_new=False, refusal=refusal))
            unused |= {source.version} if new.content is not None else set()
        else:
            run, most = _open(new, source, now)
            rows.append(_row_of(run, due=new.due))
            if run.state is RunState.QUEUED:
                queued.append((run, most))
            versions[new.id] = source.version
            started.append(StartedRun(id=new.id, is_new=True, version=source.version))
    # Sorted, because other transactions may insert the same ids.
    made = {job_id(row[0]) for row in (yield from insert(_INSERT, sorted(rows, key=itemgetter(0))))}
    yield from together([wake(sorted(made)), add_places(each for each in queued if each[0].id in made)])
    if unused:
        yield from forget_contents(sorted(unused))
    return [replace(each, is_new=each.is_new and each.id in made) for each in started]


def encode_run(run: RunRecord) -> bytes:
    """Encode the record of a run."""
    return _encoder.encode(run)


def read_run(record: bytes) -> RunRecord:
    """Decode the record of a run."""
    return _decoder.decode(record)


class _Source(NamedTuple):
    """The content of new runs; `graph` is None if there is none."""

    version: str
    graph: RunGraph | None


_Key = bytes | tuple[str, str, str]


def _key_of(new: NewRun) -> _Key:
    """Return the content of a new run, or else tenant, name and version of its workflow."""
    return (new.tenant, new.workflow, new.version) if new.content is None else new.content


def _load_content(content: bytes) -> _Source:
    try:
        graph = load_graph(content)
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        raise InvalidOption(f"the content is not that of a workflow: {error}") from None
    return _Source(hashlib.sha256(content).hexdigest(), graph)


def _find_versions(run_ids: Sequence[str]) -> Steps[dict[str, str]]:
    """Return the versions of those of these runs that exist."""
    found = yield from ask(_VERSIONS_OF, list(map(JobId, run_ids)))
    return {job_id(row[0]): row[1] for row in found}


def _find_sources(runs: Sequence[NewRun]) -> Steps[dict[_Key, _Source]]:
    """Return the contents of new runs, and store those that come with a run."""
    sources: dict[_Key, _Source] = {}
    own = {content: _load_content(content) for content in {new.content for new in runs} if content is not None}
    # Sorted, because other transactions may lock the same contents and versions.
    for content, source in sorted(own.items(), key=lambda each: each[1].version):
        yield from keep_content(source.version, content)
        sources[content] = source
    for tenant, name, wanted in sorted(
        {(new.tenant, new.workflow, new.version) for new in runs if new.content is None}
    ):
        sources[tenant, name, wanted] = yield from _find_stored(tenant, name, wanted)
    return sources


def _find_stored(tenant: str, name: str, wanted: str) -> Steps[_Source]:
    """Return the content of a stored workflow, by default its current version.

    All tenants share a workflow without a tenant, unless they have one of that name.
    """
    for owner in dict.fromkeys((tenant, "")):
        version = wanted or (yield from current_version(owner, name))
        if (yield from has_version(owner, name, version)):
            text = yield from content_of(version)
            return _Source(version, None if text is None else load_graph(text))
    return _Source(wanted, None)


def _find_refusal(new: NewRun, source: _Source) -> str:
    """Return why a new run cannot start; "" if it can."""
    if source.graph is None:
        named = f"workflow {new.workflow!r} has no version {new.version!r}" if new.version else ""
        return named or f"there is no workflow {new.workflow!r}"
    return find_wrong_parameter(source.graph.content.params, msgspec.json.decode(new.params))


def _open(new: NewRun, source: _Source, now: int) -> tuple[RunRecord, int]:
    """Return a new run, and how many runs of its workflow may be active; 0: no limit."""
    graph = source.graph
    assert graph is not None
    run = RunRecord(
        id=new.id,
        tenant=new.tenant,
        workflow=new.workflow,
        version=source.version,
        params=_complete(new.params, graph.content.params),
        timeout=_timeout_of(new, graph.content),
        labels=dict(new.labels),
        scheduled_for=new.scheduled_for,
        parent=new.parent,
        parent_step=new.parent_step,
        depth=new.depth,
        created=now,
    )
    open_run(run, graph)
    return run, graph.content.max_active_runs or 0


def _row_of(run: RunRecord, *, due: int | None) -> Row:
    """Return the row of a new run."""
    parent = JobId(run.parent) if run.parent else None
    state, record = RUN_CODES[run.state], encode_run(run)
    return JobId(run.id), run.tenant, run.workflow, run.version, parent, state, record, run.created, due


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
