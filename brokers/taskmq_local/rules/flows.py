"""Changes of workflows, shared by flows in memory and flows in a file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from taskmq.contracts.stores.flows import BegunNode, BusyNode, EndedNode, NodeState, Taken
from taskmq.workflow.model.flow_view import FlowView
from taskmq.workflow.model.transitions import (
    append_to_batch,
    cancel_flow,
    done_taken,
    end_run,
    expand_map,
    redrive_flow,
    release_run,
    renew_run,
    start_run,
    take_some,
)

__all__ = ["FlowChanges"]

T = TypeVar("T")

_NOTHING: Final = Taken((), is_more=False)


class FlowChanges(ABC):
    """Methods of a `FlowStore` that change a flow, each in one transaction of the subclass."""

    @abstractmethod
    async def _change(
        self, flow_id: str, change: Callable[[FlowView, int], T], unknown: T, *, is_durable: bool = True
    ) -> T:
        """Call `change` with the flow and the instant (ms), atomically; return its answer.

        The change extends the flow's expiry. Return `unknown` if the flow does not exist.

        Args:
            is_durable: whether the change must survive a power failure.
        """

    async def start(
        self, flow_id: str, node: str, *, owner: str, seconds: float, takes_over: bool
    ) -> BegunNode | BusyNode | EndedNode | None:
        def start(view: FlowView, now: int) -> BegunNode | BusyNode | EndedNode | None:
            return start_run(view, node, owner=owner, until=_later(now, seconds), takes_over=takes_over, now=now)

        return await self._change(flow_id, start, None, is_durable=False)

    async def renew(self, flow_id: str, node: str, *, token: int, seconds: float) -> bool:
        def renew(view: FlowView, now: int) -> bool:
            return renew_run(view, node, token=token, until=_later(now, seconds))

        return await self._change(flow_id, renew, False, is_durable=False)

    async def release(self, flow_id: str, node: str, *, token: int) -> None:
        await self._change(flow_id, lambda view, _: release_run(view, node, token=token), None, is_durable=False)

    async def end(
        self, flow_id: str, node: str, *, token: int, state: NodeState, value: bytes, taker: str, lease: float
    ) -> Taken | None:
        def end(view: FlowView, now: int) -> Taken | None:
            until = _later(now, lease)
            return end_run(view, node, token=token, state=state, value=value, taker=taker, until=until, now=now)

        return await self._change(flow_id, end, None)

    async def take(self, flow_id: str, *, taker: str, lease: float, again: bool = False) -> Taken:
        def take(view: FlowView, now: int) -> Taken:
            return take_some(view, taker=taker, until=_later(now, lease), now=now, again=again)

        return await self._change(flow_id, take, _NOTHING)

    async def mark_done(self, flow_id: str, keys: Sequence[str], *, taker: str, lease: float) -> Taken:
        def confirm(view: FlowView, now: int) -> Taken:
            return done_taken(view, keys, taker=taker, until=_later(now, lease), now=now)

        return await self._change(flow_id, confirm, _NOTHING)

    async def expand(self, flow_id: str, node: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
        await self._change(flow_id, lambda view, _: expand_map(view, node, calls, first=first, total=total), None)

    async def append(
        self, flow_id: str, node: str, calls: Sequence[bytes], *, name: str = "", closes: bool = False
    ) -> int | None:
        def append(view: FlowView, _: int) -> int | None:
            return append_to_batch(view, node, calls, name=name, closes=closes)

        return await self._change(flow_id, append, None)

    async def cancel(self, flow_id: str, *, reason: str) -> list[str] | None:
        return await self._change(flow_id, lambda view, now: cancel_flow(view, reason=reason, now=now), None)

    async def redrive(self, flow_id: str) -> int:
        return await self._change(flow_id, lambda view, _: redrive_flow(view), 0)


def _later(now: int, seconds: float) -> int:
    return now + round(seconds * 1000)
