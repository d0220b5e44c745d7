"""Workflows by name: store versions, choose the current one, and start runs."""

import os
from collections.abc import Sequence

import msgspec

from taskmq.api.job_requests import JobTerms
from taskmq.api.workflows.definitions import (
    StartedRunView,
    StartRunBody,
    WorkflowBody,
    WorkflowLineView,
    WorkflowList,
    WorkflowView,
)
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text
from taskmq.app_api.workflow_files.call_checks import find_call_faults
from taskmq.app_api.workflow_files.reader import read_workflow
from taskmq.app_api.workflow_files.schedules import FileSchedules
from taskmq.contracts.jobs import NewRun, RunStore, StoredVersion
from taskmq.errors import InvalidOption, NotPermitted, RequestRefused, WorkflowNotFound
from taskmq.model.envelope import new_job_id
from taskmq.model.identity import Permission
from taskmq.model.keys import run_id_of, tenant_key
from taskmq.model.runs.graphs import StepContent, WorkflowContent, encode_workflow
from taskmq.model.runs.validation import find_wrong_parameter
from taskmq.workflow.runs.calls import find_calls
from taskmq.workflow.runs.service import RunService, timeout_of_run


class AppWorkflows(AppCalls):
    """Workflows by name, their versions, and starts of runs.

    Every tenant sees and starts workflows without a tenant, unless it has one of that name. It cannot change them.

    Methods raise `WorkflowNotFound`; changes and starts raise `NotPermitted` for tasks that are not allowed.
    """

    async def put(self, name: str, body: WorkflowBody) -> WorkflowView:
        """Store the workflow of a file. New content becomes the current version; known content changes nothing.

        The schedule in the file becomes that of the workflow, unless the version is known and not current.

        Raises:
            InvalidWorkflow: the file has faults.
            InvalidOption: a schedule with the workflow's name exists that no file made.
            NotPermitted: the caller may not change schedules, and the schedule changes; or may not call a task of the
                workflow, of its sub-workflows or of the version that is replaced.
        """
        file = read_workflow(body.text.encode(), body.format, name=name)
        if faults := await find_call_faults(self._app, file.content):
            raise file.refuse(faults)
        await self._check_calls(file.content)
        await self._check_current(name)
        version, text = encode_workflow(file.content)
        known = await self._runs.workflow(self._tenant, name, version)
        if known is None or known[0].is_current:
            await self._check_schedule(text)
        if body.dry_run:
            made = StoredVersion(name=name, version=version, at=0, is_current=True, is_new=known is None)
            return self._view(made if known is None else known[0], text)
        await self._caller.note_action(self._app, "workflow.put", subject=name, after={"version": version})
        stored = await self._runs.put_workflow(self._tenant, name, text)
        if stored.is_current:
            await self._schedules.write(_content_of(text))
        return self._view(stored, text)

    async def get(self, name: str, *, version: str = "") -> WorkflowView:
        owner, stored, text = await self._find(name, version)
        return self._view(stored, text, owner=owner)

    async def versions(self, name: str) -> Sequence[WorkflowLineView]:
        for tenant in self._tenants:
            if found := await self._runs.versions(tenant, name):
                return [self._line(each, owner=tenant) for each in found]
        raise _not_found(name, "")

    async def activate(self, name: str, version: str) -> WorkflowView:
        """Make a version the current one: runs without a version get it from now on, and its schedule starts them.

        Raises:
            InvalidOption: as `put`.
            NotPermitted: as `put`, or the version belongs to the workflow that all tenants share.
        """
        owner, _, text = await self._find(name, version)
        if owner != self._tenant:
            raise NotPermitted(
                f"workflow {name[:128]!r} is shared by all tenants, so only a role on the instance may change it: "
                "store your own under this name instead"
            )
        await self._check_calls(_content_of(text))
        await self._check_current(name)
        await self._check_schedule(text)
        await self._caller.note_action(self._app, "workflow.activate", subject=name, after={"version": version})
        made = await self._runs.activate(self._tenant, name, version)
        if made is None:
            raise _not_found(name, version)
        await self._schedules.write(_content_of(text))
        return self._view(made, text)

    async def page(self, *, limit: int = 50, cursor: str | None = None) -> WorkflowList:
        by_name: dict[str, WorkflowLineView] = {}
        for tenant in reversed(self._tenants):
            read = await self._runs.workflows(tenant, after=cursor or "", limit=limit + 1)
            by_name |= {each.name: self._line(each, owner=tenant) for each in read}
        found = [by_name[name] for name in sorted(by_name)]
        after = found[limit - 1].name if len(found) > limit else None
        return WorkflowList(found[:limit], after)

    async def start(self, name: str, body: StartRunBody) -> StartedRunView:
        """Start a run. The same id again changes nothing.

        Raises:
            InvalidOption: a parameter is missing, unknown or does not fit its schema.
            RequestRefused: `run_exists`: another run has the id.
        """
        _, stored, text = await self._find(name, body.version)
        content = _content_of(text)
        await self._check_calls(content)
        if wrong := find_wrong_parameter(content.params, body.params):
            raise InvalidOption(f"workflow {name}: {wrong}")
        chosen = body.run_id or new_job_id(self._app.sessions.clock.now_ms(), os.urandom(10))
        run_id = run_id_of(tenant_key(self._tenant or None, chosen))
        await self._caller.note_action(
            self._app, "workflow.start", subject=name, after={"run": run_id, "version": stored.version}
        )
        run = NewRun(
            id=run_id,
            tenant=self._tenant,
            workflow=name,
            version=stored.version,
            params=msgspec.json.encode(body.params),
            labels=body.labels,
            timeout=timeout_of_run(body.timeout),
        )
        service = RunService(self._app.sessions)
        (started,) = await service.store.start([run])
        if started.refusal:
            raise RequestRefused(f"workflow {name}: {started.refusal}", status=409, code="run_refused")
        if not started.is_new:
            known = await self._runs.get(run_id)
            if known is None or (known.tenant, known.workflow) != (self._tenant, name):
                raise RequestRefused(
                    f"another run has the id {run_id}: choose a new one", status=409, code="run_exists"
                )
        service.wake([run_id])
        return StartedRunView(run_id=run_id, workflow=name, version=started.version, is_new=started.is_new)

    @property
    def _runs(self) -> RunStore:
        return RunService(self._app.sessions).store

    @property
    def _tenant(self) -> str:
        return self._caller.tenant or ""

    @property
    def _tenants(self) -> list[str]:
        """The owners of workflows that the caller sees, the one that wins first."""
        return list(dict.fromkeys((self._tenant, "")))

    @property
    def _schedules(self) -> FileSchedules:
        return FileSchedules(self._app, self._tenant)

    def _line(self, stored: StoredVersion, *, owner: str) -> WorkflowLineView:
        return WorkflowLineView(
            name=stored.name,
            version=stored.version,
            at=instant_text(stored.at or None),
            is_current=stored.is_current,
            is_shared=owner != self._tenant,
        )

    def _view(self, stored: StoredVersion, text: bytes, *, owner: str | None = None) -> WorkflowView:
        line = msgspec.structs.asdict(self._line(stored, owner=self._tenant if owner is None else owner))
        return WorkflowView(**line, content=msgspec.json.decode(text), is_new=stored.is_new)

    async def _check_schedule(self, text: bytes) -> None:
        """Check that the caller may give the workflow the schedule of this content."""
        changes = await self._schedules.find_change(_content_of(text)) is not None
        if changes and not self._caller.may(Permission.SCHEDULES_CHANGE, self._tenant):
            raise NotPermitted("permission denied: the file changes the schedule of the workflow: schedules.change")

    async def _find(self, name: str, version: str) -> tuple[str, StoredVersion, bytes]:
        """Return the owner of a workflow, a version and its text."""
        for tenant in self._tenants:
            if (found := await self._runs.workflow(tenant, name, version)) is not None:
                return tenant, *found
        raise _not_found(name, version)

    async def _check_current(self, name: str) -> None:
        """Check that the caller may replace the current version of a workflow: may call its tasks."""
        if (current := await self._runs.workflow(self._tenant, name)) is not None:
            await self._check_tasks(_content_of(current[1]))

    async def _check_calls(self, content: WorkflowContent) -> None:
        """Check that the caller may call the tasks of all steps and sub-workflows, with their options."""
        for step in await self._check_tasks(content):
            terms = JobTerms(owner=step.options.get("owner", ""), queue=step.options.get("queue"))
            await self._check_options(terms, step.task)

    async def _check_tasks(self, content: WorkflowContent) -> list[StepContent]:
        """Return the steps of a content and its sub-workflows that call tasks, all of which the caller may call."""
        calls = await find_calls(self._runs, self._tenant, content)
        for name, step in calls:
            if not self._caller.allows(step.task):
                raise NotPermitted(f"step {name}: you are not permitted to call task {step.task!r}")
        return [step for _, step in calls]


def _not_found(name: str, version: str) -> WorkflowNotFound:
    which = f" with version {version[:80]}" if version else ""
    return WorkflowNotFound(f"there is no workflow {name[:128]!r}{which}")


def _content_of(text: bytes) -> WorkflowContent:
    return msgspec.json.decode(text, type=WorkflowContent)
