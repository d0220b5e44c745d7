"""Runs of workflows: list, inspect, signal, close, cancel and redrive."""

import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from taskmq.api.history.logs import LineList
from taskmq.api.jobs import ResultProblem
from taskmq.api.problems import problem_of
from taskmq.api.workflows.definitions import StartedRunView
from taskmq.api.workflows.runs import (
    CloneRunBody,
    RedrivenRun,
    RunChildList,
    RunGraphView,
    RunLineList,
    RunPlaceView,
    RunStepList,
    RunStepMark,
    RunTimeline,
    SignalBody,
    SignalledRun,
    WorkflowRunView,
)
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.history.logs import line_list
from taskmq.app_api.runs.timelines import build_rows, ready_times
from taskmq.app_api.runs.views import child_view, line_view, mark_view, step_view
from taskmq.app_api.views import view_of
from taskmq.contracts.history import history_of
from taskmq.contracts.jobs import NewInboxRow, NewRun, RunFilter
from taskmq.errors import (
    InvalidOption,
    NotPermitted,
    RequestRefused,
    ResultDamaged,
    ResultExpired,
    RunNotFound,
    UnsupportedFeature,
)
from taskmq.model.envelope import new_job_id
from taskmq.model.history.logs import LogFilter, read_level
from taskmq.model.identity import Permission
from taskmq.model.jobs.filter_text import parse_run_filter
from taskmq.model.keys import run_id_of, tenant_key
from taskmq.model.runs.built_graphs import begun_content
from taskmq.model.runs.graphs import RunGraph, encode_workflow, load_graph
from taskmq.model.runs.records import RunRecord, RunState, StepRecord
from taskmq.model.runs.redrives import explain_refusal, find_revived
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.validation import find_wrong_parameter
from taskmq.model.units import did_you_mean
from taskmq.schedules.target import SCHEDULE_LABEL
from taskmq.workflow.runs.calls import find_calls
from taskmq.workflow.runs.service import RunService, check_form

_LONGEST_CURSOR: Final = 10
_MOST_MARKS: Final = 100


