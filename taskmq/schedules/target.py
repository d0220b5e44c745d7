"""What a schedule starts: a task, or a workflow.

A workflow is kept as the graph that it is compiled to, so any beat whose app has its tasks can start it. Each
occurrence is one workflow, whose id follows from the schedule and the instant: started twice it is the same one.
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
"""For so long everything about a workflow that a schedule has started is kept after its last change."""


class ScheduleTarget(msgspec.Struct, frozen=True):
    """What a schedule starts.

    Attributes:
        task: that is called; of a workflow, the one of its first step.
        workflow: None: the task alone.
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
    """What is to be started, out of what the caller has given.

    Raises:
        InvalidOption: it is neither a task, nor a step with all its arguments, nor a workflow; or arguments are given
            beside a step or a workflow, which has its own.
        InvalidArguments: a step of a workflow cannot be called so.
    """
    # Not for those who only send: it costs as much as the rest of this package.
    from taskmq.workflow.parts import OpenStep, Step, Workflow

    if isinstance(target, Task):
        return ScheduleTarget(cast("Task[..., Any]", target), args, kwargs)
    if isinstance(target, OpenStep):
        name = target.call.task.name
        raise InvalidOption(f"schedule {schedule!r}: {name}.s(...) lacks arguments, and no step before it gives them")
    if not isinstance(target, Workflow):
        raise InvalidOption(
            f"schedule {schedule!r}: {target!r} can not be started: say a task, task.s(...) with all its arguments, "
            "or a workflow"
        )
    if args or kwargs:
        raise InvalidOption(f"schedule {schedule!r}: args= and kwargs= are for a task; say task.s(...) with them")
    workflow: Workflow[Any] = target  # pyright: ignore[reportUnknownVariableType]
    first = workflow.first_task()
    if first is None:
        raise InvalidOption(f"schedule {schedule!r}: a workflow that names no task")
    task = cast("Task[..., Any]", first)
    if isinstance(workflow, Step) and not workflow.call.options and workflow.call.plan is None:
        return ScheduleTarget(task, workflow.call.args, workflow.call.kwargs)
    graph = workflow.compile(content_type)
    return ScheduleTarget(task, workflow=Graph(graph.head, graph.nodes, {}))


def tasks_of(workflow: Graph) -> list[str]:
    """The names of the tasks that a workflow calls, in its order."""
    names = (decode_call(node.call).task for node in workflow.nodes if node.kind in ("call", "map"))
    return list(dict.fromkeys(names))


def graph_for(
    workflow: Graph, *, name: str, meta: Mapping[str, str], priority: int | None, tenant: str = ""
) -> Graph:
    """The workflow of one occurrence.

    Args:
        name: of the workflow; its schedule's.
        tenant: of all its steps; "": their own.
        meta: for all its steps, beside their own.
        priority: of all its steps; None: their own.
    """
    nodes: list[FlowNode] = []
    for node in workflow.nodes:
        if node.kind in ("call", "map"):
            call = decode_call(node.call)
            # What is ordered has no priority.
            level = call.priority if priority is None or call.order_key is not None else priority
            whose = tenant or call.tenant
            call = replace(call, meta={**(call.meta or {}), **meta}, priority=level, tenant=whose)
            nodes.append(replace(node, call=encode_call(call)))
        else:
            nodes.append(node)
    return Graph(replace(workflow.head, name=name), nodes, workflow.shape)


def write_graph(workflow: Graph) -> bytes:
    """The workflow as it is kept."""
    return msgspec.msgpack.encode(_Kept(workflow.head, workflow.nodes))


def read_graph(kept: bytes, *, schedule: str, known: Collection[str]) -> Graph:
    """The workflow that is kept.

    Raises:
        InvalidOption: this app lacks one of its tasks, or cannot read it.
    """
    try:
        found = _decoder.decode(kept)
    except msgspec.MsgspecError as error:
        raise InvalidOption(f"schedule {schedule!r}: its workflow in the state cannot be read: {error}") from error
    workflow = Graph(found.head, found.nodes, {})
    if missing := [name for name in tasks_of(workflow) if name not in known]:
        raise InvalidOption(f"schedule {schedule!r}: this app has no task {missing[0]!r}")
    return workflow
