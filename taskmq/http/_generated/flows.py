# Generated from taskmq/http/aio/flows.py by `python -m tests.house.blocking_client`: change that one.
"""Workflows, through the server."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from taskmq.api.workers import (
    CancelFlowBody,
    FlowLineView,
    FlowList,
    FlowReportView,
    FlowStateWord,
)
from taskmq.http._generated.connection import HttpConnection, every
from taskmq.workflow.service import Redriven

__all__ = ["FlowCalls"]


class FlowCalls:
    """Workflows by their ids."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def get(self, workflow_id: str) -> FlowReportView:
        """Return a workflow with the state of each step."""
        return self._connection.ask("getFlow", FlowReportView, path={"workflow_id": workflow_id})

    def cancel(self, workflow_id: str, *, reason: str | None = None) -> None:
        """Cancel a workflow: steps that have not started never will, and running ones are stopped."""
        body = CancelFlowBody() if reason is None else CancelFlowBody(reason=reason)
        self._connection.ask("cancelFlow", dict[str, str], path={"workflow_id": workflow_id}, body=body)

    def close(self, workflow_id: str) -> None:
        """Close a batch to new jobs. It ends when its jobs have ended.

        Raises:
            FlowClosed: it is cancelled, or not a batch.
        """
        self._connection.ask("closeFlow", dict[str, str], path={"workflow_id": workflow_id})

    def redrive(self, workflow_id: str) -> Redriven:
        """Run failed steps again."""
        return self._connection.ask("redriveFlow", Redriven, path={"workflow_id": workflow_id})

    def page(
        self,
        *,
        name: str | None = None,
        states: Sequence[FlowStateWord] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> FlowList:
        """Return a page of workflows, newest first.

        Args:
            name: the workflow's name, with `*` and `?`.
            states: only these states; none for all.
            since: sent at or after this time.
            until: sent before this time.
        """
        query = {
            "name": name,
            "states": ",".join(states) or None,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        }
        return self._connection.ask("listFlows", FlowList, query=query)

    def list(
        self,
        *,
        name: str | None = None,
        states: Sequence[FlowStateWord] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 200,
    ) -> Iterator[FlowLineView]:
        """Iterate over matching workflows, newest first; see `page`."""
        return every(
            lambda cursor: self.page(
                name=name, states=states, since=since, until=until, limit=page_size, cursor=cursor
            )
        )
