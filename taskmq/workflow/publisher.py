"""Publisher of ready nodes of workflows, for senders and workers alike.

    take -> calls: publish, wait for the confirms -> done -> take, until nothing is left
            maps: give them a child for each item
            the flow's end: store it among the results, so that waiters are notified

Any worker may die between `take` and `done`: the taken nodes are taken again. A message for a node has an id derived
from the node, so it is the same job however often it was published.
"""

from typing import Final

import msgspec

from taskmq.client.producer import AppServices
from taskmq.client.session import Session
from taskmq.contracts.stores import ErrorRecord, ResultRecord, require_store
from taskmq.contracts.stores.flows import FlowStore, NodeState, Taken, TakenNode
from taskmq.errors import EncodeError, PartlySent, TooLarge, Unroutable
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import MSGPACK, NO_KWARGS, VERSION, Envelope
from taskmq.model.keys import flow_end_id, flow_job_id
from taskmq.model.states import JobState
from taskmq.workflow.model.calls import NodeCall, decode_call, decode_head, encode_call, encode_failure, insert_values
from taskmq.workflow.values import encode_tree, load_trees

__all__ = ["FlowPublisher", "flow_store"]

_LEASE: Final = 30.0
_CHILDREN: Final = 250
# Errors that would recur.
_FINAL: Final = (TooLarge, EncodeError, Unroutable)


def flow_store(session: Session) -> FlowStore:
    """Return the store of workflows.

    Raises:
        UnsupportedFeature: the app has no state.
    """
    return require_store(session.stores.flows, "workflows need")


