"""Targets of schedules: a task or a workflow.

A workflow is stored as its compiled graph, so any beat whose app has its tasks can start it. Each occurrence is one
workflow, whose id is derived from the schedule and the instant: starting it twice yields the same one.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from taskmq.contracts.stores.flows import FlowNode
from taskmq.errors import InvalidOption
from taskmq.tasks.task import Task
from taskmq.workflow.model.calls import FlowHead, Graph, decode_call, encode_call

__all__ = ["KEEP_SECONDS", "ScheduleTarget", "graph_for", "read_graph", "read_target", "tasks_of", "write_graph"]

KEEP_SECONDS: Final = 7 * 86_400.0
"""Time to live of a workflow that a schedule started, from its last change."""


class ScheduleTarget(msgspec.Struct, frozen=True):
    """Target of a schedule.

    Attributes:
        task: the task to call; of a workflow, that of its first step.
        workflow: the workflow to start; None: the task alone.
    """

    task: Task[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    workflow: Graph | None = None


class _Kept(msgspec.Struct, frozen=True):
    head: FlowHead
    nodes: list[FlowNode]


_decoder = msgspec.msgpack.Decoder(_Kept)


def read_target(
    target: object, *, args: tuple[Any, ...], kwargs: Mapping[str, Any], schedule: str, content_type: str
) -> ScheduleTarget:
    """Build the target from what the caller passed.

    Raises:
        InvalidOption: it is neither a task, nor a step with all its arguments, nor a workflow; or arguments were
            passed with a step or a workflow, which has its own.
        InvalidArguments: a step of a workflow does not accept its arguments.
    """
    # Imported late, since senders do not need it: it costs as much as the rest of this package.
    from taskmq.workflow.parts import OpenStep, Step, Workflow

    if isinstance(target, Task):
        return ScheduleTarget(cast("Task[..., Any]", target), args, kwargs)
    if isinstance(target, OpenStep):
        name = target.call.task.name
        raise InvalidOption(f"schedule {schedule!r}: {name}.s(...) lacks arguments, and no step before it gives them")
    if not isinstance(target, Workflow):
        raise InvalidOption(
            f"schedule {schedule!r}: cannot start {target!r}: pass a task, task.s(...) with all its arguments, "
            "or a workflow"
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
    graph = workflow.compile(content_type)
    return ScheduleTarget(task, workflow=Graph(graph.head, graph.nodes, {}))


def tasks_of(workflow: Graph) -> list[str]:
    """Return the names of the tasks that a workflow calls, in order."""
    names = (decode_call(node.call).task for node in workflow.nodes if node.kind in ("call", "map"))
    return list(dict.fromkeys(names))


def graph_for(
    workflow: Graph, *, name: str, meta: Mapping[str, str], priority: int | None, tenant: str = ""
) -> Graph:
    """Build the workflow of one occurrence.

    Args:
        name: name of the workflow; its schedule's.
        tenant: tenant of all steps; "": each step's own.
        meta: added to the meta of all steps.
        priority: priority of all steps; None: each step's own.
    """
    nodes: list[FlowNode] = []
    for node in workflow.nodes:
        if node.kind in ("call", "map"):
            call = decode_call(node.call)
            # Ordered queues have no priorities.
            level = call.priority if priority is None or call.order_key is not None else priority
            whose = tenant or call.tenant
            call = replace(call, meta={**(call.meta or {}), **meta}, priority=level, tenant=whose)
            nodes.append(replace(node, call=encode_call(call)))
        else:
            nodes.append(node)
    return Graph(replace(workflow.head, name=name), nodes, workflow.shape)


def write_graph(workflow: Graph) -> bytes:
    """Encode a workflow for storage."""
    return msgspec.msgpack.encode(_Kept(workflow.head, workflow.nodes))


def read_graph(kept: bytes, *, schedule: str, known: Collection[str]) -> Graph:
    """Decode a stored workflow.

    Raises:
        InvalidOption: it cannot be decoded, or this app lacks one of its tasks.
    """
    try:
        found = _decoder.decode(kept)
    except msgspec.MsgspecError as error:
        raise InvalidOption(f"schedule {schedule!r}: its workflow in the state cannot be read: {error}") from error
    workflow = Graph(found.head, found.nodes, {})
    if missing := [name for name in tasks_of(workflow) if name not in known]:
        raise InvalidOption(f"schedule {schedule!r}: this app has no task {missing[0]!r}")
    return workflow
