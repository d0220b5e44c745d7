"""Workflows: which there are, how far they are, ending them, and running again what has failed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from taskmq.api.workers import CancelFlowBody, StepView, WorkflowLineView, WorkflowList, WorkflowState, WorkflowView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, rendered
from taskmq.errors import FlowNotFound, NotPermitted, RequestRefused
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.operations.workflows import WorkflowReport, cancel_workflow, redrive_workflow, report_workflow
from taskmq.workflow.handle import FlowStep
from taskmq.workflow.service import Redriven
from taskmq.workflow.workflows import WorkflowLine

__all__ = ["AppWorkflows"]

_LONGEST_ID: Final = 255


class AppWorkflows(AppCalls):
    """Workflows, by their ids. Calls raise `FlowNotFound`; changes `NotPermitted` for tasks that are not allowed."""

    async def get(self, workflow_id: str) -> WorkflowView:
        """Show the progress of a workflow, step by step."""
        found = await report_workflow(self._app, self._full_id(workflow_id))
        return WorkflowView(
            workflow_id=workflow_id,
            tenant=split_tenant_key(found.id)[0],
            state=found.state,
            cancelled=found.cancelled,
            steps=[_step(step) for step in found.steps],
        )

    async def cancel(self, workflow_id: str, *, reason: str | None = None) -> None:
        """End a workflow: what has not started never will, what runs is stopped.

        Raises:
            RequestRefused: `workflow_ended`: it has ended already.
        """
        reason = CancelFlowBody().reason if reason is None else reason
        report = await self._operated(workflow_id)
        await self._caller.note_action(self._app, "workflow.cancel", subject=report.id, note=reason)
        if not await cancel_workflow(self._app, report.id, reason=reason):
            state = (await report_workflow(self._app, report.id)).state
            said = f"workflow {workflow_id} has ended: it is {state}"
            raise RequestRefused(said, status=409, code="workflow_ended")

    async def close(self, workflow_id: str) -> None:
        """Have no more jobs come to a batch: it ends when those that it has have ended.

        Raises:
            FlowClosed: it was cancelled, or is no batch.
        """
        report = await self._operated(workflow_id)
        await self._caller.note_action(self._app, "workflow.close", subject=report.id)
        await self._app.flow(report.id).aclose()

    async def redrive(self, workflow_id: str) -> Redriven:
        """Run again what has not succeeded, and take the dead letters of its earlier runs off their queues."""
        report = await self._operated(workflow_id)
        await self._caller.note_action(self._app, "workflow.redrive", subject=report.id)
        return await redrive_workflow(self._app, report.id)

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
        """A page of the workflows that were sent in a time, the newest first.

        By name and state a bounded number is looked at for each page: one that `is_bounded` has a `next` all the
        same.

        Args:
            name: that they have, with `*` and `?`.
            states: one of these; none: all.

        Raises:
            InvalidOption: the cursor is none.
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
        return WorkflowList(items=rendered(self._line, page.lines), next=page.after, is_bounded=page.is_bounded)

    async def _operated(self, workflow_id: str) -> WorkflowReport:
        """Read a workflow that the caller may operate: they may call the tasks of all its steps."""
        report = await report_workflow(self._app, self._full_id(workflow_id))
        for step in report.steps:
            if step.task and not self._caller.allows(step.task):
                raise NotPermitted(f"you may not call task {step.task!r}, which is one of its steps")
        return report

    def _full_id(self, workflow_id: str) -> str:
        """The id that the state knows it by: that of a tenant's begins with the tenant, and so is unique to it."""
        is_foreign = self._caller.tenant == "" and split_tenant_key(workflow_id)[0]
        if "\0" in workflow_id or len(workflow_id) > _LONGEST_ID or is_foreign:
            raise FlowNotFound(f"workflow {workflow_id[:_LONGEST_ID]} is not known")
        return tenant_key(self._caller.tenant or None, workflow_id)

    def _line(self, line: WorkflowLine) -> WorkflowLineView:
        tenant, own_id = split_tenant_key(line.id)
        return WorkflowLineView(
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
