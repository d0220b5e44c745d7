"""`app.workflows`: the workflows that the state knows."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypedDict, Unpack, get_args

import msgspec

from taskmq.client.producer import AppServices
from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.stores.flows import FlowCursor, FlowEntry
from taskmq.errors import InvalidOption, MalformedMessage
from taskmq.workflow.handle import FlowStateName, state_name
from taskmq.workflow.model.calls import FlowHead, decode_head
from taskmq.workflow.service import WorkflowService

__all__ = ["WorkflowFilter", "WorkflowLine", "WorkflowPage", "Workflows", "read_states"]

# So many are looked at for one page, and so many at a time.
_MOST_SEEN: Final = 1_000
_AT_A_TIME: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_STATES: Final[tuple[FlowStateName, ...]] = get_args(FlowStateName)


class WorkflowFilter(TypedDict, total=False):
    """Conditions that workflows must match; an unset one matches all.

    Attributes:
        name: that they have, with `*` and `?` as in file names; None: any.
        states: one of these; none: all.
        tenant: whose: `""` those that have no tenant, None everybody's.
        since: sent at this instant (with a time zone) or later.
        until: sent before this instant (with a time zone).
    """

    name: str | None
    states: Collection[FlowStateName]
    tenant: str | None
    since: datetime | None
    until: datetime | None


class WorkflowLine(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow in a list.

    Attributes:
        name: not unique; "" where a version has sent it that gave none.
        state: `failed` where a step has failed that was not allowed to.
        cancelled: why it was cancelled; None when it was not.
        started: when it was sent, in ms.
        nodes: of its graph, what only waits for others among them; the calls of maps and batches count.
        unfinished: how many of them have not ended.
        failed: of one that has failed, how many of them have; a map or batch counts as one.
    """

    id: str
    name: str
    state: FlowStateName
    cancelled: str | None
    started: int
    nodes: int
    unfinished: int
    failed: int = 0


class WorkflowPage(NamedTuple):
    """A page of workflows, newest first.

    Attributes:
        after: cursor of the next page; None at the end.
        is_bounded: whether the search stopped before the page was full; the next page continues from there.
    """

    lines: list[WorkflowLine]
    after: str | None
    is_bounded: bool = False


class Workflows:
    """The workflows that the app's state knows, from every sender. What begins with `a` is for coroutines.

    Args:
        looked_at: workflows that are looked at for one page.
    """

    def __init__(self, services: AppServices, *, looked_at: int = _MOST_SEEN) -> None:
        self._services = services
        self._looked_at = looked_at

    @property
    def _sessions(self) -> Sessions:
        return self._services.producer.sessions

    async def alist(
        self, *, after: str | None = None, limit: int = 50, **which: Unpack[WorkflowFilter]
    ) -> WorkflowPage:
        """Up to `limit` workflows, the newest first.

        By tenant and time they are found where they are; by name and state up to 1,000 are looked at for each page,
        which may then have fewer than `limit`.

        Args:
            after: the `after` of the page before.
            which: see `WorkflowFilter`; without any of it, all.

        Raises:
            InvalidOption: there is no such filter or state, an instant has no time zone, or `after` is none.
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        if limit < 1:
            raise InvalidOption(f"limit={limit}: at least 1")
        if unknown := sorted(which.keys() - WorkflowFilter.__annotations__.keys()):
            known = ", ".join(sorted(WorkflowFilter.__annotations__))
            raise InvalidOption(f"{unknown[0]}= is not a field of a workflow filter: {known}")
        name, states = which.get("name"), which.get("states", ())
        _check_states(states)
        first, before = _instant(which.get("since"), "since"), _instant(which.get("until"), "until")
        position = _parse_cursor(after) if after else None
        flows = WorkflowService(self._services).flow_store()
        found: list[WorkflowLine] = []
        seen = 0
        while seen < self._looked_at:
            # As many as would fill the page, so that it ends where the last one of them is.
            size = min(limit - len(found), _AT_A_TIME)
            page = await flows.entries(
                tenant=which.get("tenant"), since=first, before=before, after=position, limit=size
            )
            lines = map(_line, page.entries)
            found += [line for line in lines if _fits(line, name, states)]
            position = page.after
            if position is None or len(found) == limit:
                return WorkflowPage(found, _format_cursor(position))
            seen += size
        return WorkflowPage(found, _format_cursor(position), is_bounded=True)

    list = blocking(alist)


def read_states(text: str) -> frozenset[FlowStateName]:
    """The states that are named, with commas between.

    Raises:
        InvalidOption: there is no such state.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    _check_states(names)
    return frozenset(state for state in _STATES if state in names)


def _check_states(names: Collection[str]) -> None:
    if unknown := [name for name in names if name not in _STATES]:
        raise InvalidOption(f"unknown workflow state {unknown[0][:40]!r}: use one of {', '.join(_STATES)}")


def _instant(moment: datetime | None, what: str) -> int | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise InvalidOption(f"{what}={moment!r}: a datetime with a time zone, for example datetime.now(UTC)")
    return (moment - _EPOCH) // _MS


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
        failed=len(entry.failed),
    )


def _fits(line: WorkflowLine, name: str | None, states: Collection[FlowStateName]) -> bool:
    return (not states or line.state in states) and (name is None or fnmatchcase(line.name, name))


def _format_cursor(position: FlowCursor | None) -> str | None:
    return None if position is None else f"{position.started}.{position.flow_id}"


def _parse_cursor(cursor: str) -> FlowCursor:
    started, _, flow_id = cursor.partition(".")
    if not (started.isascii() and started.isdigit() and len(started) < 16 and flow_id) or "\0" in flow_id:
        raise InvalidOption(
            f"{cursor[:40]!r} is not a cursor of the workflows; pass the `after` of the previous page"
        )
    return FlowCursor(int(started), flow_id)