class FlowPublisher:
    """Publishes the ready nodes of one flow.

    Args:
        taker: name of the taker.
        content_type: of the flow's arguments.
        parent: the job whose end made them ready.
    """

    def __init__(
        self,
        services: AppServices,
        flow_id: str,
        *,
        taker: str,
        content_type: str,
        parent: str | None = None,
    ) -> None:
        self._producer = services.producer
        self._sessions = services.producer.sessions
        self._result_ttl = services.jobs.sent.result_ttl
        self._flow_id = flow_id
        self._taker = taker
        self._content_type = content_type
        self._parent = parent
        self._store = flow_store(self._sessions.current())

    async def resume(self) -> None:
        """Publish ready nodes, and those that the same taker may have left.

        Raises:
            SendError, StateUnavailable: call it again.
        """
        await self.publish(await self._store.take(self._flow_id, taker=self._taker, lease=_LEASE, again=True))

    async def publish(self, taken: Taken) -> None:
        """Publish taken nodes, and continue until nothing is left.

        Raises:
            SendError, StateUnavailable: call `resume`.
        """
        while taken.nodes or taken.is_more:
            calls = [node for node in taken.nodes if node.kind == "call"]
            more = await self._send(calls)
            for node in taken.nodes:
                if node.kind == "map":
                    more += await self._expand(node)
                elif node.kind == "finish":
                    await self._finish(node.run)
            keys = [node.key for node in taken.nodes]
            taken = await self._store.mark_done(self._flow_id, keys, taker=self._taker, lease=_LEASE)
            if more:
                nodes = (*(node for one in more for node in one.nodes), *taken.nodes)
                taken = Taken(nodes, is_more=taken.is_more or any(one.is_more for one in more))

    async def _send(self, nodes: list[TakenNode]) -> list[Taken]:
        """Publish messages; return what became ready by those that cannot be published."""
        if not nodes:
            return []
        now = self._sessions.clock.now_ms()
        left = [(node, self._sending(node, now)) for node in nodes]
        found: list[Taken] = []
        while left:
            try:
                async for _ in self._producer.stream_async([sending for _, sending in left], linger=float("inf")):
                    pass
            except PartlySent as error:
                for index, failure in error.failures.items():
                    if not isinstance(failure, _FINAL):
                        raise failure from error
                    found += await self._fail(left[index][0], failure)
                left = left[error.tried :]
            else:
                return found
        return found

    def _sending(self, node: TakenNode, now: int) -> Sending:
        call = decode_call(node.call)
        envelope = Envelope(
            v=VERSION,
            id=flow_job_id(self._flow_id, node.key, node.run),
            task=call.task,
            args=msgspec.Raw(call.args),
            kwargs=msgspec.Raw(call.kwargs) if call.kwargs else NO_KWARGS,
            enqueued=now,
            eta=call.eta if call.delay is None else now + call.delay,
            expires=call.expires_at if call.expires is None else now + call.expires,
            root=self._flow_id,
            parent=self._parent,
            key=call.key,
            order_key=call.order_key,
            flow=f"{self._flow_id}/{node.key}",
            tenant=call.tenant,
            priority=call.priority,
            meta=call.meta,
            run=call.run,
        )
        return Sending(envelope, call.queue, self._content_type, dict(call.headers) if call.headers else {})

    async def _expand(self, node: TakenNode) -> list[Taken]:
        call = decode_call(node.call)
        if call.over is None:
            return await self._fail(node, TypeError("nothing to go over"))
        (tree,) = await load_trees(self._store, self._flow_id, [call.over])
        try:
            items = _items(encode_tree(tree, self._content_type), self._content_type)
            if len(items) > call.max_width:
                raise ValueError(f"a list of {len(items)} items, and max_width={call.max_width}")
            children = [encode_call(self._child(call, item)) for item in items]
        except (msgspec.MsgspecError, ValueError) as error:
            return await self._fail(node, error)
        for first in range(0, len(children), _CHILDREN) if children else (0,):
            piece = children[first : first + _CHILDREN]
            await self._store.expand(self._flow_id, node.key, piece, first=first, total=len(children))
        return []

    def _child(self, call: NodeCall, item: msgspec.Raw) -> NodeCall:
        spread = _items(bytes(item), self._content_type) if call.is_spread else [item]
        values: list[tuple[int | str, bytes]] = [(index, bytes(value)) for index, value in enumerate(spread)]
        args, kwargs = insert_values(call.args, call.kwargs, values, self._content_type)
        return msgspec.structs.replace(
            call,
            args=bytes(args),
            kwargs=b"" if kwargs is NO_KWARGS else bytes(kwargs),
            over=None,
            max_width=0,
            is_spread=False,
        )

    async def _fail(self, node: TakenNode, error: Exception) -> list[Taken]:
        """End a node that no worker can run."""
        details = ErrorRecord(type_name=type(error).__name__, message=str(error), traceback="")
        taken = await self._store.end(
            self._flow_id,
            node.key,
            token=0,
            state=NodeState.FAILED,
            value=encode_failure(details),
            taker=self._taker,
            lease=_LEASE,
        )
        return [] if taken is None else [taken]

    async def _finish(self, run: int) -> None:
        """Store the end of the flow where waiters look for it."""
        results = require_store(self._sessions.current().stores.results, "workflows need")
        record = await self._store.look(self._flow_id)
        if record is None or record.unfinished or record.run != run:
            return
        head = decode_head(record.head)
        states = await self._store.states(self._flow_id)
        failed = next(
            (
                key
                for key, one in states.items()
                if one is NodeState.FAILED and key.partition(".")[0] not in head.may_fail
            ),
            None,
        )
        error: ErrorRecord | None = None
        end = JobState.SUCCEEDED
        if record.cancelled is not None:
            end = JobState.CANCELLED
            error = ErrorRecord(type_name="JobCancelled", message=record.cancelled, traceback="")
        elif failed is not None:
            end = JobState.FAILED
            name = head.names.get(failed.partition(".")[0], failed)
            error = ErrorRecord(type_name="FlowFailed", message=f"step {name} has failed", traceback="")
        result = ResultRecord(
            job_id=flow_end_id(self._flow_id, run),
            task="",
            state=end,
            attempt=run + 1,
            error=error,
            finished=self._sessions.clock.now_ms(),
        )
        await results.put(result, ttl=self._result_ttl)


def _items(data: bytes, content_type: str) -> list[msgspec.Raw]:
    if content_type == MSGPACK:
        return msgspec.msgpack.decode(data, type=list[msgspec.Raw])
    return msgspec.json.decode(data, type=list[msgspec.Raw])
