"""Service of an app for its workflows: starts, resumes and cancels them."""

import logging
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.client.producer import AppServices
from taskmq.client.sessions import Sessions
from taskmq.contracts.stores import ResultRecord, require_store
from taskmq.contracts.stores.flows import FlowStore, NodeState
from taskmq.errors import BrokerUnavailable, FlowClosed, FlowNotFound
from taskmq.model.envelope import new_job_id
from taskmq.model.keys import flow_job_id, tenant_key
from taskmq.workflow.letters import remove_letters
from taskmq.workflow.model.calls import BATCH_NODE, Graph, decode_call, decode_head, encode_head
from taskmq.workflow.publisher import FlowPublisher, flow_store

__all__ = ["Redriven", "WorkflowService"]

_log = logging.getLogger("taskmq.workflow")

_SENDER: Final = "sender"
_PAGE: Final = 1_000
_APPENDED: Final = 100
# A letter is published within milliseconds after the end of its step is recorded.
_LATE_LETTERS: Final = 1.0
_REMEMBERED: Final = 7 * 86_400.0


class Redriven(msgspec.Struct, frozen=True):
    """The result of a redrive.

    Attributes:
        steps: how many run again.
        letters: how many dead letters of their earlier runs were removed.
    """

    steps: int
    letters: int


class WorkflowService:
    """Operations that workflows and their handles call."""

    def __init__(self, services: AppServices) -> None:
        self.sessions: Sessions = services.producer.sessions
        self.content_type: str = services.producer.content_type
        self._services = services

    def flow_store(self) -> FlowStore:
        """Return the store of workflows of the running loop's session.

        Raises:
            UnsupportedFeature: the app has no state.
        """
        return flow_store(self.sessions.current())

    async def start(self, graph: Graph, *, flow_id: str | None, keep: float, tenant: str | None = None) -> str:
        """Make a flow and publish what is ready; its id. One that is there already goes on instead.

        Args:
            flow_id: what its tenant calls it.
            keep: seconds.
        """
        own_id = flow_id or new_job_id(self.sessions.clock.now_ms(), os.urandom(10))
        flow_id = tenant_key(tenant, own_id)
        await self.flow_store().create(flow_id, encode_head(graph.head), graph.nodes, ttl=keep)
        await self._publisher(flow_id, graph.head.content_type).resume()
        return flow_id

    async def append(
        self, flow_id: str, calls: Sequence[bytes], *, name: str | None = None, closes: bool = False
    ) -> None:
        """Give a batch more jobs and publish what is ready.

        Args:
            name: of these jobs: under the same one they are added once.
            closes: these are the last ones.

        Raises:
            FlowClosed: it takes no more, or is none.
            FlowNotFound: it is not known.
            SendError, StateUnavailable: some may have been added; it is to be called again.
        """
        flows = self.flow_store()
        if (record := await flows.look(flow_id)) is None:
            raise FlowNotFound(f"workflow {flow_id} is unknown: it was never sent to this state, or has expired")
        for first in range(0, len(calls) or 1, _APPENDED):
            piece = calls[first : first + _APPENDED]
            is_last = closes and first + _APPENDED >= len(calls)
            label = "" if name is None else f"{name}/{first}"
            if await flows.append(flow_id, BATCH_NODE, piece, name=label, closes=is_last) is None:
                raise FlowClosed(
                    f"workflow {flow_id} accepts no more jobs: it was closed or cancelled, or is not a batch", flow_id
                )
        # A separate name: others that add at the same time are not to publish the same.
        taker = f"{_SENDER} {os.urandom(8).hex()}"
        content_type = decode_head(record.head).content_type
        await FlowPublisher(self._services, flow_id, taker=taker, content_type=content_type).resume()

    async def resume(self, flow_id: str) -> None:
        """Publish what is ready."""
        record = await self.flow_store().look(flow_id)
        if record is not None:
            await self._publisher(flow_id, decode_head(record.head).content_type).resume()

    async def cancel(self, flow_id: str, *, reason: str) -> bool:
        """Cancel a flow; False where it is not known."""
        flows = self.flow_store()
        revocations = require_store(self.sessions.current().stores.revocations, "workflows need")
        running = await flows.cancel(flow_id, reason=reason)
        if running is None:
            return False
        record = await flows.look(flow_id)
        if record is None:
            return False
        for key in running:
            job_id = flow_job_id(flow_id, key, record.run)
            await revocations.revoke(job_id, reason=reason, ttl=_REMEMBERED)
            self._services.jobs.sent.announce_cancellation(job_id)
        await self.resume(flow_id)
        return True

    async def redrive(self, flow_id: str) -> Redriven:
        """Run again what has not succeeded, and remove the dead letters of its earlier runs.

        Nothing happens where the flow has not ended, or everything has succeeded. Called again after an error, it
        goes on. Letters that cannot be looked at stay, with a warning.
        """
        flows = self.flow_store()
        before = await flows.states(flow_id)
        failed = [key for key, state in before.items() if state is NodeState.FAILED]
        queues = await self._queues_of(flows, flow_id, failed or list(before))
        steps = await flows.redrive(flow_id)
        await self.resume(flow_id)
        record = await flows.look(flow_id)
        if record is None or not record.run:
            return Redriven(steps, 0)
        try:
            letters = await remove_letters(
                self.sessions.current().broker,
                flow_id,
                run=record.run,
                queues=queues,
                expected=len(failed) if steps else 0,
                within=_LATE_LETTERS,
            )
        except BrokerUnavailable as error:
            _log.warning("workflow %s: removing the dead letters of its redriven steps failed: %s", flow_id, error)
            letters = 0
        return Redriven(steps, letters)

    async def _queues_of(self, flows: FlowStore, flow_id: str, keys: list[str]) -> set[str]:
        queues: set[str] = set()
        for first in range(0, len(keys), _PAGE):
            calls = await flows.calls(flow_id, keys[first : first + _PAGE])
            queues.update(decode_call(call).queue for call in calls if call)
        return queues - {""}

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """See `JobService`."""
        return await self._services.jobs.wait_for_result(job_id, timeout)

    async def find_result(self, job_id: str) -> ResultRecord | None:
        """The record if it is there, without a value that is kept elsewhere."""
        return await self._services.jobs.find_result(job_id)

    def _publisher(self, flow_id: str, content_type: str) -> FlowPublisher:
        return FlowPublisher(self._services, flow_id, taker=_SENDER, content_type=content_type)