class AppRuns(AppCalls):
    """Runs by id. Methods raise `RunNotFound`; changes raise `NotPermitted` for tasks that are not allowed.

    A scheduler applies a change. Methods wait for it up to ten seconds; later it still applies.
    """

    async def get(self, run_id: str) -> WorkflowRunView:
        run = await self._find(run_id)
        shows_data = self._caller.may(Permission.JOBS_READ, run.tenant)
        value, problem = await self._read_value(run) if shows_data else (None, None)
        place = await self._service.store.place(run.id) if run.state is RunState.QUEUED else None
        return WorkflowRunView(
            **msgspec.structs.asdict(line_view(run, _width(await self._graph(run.version)))),
            params=msgspec.json.decode(run.params, type=dict[str, Any]) if shows_data else None,
            value=value,
            value_problem=problem,
            place=None if place is None else view_of(RunPlaceView, place),
        )

    async def _read_value(self, run: RunRecord) -> tuple[Any, ResultProblem | None]:
        """Return the value of a run, or why it is unavailable, so that the run can still be shown."""
        if (stored := await self._service.store.run_value(run.id)) is None:
            return None, None
        try:
            return msgspec.json.decode(await self._service.load_value(run.id, stored)), None
        except (ResultExpired, ResultDamaged, UnsupportedFeature) as error:
            problem = problem_of(error)
            return None, ResultProblem(code=problem.code, detail=problem.detail)

    async def page(
        self, which: str = "", *, limit: int = 50, cursor: str | None = None, expand: Sequence[str] = ()
    ) -> RunLineList:
        """Return a page of runs, newest first.

        Raises:
            InvalidFilter: the filter cannot be parsed.
            InvalidOption: the cursor is malformed.
        """
        fields = parse_run_filter(which, self._app.sessions.clock.now_ms())
        if self._caller.tenant is not None:
            if fields.get("tenant", self._caller.tenant) != self._caller.tenant:
                return RunLineList(items=[], next=None)
            fields["tenant"] = self._caller.tenant
        page = await self._service.store.list_runs(RunFilter(**fields), after=cursor or None, limit=limit)
        graphs = {version: await self._graph(version) for version in {run.version for run in page.runs}}
        marks = await self._marks(page.runs, graphs) if "steps" in expand else {}
        items = [line_view(run, _width(graphs[run.version]), marks.get(run.id)) for run in page.runs]
        return RunLineList(items=items, next=page.after, is_bounded=page.is_bounded)

    async def steps(self, run_id: str, *, limit: int = 50, cursor: str | None = None) -> RunStepList:
        run = await self._find(run_id)
        graph = await self._service.graph(run)
        names = sorted(name for name in graph.order if name > (cursor or ""))
        records = {
            step.key.name: step for step in await self._service.store.steps(run.id, after=cursor or "", limit=limit)
        }
        items = [step_view(graph, name, records.get(name)) for name in names[:limit]]
        return RunStepList(items, names[limit - 1] if len(names) > limit else None)

    async def children(self, run_id: str, step: str, *, limit: int = 50, cursor: str | None = None) -> RunChildList:
        run = await self._find(run_id)
        graph = await self._service.graph(run)
        found, more = await self._children(run, graph, step, limit=limit, cursor=cursor)
        return RunChildList([child_view(record) for record in found], more)

    async def graph(self, run_id: str) -> RunGraphView:
        run = await self._find(run_id)
        graph = await self._service.graph(run)
        steps = [step_view(graph, name, record) for name, record in (await self._service.steps(run)).items()]
        return RunGraphView(
            run_id=run.id, workflow=run.workflow, version=run.version, steps=steps, params=graph.content.params
        )

    async def timeline(
        self, run_id: str, *, step: str = "", limit: int = 50, cursor: str | None = None
    ) -> RunTimeline:
        run = await self._find(run_id)
        graph = await self._service.graph(run)
        steps = await self._service.steps(run)
        if step:
            found, more = await self._children(run, graph, step, limit=limit, cursor=cursor)
        else:
            after = _number(cursor)
            found = list(steps.values())[after + 1 : after + 1 + limit]
            more = str(after + limit) if len(steps) > after + 1 + limit else None
        ready = ready_times(graph, run, list(steps.values()))
        return RunTimeline(items=await build_rows(self._service.jobs, graph, found, ready), next=more)

    async def logs(
        self,
        run_id: str,
        *,
        step: str = "",
        level: str = "debug",
        text: str = "",
        limit: int = 50,
        cursor: str | None = None,
    ) -> LineList:
        """Return log lines of all jobs of a run; continue with `cursor=page.next`, even after the last one.

        Pages follow the order in which the lines were stored, and the lines of a page that of their times.

        Raises:
            InvalidOption: the level is unknown.
        """
        which = LogFilter(run=await self.find_id(run_id), step=step, level=read_level(level), text=text)
        logs = history_of(self._service.jobs).logs
        page = await logs.page(which, after=int(cursor) if cursor else None, limit=limit, oldest_first=True)
        lines = sorted(page.lines, key=lambda line: (line.at, line.number))
        return line_list(msgspec.structs.replace(page, lines=lines))

    async def find_id(self, run_id: str) -> str:
        """Return the store's id of a run."""
        return (await self._find(run_id)).id

    async def signal(self, run_id: str, body: SignalBody) -> SignalledRun:
        run = await self._find(run_id)
        _check_signal(await self._service.graph(run), run, body)
        await self._note(run, "signal", after={"signal": body.signal, "step": body.step})
        row = NewInboxRow(
            kind="signal",
            id=body.signal_id or uuid.uuid4().hex,
            name=body.signal,
            step=body.step,
            value=msgspec.json.encode(body.value),
            roles=self._caller.roles,
        )
        answer = await self._service.send(run, row)
        if answer is not None and answer.startswith("refused"):
            raise RequestRefused(f"run {run.id}: signal {body.signal!r} {answer}", status=409, code="signal_refused")
        effect = cast("Any", answer or "sent")
        return SignalledRun(run_id=run.id, signal_id=row.id, effect=effect)

    async def close(self, run_id: str) -> None:
        run = await self._find_operable(run_id)
        await self._note(run, "close")
        await self._service.close(run.id)

    async def cancel(self, run_id: str, *, reason: str = "cancelled by an operator") -> None:
        run = await self._find_operable(run_id)
        if run.ended is not None:
            said = f"run {run.id} has ended: it is {run.state}"
            raise RequestRefused(said, status=409, code="workflow_ended")
        await self._note(run, "cancel", note=reason)
        await self._service.send(run, NewInboxRow(kind="cancel", id=uuid.uuid4().hex, error=reason))

    async def redrive(self, run_id: str, *, step: str = "", dry_run: bool = False) -> RedrivenRun:
        run = await self._find_operable(run_id)
        graph = await self._service.graph(run)
        steps = await self._service.steps(run)
        state = steps[step].state if step in steps else StepState.WAITING
        answer = explain_refusal(run, graph, step, state)
        again = [] if answer else find_revived(graph, steps, step)
        if not dry_run:
            await self._note(run, "redrive", after={"step": step})
        if not answer and not dry_run:
            sent = await self._service.send(run, NewInboxRow(kind="redrive", id=uuid.uuid4().hex, step=step)) or ""
            answer = sent.partition("refused: ")[2]
        if answer:
            raise RequestRefused(f"run {run.id}: redrive refused: {answer}", status=409, code="redrive_refused")
        return RedrivenRun(run_id=run.id, status="dry_run" if dry_run else "redriven", steps=again)

    async def hold(self, run_id: str, *, reason: str = "held by an operator") -> None:
        run = await self._find_operable(run_id)
        await self._note(run, "hold", note=reason)
        answer = await self._service.send(run, NewInboxRow(kind="hold", id=uuid.uuid4().hex, error=reason))
        if answer == "ended":
            said = f"run {run.id} cannot be held: it has ended, or is being cancelled"
            raise RequestRefused(said, status=409, code="workflow_ended")

    async def release(self, run_id: str) -> None:
        run = await self._find_operable(run_id)
        await self._note(run, "release")
        answer = await self._service.send(run, NewInboxRow(kind="release", id=uuid.uuid4().hex))
        if answer == "held above":
            said = f"run {run.id} stays held until the run above it is released"
            raise RequestRefused(said, status=409, code="held_above")

    async def clone(self, run_id: str, body: CloneRunBody) -> StartedRunView:
        run = await self._find_operable(run_id)
        content = begun_content((await self._service.graph(run)).content)
        params = {**msgspec.json.decode(run.params, type=dict[str, Any]), **body.params}
        if wrong := find_wrong_parameter(content.params, params):
            raise InvalidOption(f"run {run.id}: {wrong}")
        chosen = body.run_id or new_job_id(self._app.sessions.clock.now_ms(), os.urandom(10))
        new_id = run_id_of(tenant_key(run.tenant or None, chosen))
        await self._note(run, "clone", after={"run": new_id})
        version, text = encode_workflow(content)
        new = NewRun(
            id=new_id,
            tenant=run.tenant,
            workflow=run.workflow,
            content=text,
            params=msgspec.json.encode(params),
            labels={name: value for name, value in run.labels.items() if name != SCHEDULE_LABEL},
        )
        (started,) = await self._service.store.start([new])
        known = await self._service.store.get(new_id)
        if started.refusal or known is None or (known.tenant, known.workflow) != (run.tenant, run.workflow):
            said = started.refusal or f"another run has the id {new_id}: choose a new one"
            raise RequestRefused(said, status=409, code="run_exists")
        self._service.wake([new_id])
        return StartedRunView(run_id=new_id, workflow=run.workflow, version=version, is_new=started.is_new)

    @property
    def _service(self) -> RunService:
        return RunService(self._app.sessions)

    async def _find(self, run_id: str) -> RunRecord:
        run = await self._service.store.get(run_id_of(tenant_key(self._caller.tenant, run_id)))
        if run is None or self._caller.tenant not in (None, run.tenant):
            raise RunNotFound(f"there is no run {run_id[:80]!r}")
        return run

    async def _children(
        self, run: RunRecord, graph: RunGraph, step: str, *, limit: int, cursor: str | None
    ) -> tuple[list[StepRecord], str | None]:
        """Return a page of the children of a step, and the cursor of the next one."""
        if step not in graph.upstream:
            raise RunNotFound(f"run {run.id}: no step {step[:80]!r}: {did_you_mean(step, graph.order)}")
        found = await self._service.store.children(run.id, step, after=_number(cursor), limit=limit + 1)
        return found[:limit], str(found[limit - 1].key.child) if len(found) > limit else None

    async def _graph(self, version: str) -> RunGraph | None:
        """Return the graph of a version; None if its last run has just been deleted."""
        text = await self._service.store.graph_text(version)
        return None if text is None else load_graph(text)

    async def _marks(
        self, runs: Sequence[RunRecord], graphs: Mapping[str, RunGraph | None]
    ) -> dict[str, list[RunStepMark]]:
        """Return the first steps of each run."""
        shown = {run.id: graph for run in runs if (graph := graphs[run.version]) is not None}
        names = {run: graph.order[:_MOST_MARKS] for run, graph in shown.items()}
        marks: dict[str, list[RunStepMark]] = {run.id: [] for run in runs}
        for run, records in (await self._service.store.steps_of(names)).items():
            known = {each.key.name: each for each in records}
            marks[run] = [mark_view(shown[run], name, known.get(name)) for name in names[run]]
        return marks

    async def _find_operable(self, run_id: str) -> RunRecord:
        """Return a run, if the caller may call the tasks of all its steps and sub-workflows."""
        run = await self._find(run_id)
        graph = await self._service.graph(run)
        for _, step in await find_calls(self._service.store, run.tenant, graph.content):
            if not self._caller.allows(step.task):
                raise NotPermitted(f"permission denied: a step calls task {step.task!r}, which you may not call")
        return run

    async def _note(self, run: RunRecord, verb: str, *, after: dict[str, Any] | None = None, note: str = "") -> None:
        await self._caller.note_action(self._app, f"run.{verb}", subject=run.id, after=after, note=note)


