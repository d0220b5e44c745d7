# Generated from taskmq/http/aio/workflows.py by `python -m tests.house.blocking_client`: change that one.
"""Workflows, by the server."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from taskmq.api.workers import (
    CancelFlowBody,
    WorkflowLineView,
    WorkflowList,
    WorkflowState,
    WorkflowView,
)
from taskmq.http._generated.connection import HttpConnection, every
from taskmq.workflow.service import Redriven

__all__ = ["WorkflowCalls"]


class WorkflowCalls:
    """Workflows, by their ids."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def get(self, workflow_id: str) -> WorkflowView:
        """Show the progress of a workflow, step by step."""
        return self._connection.ask("getWorkflow", WorkflowView, path={"workflow_id": workflow_id})

    def cancel(self, workflow_id: str, *, reason: str | None = None) -> None:
        """End a workflow: what has not started never will, what runs is stopped."""
        body = CancelFlowBody() if reason is None else CancelFlowBody(reason=reason)
        self._connection.ask("cancelWorkflow", dict[str, str], path={"workflow_id": workflow_id}, body=body)

    def close(self, workflow_id: str) -> None:
        """Have no more jobs come to a batch: it ends when those that it has have ended.

        Raises:
            FlowClosed: it was cancelled, or is no batch.
        """
        self._connection.ask("closeWorkflow", dict[str, str], path={"workflow_id": workflow_id})

    def redrive(self, workflow_id: str) -> Redriven:
        """Run again what has not succeeded."""
        return self._connection.ask("redriveWorkflow", Redriven, path={"workflow_id": workflow_id})

    def page(
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
        return self._connection.ask("listWorkflows", WorkflowList, query=query)

    def list(
        self,
        *,
        name: str | None = None,
        states: Sequence[WorkflowState] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 200,
    ) -> Iterator[WorkflowLineView]:
        """Iterate over the workflows of the kind, the newest first; see `page`."""
        return every(
            lambda cursor: self.page(
                name=name, states=states, since=since, until=until, limit=page_size, cursor=cursor
            )
        )
