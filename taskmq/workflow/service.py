"""Workflows as an app has them: started, gone on with, cancelled."""

import os
from typing import Final

from taskmq.client.services import AppServices
from taskmq.client.sessions import Sessions
from taskmq.contracts.stores import ResultRecord, require_store
from taskmq.contracts.stores.flows import FlowStore
from taskmq.model.envelope import new_job_id
from taskmq.model.keys import flow_job_id
from taskmq.workflow.model.calls import Graph, decode_head, encode_head
from taskmq.workflow.publisher import FlowPublisher, flow_store

__all__ = ["WorkflowService"]

_SENDER: Final = "sender"
_REMEMBERED: Final = 7 * 86_400.0


class WorkflowService:
    """What workflows and their handles call."""

    def __init__(self, services: AppServices) -> None:
        self.sessions: Sessions = services.producer.sessions
        self.content_type: str = services.producer.content_type
        self._services = services

    def flow_store(self) -> FlowStore:
        """Where workflows are kept, as the running loop's session sees it.

        Raises:
            UnsupportedFeature: the app has no state.
        """
        return flow_store(self.sessions.current())

    async def start(self, graph: Graph, *, flow_id: str | None, keep: float) -> str:
        """Make a flow and publish what is ready; its id. One that is there already goes on instead.

        Args:
            keep: seconds.
        """
        flow_id = flow_id or new_job_id(self.sessions.clock.now_ms(), os.urandom(10))
        await self.flow_store().create(flow_id, encode_head(graph.head), graph.nodes, ttl=keep)
        await self._publisher(flow_id, graph.head.content_type).resume()
        return flow_id

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
            self._services.jobs.say_cancelled(job_id)
        await self.resume(flow_id)
        return True

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """See `JobService`."""
        return await self._services.jobs.wait_for_result(job_id, timeout)

    def _publisher(self, flow_id: str, content_type: str) -> FlowPublisher:
        return FlowPublisher(self._services, flow_id, taker=_SENDER, content_type=content_type)
