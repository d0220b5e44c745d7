"""Targets of schedules: a task or a workflow.

A workflow in Python is stored as the content of its runs, and a named one or one of a file by its name, so a
scheduler needs no code of the app. Each occurrence is one run, whose id is derived from the schedule and the instant:
starting it twice yields the same one.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec.structs import replace

from taskmq.errors import InvalidArguments, InvalidOption
from taskmq.model.keys import split_tenant_key
from taskmq.model.runs.graphs import WorkflowContent, encode_workflow, load_graph
from taskmq.model.units import instant_text
from taskmq.tasks.task import Task

if TYPE_CHECKING:
    from taskmq.contracts.jobs import NewRun
    from taskmq.workflow.named_workflow import NamedWorkflow

SCHEDULE_LABEL: Final = "schedule"
"""Label of a run with the name of the schedule that started it."""


class StoredWorkflow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workflow in the store. Each occurrence runs its current version.

    Attributes:
        params: parameters of the runs; missing ones get their defaults.
        tasks: names of the tasks that it calls.
    """

    name: str
    params: dict[str, Any] = {}
    tasks: tuple[str, ...] = ()


class ScheduleTarget(msgspec.Struct, frozen=True):
    """Target of a schedule.

    Attributes:
        task: the task to call; of a workflow, that of its first step.
        workflow: the workflow to start; None: the task alone.
    """

    task: Task[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    workflow: WorkflowContent | StoredWorkflow | None = None


def read_target(target: object, *, args: tuple[Any, ...], kwargs: Mapping[str, Any], schedule: str) -> ScheduleTarget:
    """Build the target from what the caller passed.

    Raises:
        InvalidOption: it is neither a task, nor a step with all its arguments, nor a workflow; it is a batch, which
            has no end of its own; arguments were passed with a step or a workflow, which has its own; or those of a
            named workflow do not fit.
        InvalidArguments: a step of a workflow does not accept its arguments.
    """
    # Imported late, since senders do not need it: it costs as much as the rest of this package.
    from taskmq.workflow.batch import Batch
    from taskmq.workflow.named_workflow import NamedWorkflow
    from taskmq.workflow.parts import OpenStep, Step, Workflow

    if isinstance(target, Task):
        return ScheduleTarget(cast("Task[..., Any]", target), args, kwargs)
    if isinstance(target, NamedWorkflow):
        named: NamedWorkflow[..., Any] = target  # pyright: ignore[reportUnknownVariableType]
        return _read_named(named, args, dict(kwargs), schedule)
    if isinstance(target, OpenStep):
        name = target.call.task.name
        raise InvalidOption(f"schedule {schedule!r}: {name}.s(...) lacks arguments, and no step before it gives them")
    if not isinstance(target, Workflow):
        raise InvalidOption(
            f"schedule {schedule!r}: cannot start {target!r}: pass a task, task.s(...) with all its arguments, "
            "or a workflow"
        )
    if isinstance(target, Batch):
        raise InvalidOption(
            f"schedule {schedule!r}: a batch ends only when it is closed: schedule a task that sends and closes it"
        )
    if args or kwargs:
        raise InvalidOption(
            f"schedule {schedule!r}: args= and kwargs= need a task; pass task.s(...) with its arguments"
        )
    workflow: Workflow[Any] = target  # pyright: ignore[reportUnknownVariableType]
    first = workflow.first_task()
    if first is None:
        raise InvalidOption(f"schedule {schedule!r}: the workflow has no task")
    task = cast("Task[..., Any]", first)
    if isinstance(workflow, Step) and not workflow.call.options and workflow.call.plan is None:
        return ScheduleTarget(task, workflow.call.args, workflow.call.kwargs)
    return ScheduleTarget(task, workflow=workflow.plan().content)


def _read_named(
    workflow: "NamedWorkflow[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any], schedule: str
) -> ScheduleTarget:
    task = cast("Task[..., Any]", workflow.task)
    try:
        params = {name: msgspec.json.decode(value) for name, value in workflow.encode_params(args, kwargs).items()}
    except InvalidArguments as error:
        what = "these arguments" if args or kwargs else "without arguments"
        raise InvalidOption(f"schedule {schedule!r}: the workflow must run {what}: {error}") from error
    return ScheduleTarget(task, workflow=StoredWorkflow(workflow.name, params, (task.name,)))


def tasks_of(workflow: WorkflowContent | StoredWorkflow) -> list[str]:
    """Return the names of the tasks that a workflow calls, in order."""
    if isinstance(workflow, StoredWorkflow):
        return [*workflow.tasks]
    return list(dict.fromkeys(step.task for step in workflow.steps.values() if step.task))


def run_of(
    workflow: WorkflowContent | StoredWorkflow, *, schedule: str, instant: int, due: int | None = None
) -> "NewRun":
    """Build the run of one occurrence, which has the name of its schedule.

    Args:
        instant: the nominal instant, ms.
        due: when it has to start, ms; None: at no time, as that of a backfill.
    """
    from taskmq.contracts.jobs import NewRun

    tenant, name = split_tenant_key(schedule)
    run = NewRun(
        id="",
        tenant=tenant,
        workflow=name_of_runs(workflow, schedule=schedule),
        labels={SCHEDULE_LABEL: name},
        scheduled_for=instant_text(instant),
        due=due,
    )
    if isinstance(workflow, StoredWorkflow):
        return replace(run, params=msgspec.json.encode(workflow.params))
    return replace(run, content=encode_workflow(workflow)[1])


def name_of_runs(workflow: WorkflowContent | StoredWorkflow, *, schedule: str) -> str:
    """Return the name of the workflow of a schedule's runs."""
    return workflow.name if isinstance(workflow, StoredWorkflow) else split_tenant_key(schedule)[1]


def with_priority(
    workflow: WorkflowContent | StoredWorkflow, priority: int | None, *, ordered: Collection[str]
) -> WorkflowContent | StoredWorkflow:
    """Return a workflow whose steps have this priority; None: each step's own, as those of a stored one always have.

    Args:
        ordered: tasks of ordered queues, which have no priorities.
    """
    if priority is None or isinstance(workflow, StoredWorkflow):
        return workflow
    steps = {
        name: replace(step, options={**step.options, "priority": priority})
        if step.task and step.task not in ordered
        else step
        for name, step in workflow.steps.items()
    }
    return replace(workflow, steps=steps)


def read_content(kept: bytes, *, schedule: str) -> WorkflowContent:
    """Decode a stored workflow.

    Raises:
        InvalidOption: it cannot be decoded.
    """
    try:
        return load_graph(kept).content
    except msgspec.MsgspecError as error:
        raise InvalidOption(f"schedule {schedule!r}: its workflow cannot be read: {error}") from error