def _width(graph: RunGraph | None) -> int:
    """Return the number of steps."""
    return 0 if graph is None else len(graph.order)


def _number(cursor: str | None) -> int:
    """Return the number in a cursor; -1 for the first page.

    Raises:
        InvalidOption: the cursor is malformed.
    """
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < _LONGEST_CURSOR):
        raise InvalidOption(f"cursor: {cursor[:40]!r} is not a cursor: use `next` of the previous page")
    return int(cursor) if cursor else -1


def _check_signal(graph: RunGraph, run: RunRecord, body: SignalBody) -> None:
    """Check that a step waits for the signal, and that the value fits its form.

    Raises:
        RequestRefused, InvalidArguments: see `AppRuns.signal`.
    """
    steps = [name for name in graph.waits.get(body.signal, ()) if body.step in ("", name)]
    if not graph.is_complete:
        said = f"run {run.id}: its graph is not built yet, so no form is known: send {body.signal!r} again later"
        raise RequestRefused(said, status=409, code="signal_refused")
    if not steps:
        hint = did_you_mean(body.signal, sorted(graph.waits)) if graph.waits else "none of its steps waits for one"
        said = f"run {run.id}: no step waits for signal {body.signal!r}: {hint}"
        raise RequestRefused(said, status=409, code="signal_refused")
    check_form(graph, run, body.signal, body.value, step=body.step)
