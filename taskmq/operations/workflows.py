"""Workflows that were sent: which there are, how far they are, ending them, and running again what has failed."""

from fnmatch import fnmatchcase
from typing import Final, NamedTuple, get_args

import msgspec

from taskmq.app import TaskMQ
from taskmq.client.services import AppServices
from taskmq.contracts.stores.flows import FlowEntry, FlowPlace
from taskmq.errors import FlowNotFound, InvalidOption, MalformedMessage
from taskmq.workflow.handle import FlowStateName, FlowStep, state_name
from taskmq.workflow.model.calls import FlowHead, decode_head
from taskmq.workflow.service import Redriven, WorkflowService

__all__ = [
    "WorkflowFilter",
    "WorkflowLine",
    "WorkflowPage",
    "WorkflowReport",
    "cancel_workflow",
    "list_workflows",
    "read_states",
    "redrive_workflow",
    "report_workflow",
]

# So many are looked at for one page, and so many at a time.
_MOST_SEEN: Final = 1_000
_AT_A_TIME: Final = 100


class WorkflowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which workflows are meant.

    Attributes:
        tenant: `""` those that have no tenant, None everybody's.
        name: that it has, with `*` and `?` as in file names.
        states: one of these; none: all.
        since: sent at this instant (ms) or later.
        before: sent earlier than at this instant (ms).
    """

    tenant: str | None = None
    name: str | None = None
    states: frozenset[FlowStateName] = frozenset()
    since: int | None = None
    before: int | None = None


class WorkflowLine(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow in a list.

    Attributes:
        name: not unique; "" where a version has sent it that gave none.
        state: `failed` where a step has failed that was not allowed to.
        cancelled: why it was cancelled; None when it was not.
        started: when it was sent, in ms.
        nodes: of its graph, what only waits for others among them; the calls of maps and batches count.
        unfinished: how many of them have not ended.
    """

    id: str
    name: str
    state: FlowStateName
    cancelled: str | None
    started: int
    nodes: int
    unfinished: int


class WorkflowPage(NamedTuple):
    """Some workflows, the newest first.

    Attributes:
        after: where the next page begins; None at the end.
        is_bounded: the search stopped before the page was full; the next page goes on from there.
    """

    lines: list[WorkflowLine]
    after: str | None
    is_bounded: bool = False


class WorkflowReport(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow at one moment.

    Attributes:
        state: `failed` where a step has failed that was not allowed to.
        cancelled: why it was cancelled; None when it was not.
        steps: in the order of the graph.
    """

    id: str
    state: FlowStateName
    cancelled: str | None
    steps: list[FlowStep]


async def report_workflow(app: TaskMQ, flow_id: str) -> WorkflowReport:
    """How far a workflow is, step by step.

    Raises:
        FlowNotFound: the state does not know it (any more).
        StateUnavailable: the state could not be reached.
        UnsupportedFeature: the app has no state.
    """
    flow = app.flow(flow_id)
    steps = await flow.asteps()
    # After the steps: where it says that it has ended, all of them show as ended, or were driven anew.
    state = await flow.astate()
    return WorkflowReport(id=flow_id, state=state.state, cancelled=state.cancelled, steps=steps)


def read_states(text: str) -> frozenset[FlowStateName]:
    """The states that are named, with commas between.

    Raises:
        InvalidOption: there is no such state.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    known: tuple[FlowStateName, ...] = get_args(FlowStateName)
    if unknown := [name for name in names if name not in known]:
        raise InvalidOption(f"there is no state {unknown[0][:40]!r} of workflows: one of {', '.join(known)}")
    return frozenset(state for state in known if state in names)


async def list_workflows(
    app: TaskMQ, which: WorkflowFilter, *, after: str | None = None, limit: int = 50
) -> WorkflowPage:
    """Workflows that the state knows, the newest first.

    By tenant and time they are found where they are; by name and state up to 1,000 are looked at for each page, which
    may then have fewer than `limit`.

    Args:
        after: the `after` of the page before.

    Raises:
        InvalidOption: `after` is none.
        StateUnavailable: the state could not be reached.
        UnsupportedFeature: the app has no state.
    """
    flows = WorkflowService(AppServices(app.producer, app.jobs, app.tasks.dependencies)).flow_store()
    place = _place(after) if after else None
    found: list[WorkflowLine] = []
    seen = 0
    while seen < _MOST_SEEN:
        # As many as would fill the page, so that it ends where the last one of them is.
        size = min(limit - len(found), _AT_A_TIME)
        page = await flows.entries(
            tenant=which.tenant, since=which.since, before=which.before, after=place, limit=size
        )
        lines = map(_line, page.entries)
        found += [line for line in lines if _fits(line, which)]
        place = page.after
        if place is None or len(found) == limit:
            return WorkflowPage(found, _cursor(place))
        seen += size
    return WorkflowPage(found, _cursor(place), is_bounded=True)


async def cancel_workflow(app: TaskMQ, flow_id: str, *, reason: str) -> bool:
    """End a workflow; False where it has ended already. See `Flow.cancel`, also for what is raised."""
    return await app.flow(flow_id).acancel(reason)


async def redrive_workflow(app: TaskMQ, flow_id: str) -> Redriven:
    """Run again what has not succeeded, and take the dead letters of its earlier runs off their queues.

    Raises:
        FlowNotFound: the state does not know it (any more).
        SendError, StateUnavailable: as `send` does; called again, it goes on.
        UnsupportedFeature: the app has no state.
    """
    service = WorkflowService(AppServices(app.producer, app.jobs, app.tasks.dependencies))
    if await service.flow_store().look(flow_id) is None:
        raise FlowNotFound(f"workflow {flow_id} is not known: never sent here, or forgotten since")
    return await service.redrive(flow_id)


def _line(entry: FlowEntry) -> WorkflowLine:
    record = entry.record
    try:
        head = decode_head(record.head)
    except MalformedMessage:
        # Of another version: the others are listed all the same.
        head = FlowHead(content_type="")
    return WorkflowLine(
        id=entry.id,
        name=head.name,
        state=state_name(record, head, entry.failed),
        cancelled=record.cancelled,
        started=record.started,
        nodes=entry.nodes,
        unfinished=record.unfinished,
    )


def _fits(line: WorkflowLine, which: WorkflowFilter) -> bool:
    return (not which.states or line.state in which.states) and (
        which.name is None or fnmatchcase(line.name, which.name)
    )


def _cursor(place: FlowPlace | None) -> str | None:
    return None if place is None else f"{place.started}.{place.flow_id}"


def _place(cursor: str) -> FlowPlace:
    started, _, flow_id = cursor.partition(".")
    if not (started.isascii() and started.isdigit() and len(started) < 16 and flow_id) or "\0" in flow_id:
        raise InvalidOption(f"{cursor[:40]!r} is no place in the list of workflows; say that of the page before")
    return FlowPlace(int(started), flow_id)
