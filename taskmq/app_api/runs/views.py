"""Views of runs, their steps and the children of steps."""

from taskmq.api.workflows.runs import RunChildView, RunLineView, RunStepMark, RunStepView
from taskmq.app_api.views import instant_text, view_of
from taskmq.model.runs.graphs import RunGraph
from taskmq.model.runs.records import RunRecord, StepKey, StepRecord


def line_view(run: RunRecord, steps: int, marks: list[RunStepMark] | None = None) -> RunLineView:
    """Render a run that has this number of steps."""
    return view_of(
        RunLineView,
        run,
        run_id=run.id,
        state=run.state.value,
        held=run.hold,
        started=instant_text(run.created),
        begun=instant_text(run.begun),
        ended=instant_text(run.ended),
        steps=steps,
        labels=dict(run.labels),
        marks=marks,
    )


def mark_view(graph: RunGraph, name: str, record: StepRecord | None) -> RunStepMark:
    """Render a step in a list of runs; one without a record has not started."""
    found = record or StepRecord(key=StepKey(name))
    return view_of(
        RunStepMark,
        found,
        step=name,
        kind=graph.step(name).kind,
        state=found.state.value,
        started=instant_text(found.started),
        ended=instant_text(found.ended),
    )


def step_view(graph: RunGraph, name: str, record: StepRecord | None) -> RunStepView:
    """Render a step; one without a record has not started."""
    content, found = graph.step(name), record or StepRecord(key=StepKey(name))
    return view_of(
        RunStepView,
        found,
        step=name,
        kind=content.kind,
        task=content.task or content.workflow,
        state=found.state.value,
        needs=list(graph.upstream[name]),
        job_id=found.job,
        started=instant_text(found.started),
        ended=instant_text(found.ended),
        signal=content.wait,
        form=content.form,
        roles=list(content.roles),
    )


def child_view(record: StepRecord) -> RunChildView:
    """Render a child of a step."""
    return view_of(
        RunChildView,
        record,
        number=record.key.child,
        state=record.state.value,
        job_id=record.job,
        started=instant_text(record.started),
        ended=instant_text(record.ended),
    )
