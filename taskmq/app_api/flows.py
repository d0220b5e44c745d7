"""Workflows: list, inspect, cancel, close and redrive."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from taskmq.api.workers import CancelFlowBody, FlowLineView, FlowList, FlowReportView, FlowStateWord, StepView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, render_all
from taskmq.errors import FlowNotFound, NotPermitted, RequestRefused
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.operations.workflows import (
    WorkflowReport,
    cancel_workflow,
    flow_of,
    redrive_workflow,
    report_workflow,
)
from taskmq.workflow.handle import FlowStep
from taskmq.workflow.service import Redriven
from taskmq.workflow.workflows import WorkflowLine

__all__ = ["AppFlows"]

_LONGEST_ID: Final = 255


class AppFlows(AppCalls):
    """Workflows by id. Methods raise `FlowNotFound`; changes raise `NotPermitted` for tasks that are not allowed."""

    async def get(self, workflow_id: str) -> FlowReportView:
        """Return a workflow with the state of each step."""
        found = await report_workflow(self._app, self._full_id(workflow_id))
        return FlowReportView(
            workflow_id=workflow_id,
            tenant=split_tenant_key(found.id)[0],
            state=found.state,
            cancelled=found.cancelled,
            steps=[_step(step) for step in found.steps],
        )

    async def cancel(self, workflow_id: str, *, reason: str | None = None) -> None:
        """Cancel a workflow: steps that have not started never will, and running ones are stopped.

        Raises:
            RequestRefused: `workflow_ended`: it has already ended.
        """
        reason = CancelFlowBody().reason if reason is None else reason
        report = await self._find_operable(workflow_id)
        await self._caller.note_action(self._app, "workflow.cancel", subject=report.id, note=reason)
        if not await cancel_workflow(self._app, report.id, reason=reason):
            state = (await report_workflow(self._app, report.id)).state
            said = f"workflow {workflow_id} has ended: it is {state}"
            raise RequestRefused(said, status=409, code="workflow_ended")

    async def close(self, workflow_id: str) -> None:
        """Close a batch to new jobs. It ends when its jobs have ended.

        Raises:
            FlowClosed: it is cancelled, or not a batch.
        """
        report = await self._find_operable(workflow_id)
        await self._caller.note_action(self._app, "workflow.close", subject=report.id)
        await flow_of(self._app, report.id).aclose()

    async def redrive(self, workflow_id: str) -> Redriven:
        """Run failed steps again, and remove the dead letters of their earlier runs."""
        report = await self._find_operable(workflow_id)
        await self._caller.note_action(self._app, "workflow.redrive", subject=report.id)
        return await redrive_workflow(self._app, report.id)

    async def page(
        self,
        *,
        name: str | None = None,
        states: Sequence[FlowStateWord] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> FlowList:
        """Return a page of workflows sent in a period, newest first.

        Filters by name and state examine a limited number per page; a page with `is_bounded` still has a `next`.

        Args:
            name: the workflow's name, with `*` and `?`.
            states: only these states; none for all.

        Raises:
            InvalidOption: the cursor is malformed.
        """
        page = await self._app.workflows.alist(
            name=name,
            states=frozenset(states),
            tenant=self._caller.tenant,
            since=since,
            until=until,
            after=cursor,
            limit=limit,
        )
        return FlowList(items=render_all(self._line, page.lines), next=page.after, is_bounded=page.is_bounded)

    async def _find_operable(self, workflow_id: str) -> WorkflowReport:
        """Return a workflow, if the caller may call the tasks of all its steps."""
        report = await report_workflow(self._app, self._full_id(workflow_id))
        for step in report.steps:
            if step.task and not self._caller.allows(step.task):
                raise NotPermitted(f"permission denied: a step calls task {step.task!r}, which you may not call")
        return report

    def _full_id(self, workflow_id: str) -> str:
        """Return the id in the state, where the tenant's prefix makes ids of tenants unique."""
        is_foreign = self._caller.tenant == "" and split_tenant_key(workflow_id)[0]
        if "\0" in workflow_id or len(workflow_id) > _LONGEST_ID or is_foreign:
            raise FlowNotFound(f"workflow {workflow_id[:_LONGEST_ID]} not found")
        return tenant_key(self._caller.tenant or None, workflow_id)

    def _line(self, line: WorkflowLine) -> FlowLineView:
        tenant, own_id = split_tenant_key(line.id)
        return FlowLineView(
            workflow_id=line.id if self._caller.tenant is None else own_id,
            name=line.name,
            tenant=tenant,
            state=line.state,
            cancelled=line.cancelled,
            started=instant_text(line.started),
            nodes=line.nodes,
            unfinished=line.unfinished,
        )


def _step(step: FlowStep) -> StepView:
    error = step.error
    return StepView(
        step=step.name,
        task=step.task,
        state=step.state,
        attempts=step.attempts,
        error=None if error is None else f"{error.type_name}: {error.message}",
        after=list(step.after),
        part_of=step.part_of,
    )
