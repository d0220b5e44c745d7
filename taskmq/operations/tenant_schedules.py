"""Schedules that one caller may see: those of one tenant, or those of all tenants and of the app.

As in `tenant_jobs`, another tenant's schedule is reported as unknown. A tenant owns the stored schedules whose names
start with its prefix, and uses their names without it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from taskmq.app import TaskMQ
from taskmq.errors import InvalidOption, NotPermitted, ScheduleNotFound, UnsupportedFeature
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.model.runs.graphs import WorkflowContent, load_graph
from taskmq.schedules import Backfill, ScheduleEntry, ScheduleStatus
from taskmq.schedules.policy import ScheduleOptions
from taskmq.schedules.target import StoredWorkflow, tasks_of
from taskmq.schedules.triggers import Trigger
from taskmq.tasks.job_options import DefinitionOptions
from taskmq.tasks.task import Task
from taskmq.workflow.runs.calls import find_calls

_LONGEST_NAME = 255


class TenantSchedule(NamedTuple):
    """A schedule and its status.

    Attributes:
        name: the caller's name for it.
        status: None if the app has neither a store nor a state, so that only the code knows the schedule.
    """

    name: str
    entry: ScheduleEntry
    status: ScheduleStatus | None


class TenantSchedulePage(NamedTuple):
    """A page of the caller's schedules, sorted by name.

    Attributes:
        after: cursor of the next page; None at the end.
    """

    schedules: list[TenantSchedule]
    after: str | None


class TenantSchedules:
    """The schedules that a caller may see, and the actions on them.

    Every method raises `ScheduleNotFound` if there is no such schedule or it belongs to another tenant,
    `StoreUnavailable`, and `UnsupportedFeature` if the app has neither a store nor a state.

    Args:
        tenant: tenant that owns the schedules; "" means schedules without a tenant. None means all; their names then
            start with the tenant's prefix.
        allows: whether the caller may call a task of that name.
    """

    def __init__(self, app: TaskMQ, tenant: str | None, *, allows: Callable[[str], bool] = lambda _: True) -> None:
        self._app = app
        self._schedules = app.schedules
        self._tenant = tenant
        self._allows = allows

    def full_name(self, name: str) -> str:
        """Return the app's name for the schedule.

        Raises:
            ScheduleNotFound: the name is not possible for the caller's schedules.
        """
        if not name.isprintable() or len(name) > _LONGEST_NAME or (self._tenant == "" and split_tenant_key(name)[0]):
            raise ScheduleNotFound(f"no schedule is called {name[:80]!r}")
        return tenant_key(self._tenant or None, name)

    async def list(self, prefix: str, *, after: str | None, limit: int) -> TenantSchedulePage:
        """Return up to `limit` of the caller's schedules whose names start with `prefix`, sorted, after `after`.

        Without a store or a state, all schedules of the code are returned at once.
        """
        behind = tenant_key(self._tenant or None, after or "")
        try:
            page = await self._schedules.alist(prefix, tenant=self._tenant, after=behind, limit=limit)
        except UnsupportedFeature:
            own = {} if self._tenant else dict(self._schedules)
            names = sorted(name for name in own if name > behind and name.startswith(prefix))
            return TenantSchedulePage([TenantSchedule(name, own[name], None) for name in names], None)
        listed = [TenantSchedule(self._own_name(one.entry.name), *one) for one in page.schedules]
        return TenantSchedulePage(listed, None if page.after is None else self._own_name(page.after))

    async def entry(self, name: str) -> ScheduleEntry:
        """Return the definition of a schedule."""
        try:
            return await self._schedules.aentry(self.full_name(name))
        except UnsupportedFeature as error:
            raise ScheduleNotFound(f"no schedule of the code is called {name!r}, and {error}") from error

    async def get(self, name: str) -> TenantSchedule:
        """Return the schedule of that name, with its status."""
        entry = await self.entry(name)
        try:
            return TenantSchedule(name, entry, await self._schedules.astatus(self.full_name(name)))
        except UnsupportedFeature:
            return TenantSchedule(name, entry, None)

    async def add(
        self,
        name: str,
        task: str,
        trigger: Trigger,
        *,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: ScheduleOptions,
        job_options: DefinitionOptions | None = None,
    ) -> None:
        """Add a schedule. Adding the same one again changes nothing. Raises the errors of `put`.

        Raises:
            InvalidOption: a different schedule has the name.
        """
        await self.check_put(name, task)
        full = self.full_name(name)
        await self._schedules.aadd(
            full,
            self._resolve(task),
            trigger,
            args=tuple(args),
            kwargs=dict(kwargs),
            job_options=job_options,
            **options,
        )

    async def has(self, name: str) -> bool:
        """Whether there is a schedule of that name."""
        try:
            await self.entry(name)
        except ScheduleNotFound:
            return False
        return True

    async def put(
        self,
        name: str,
        task: str,
        trigger: Trigger,
        *,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: ScheduleOptions,
        job_options: DefinitionOptions | None = None,
    ) -> bool:
        """Create or replace the schedule of a task or definition. Returns whether it was created.

        Raises:
            UnknownTask: there is no task or definition of that name.
            NotPermitted: the caller may not call the task, or the task of the schedule to replace.
            InvalidOption, InvalidArguments, EncodeError: the schedule is invalid; nothing was changed.
        """
        if self._app.sessions.store_url is None:
            raise UnsupportedFeature("replacing schedules needs a job store; add the schedule under another name")
        await self.check_put(name, task)
        full = self.full_name(name)
        given: dict[str, Any] = {
            "args": tuple(args),
            "kwargs": dict(kwargs),
            "job_options": job_options,
            **options,
        }
        try:
            await self._schedules.areplace(full, task, trigger, **given)
        except ScheduleNotFound:
            await self._schedules.aadd(full, task, trigger, **given)
            return True
        return False

    async def change(
        self,
        name: str,
        *,
        task: str | None,
        trigger: Trigger | None,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        options: ScheduleOptions,
        job_options: DefinitionOptions | None = None,
    ) -> None:
        """Change a schedule that was created at run time. None and missing options keep the present values.

        Raises:
            ScheduleNotFound: there is no schedule of that name.
            UnknownTask, NotPermitted, InvalidOption, InvalidArguments, EncodeError: see `put`.
        """
        given = None if args is None else tuple(args)
        called = None if task is None else self._resolve(task)
        await self._schedules.achange(
            self.full_name(name), called, trigger, args=given, kwargs=kwargs, job_options=job_options, **options
        )

    async def check_change(self, name: str, task: str | None) -> None:
        """Check that the caller may change the schedule; raises the errors of `change`."""
        await self.check_run(name)
        if self.full_name(name) in self._schedules:
            raise InvalidOption(f"schedule {name!r} is defined in the code: change it there")
        if task is not None:
            await self._check_name(task)

    async def check_put(self, name: str, task: str) -> None:
        """Check that the caller may put the schedule: it may call both tasks, and the name is not taken by the code.

        Raises the errors of `put`.
        """
        full = self.full_name(name)
        if full in self._schedules:
            raise InvalidOption(f"schedule {name!r} is defined in the code already")
        await self._check_name(task)
        with suppress(ScheduleNotFound):
            await self.check_run(name)

    async def remove(self, name: str) -> None:
        """Remove a schedule. It stops firing within a second.

        Raises:
            InvalidOption: the schedule is defined in the code.
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        await self._schedules.aremove(self.full_name(name))

    async def pause(self, name: str, *, note: str) -> None:
        """Pause a schedule until it is resumed.

        Raises:
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        await self._schedules.apause(self.full_name(name), note=note)

    async def resume(self, name: str) -> None:
        """Resume a paused schedule.

        Raises:
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        await self._schedules.aresume(self.full_name(name))

    async def run(self, name: str) -> str:
        """Run the schedule's call now. Returns the caller's id of the job or workflow.

        Raises:
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        return self._own_name(await self._schedules.arun(self.full_name(name)))

    async def check_run(self, name: str) -> None:
        """Check that the caller may call the schedule's tasks; raises the errors of `run`."""
        entry = await self.entry(name)
        tasks = [entry.task.name]
        if entry.workflow is not None:
            tasks = [*tasks_of(entry.workflow), *await self._find_tasks(name, entry.workflow)]
        for task in tasks:
            self._check_permission(task)

    async def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool) -> Backfill:
        """Run the past occurrences from `start` up to `end`; see `Schedules.backfill`.

        Raises:
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        return await self._schedules.abackfill(self.full_name(name), start, end, dry_run=dry_run)

    async def _find_tasks(self, name: str, workflow: WorkflowContent | StoredWorkflow) -> Sequence[str]:
        """Return the tasks that the next run of a workflow would call, and those of its sub-workflows."""
        runs, (tenant, _) = self._app.sessions.store().runs, split_tenant_key(self.full_name(name))
        if isinstance(workflow, StoredWorkflow):
            if (stored := await runs.workflow(tenant, workflow.name)) is None:
                return ()
            workflow = load_graph(stored[1]).content
        return [step.task for _, step in await find_calls(runs, tenant, workflow)]

    def _resolve(self, task: str) -> Task[..., Any] | str:
        """Resolve a name to a task of the app; with a store, keep the name for the store to resolve.

        Raises:
            InvalidOption: the app has no store and no such task.
        """
        if self._app.sessions.store_url is not None:
            return task
        if (known := self._app.tasks.get(task)) is None:
            has = ", ".join(sorted(self._app.tasks)) or "none"
            raise InvalidOption(f"the app has no task {task!r}; it has {has}")
        return known

    async def _check_name(self, task: str) -> None:
        if isinstance(self._resolve(task), str):
            task = (await self._app.jobs.find_call(task, tenant=self._tenant)).task
        self._check_permission(task)

    def _own_name(self, name: str) -> str:
        return split_tenant_key(name)[1] if self._tenant else name

    def _check_permission(self, task: str) -> None:
        if not self._allows(task):
            raise NotPermitted(f"you are not permitted to call task {task!r}")
