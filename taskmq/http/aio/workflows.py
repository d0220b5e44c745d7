"""Workflows, by the server."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from taskmq.api.workers import (
    CancelFlowBody,
    WorkflowLineView,
    WorkflowList,
    WorkflowState,
    WorkflowView,
)
from taskmq.http.aio.connection import AsyncHttpConnection, every
from taskmq.workflow.service import Redriven

__all__ = ["AsyncWorkflowCalls"]


class AsyncWorkflowCalls:
    """Workflows, by their ids."""

    def __init__(self, connection: AsyncHttpConnection) -> None:
        self._connection = connection

    async def get(self, workflow_id: str) -> WorkflowView:
        """Show the progress of a workflow, step by step."""
        return await self._connection.ask("getWorkflow", WorkflowView, path={"workflow_id": workflow_id})

    async def cancel(self, workflow_id: str, *, reason: str | None = None) -> None:
        """End a workflow: what has not started never will, what runs is stopped."""
        body = CancelFlowBody() if reason is None else CancelFlowBody(reason=reason)
        await self._connection.ask("cancelWorkflow", dict[str, str], path={"workflow_id": workflow_id}, body=body)

    async def close(self, workflow_id: str) -> None:
        """Have no more jobs come to a batch: it ends when those that it has have ended.

        Raises:
            FlowClosed: it was cancelled, or is no batch.
        """
        await self._connection.ask("closeWorkflow", dict[str, str], path={"workflow_id": workflow_id})

    async def redrive(self, workflow_id: str) -> Redriven:
        """Run again what has not succeeded."""
        return await self._connection.ask("redriveWorkflow", Redriven, path={"workflow_id": workflow_id})

    async def page(
        self,
        *,
        name: str | None = None,
        states: Sequence[WorkflowState] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> WorkflowList:
        """A page of the workflows, the newest first.

        Args:
            name: that they have, with `*` and `?`.
            states: one of these; none: all.
            since: sent from this instant on.
            until: sent before this instant.
        """
        query = {
            "name": name,
            "states": ",".join(states) or None,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        }
        return await self._connection.ask("listWorkflows", WorkflowList, query=query)

    def list(
        self,
        *,
        name: str | None = None,
        states: Sequence[WorkflowState] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 200,
    ) -> AsyncIterator[WorkflowLineView]:
        """Iterate over the workflows of the kind, the newest first; see `page`."""
        return every(
            lambda cursor: self.page(
                name=name, states=states, since=since, until=until, limit=page_size, cursor=cursor
            )
        )
