"""Schedules as one caller may see them: those of a tenant, or everybody's and the app's own.

As `tenant_jobs` for jobs: what belongs to another tenant is unknown, whatever it is asked for by. A tenant has those
of the store whose names begin with it, and knows them without that.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from taskmq.app import TaskMQ
from taskmq.errors import InvalidOption, NotPermitted, ScheduleNotFound, UnsupportedFeature
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.schedules import Backfill, ScheduleEntry, ScheduleStatus
from taskmq.schedules.policy import ScheduleOptions
from taskmq.schedules.target import tasks_of
from taskmq.schedules.triggers import Trigger
from taskmq.tasks.task import Task

__all__ = ["TenantSchedule", "TenantSchedulePage", "TenantSchedules"]

_LONGEST_NAME = 255


class TenantSchedule(NamedTuple):
    """A schedule, and how it is.

    Attributes:
        name: what the caller calls it.
        status: None where only the code knows it: the app has neither a store nor a state.
    """

    name: str
    entry: ScheduleEntry
    status: ScheduleStatus | None


class TenantSchedulePage(NamedTuple):
    """Some of the caller's schedules, by name.

    Attributes:
        after: where the next page begins; None where there is none.
    """

    schedules: list[TenantSchedule]
    after: str | None


class TenantSchedules:
    """The schedules that a caller may see, and what it may do with them.

    Every method raises `ScheduleNotFound` for one that is not there or is another tenant's, `StoreUnavailable`, and
    `UnsupportedFeature` where the app has neither a store nor a state.

    Args:
        tenant: whose schedules; "" those that have no tenant, None everybody's, by names that begin with the tenant.
        allows: whether the caller may call a task of that name.
    """

    def __init__(self, app: TaskMQ, tenant: str | None, *, allows: Callable[[str], bool] = lambda _: True) -> None:
        self._app = app
        self._schedules = app.schedules
        self._tenant = tenant
        self._allows = allows

    def full_name(self, name: str) -> str:
        """The name that the app knows the schedule by.

        Raises:
            ScheduleNotFound: the caller's schedules have no such names.
        """
        if not name.isprintable() or len(name) > _LONGEST_NAME or (self._tenant == "" and split_tenant_key(name)[0]):
            raise ScheduleNotFound(f"no schedule is called {name[:80]!r}")
        return tenant_key(self._tenant or None, name)

    async def list(self, prefix: str, *, after: str | None, limit: int) -> TenantSchedulePage:
        """Up to `limit` of the caller's schedules whose names begin so, by name, from behind `after`.

        Those that only the code knows are listed all at once.
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
        """What the schedule starts, and when."""
        try:
            return await self._schedules.aentry(self.full_name(name))
        except UnsupportedFeature as error:
            raise ScheduleNotFound(f"no schedule of the code is called {name!r}, and {error}") from error

    async def get(self, name: str) -> TenantSchedule:
        """The schedule of that name."""
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
    ) -> None:
        """As `put`, where there is none of that name; the same again changes nothing.

        Raises:
            InvalidOption: another one has the name.
        """
        await self.check_put(name, task)
        full = self.full_name(name)
        await self._schedules.aadd(
            full, self._called(task), trigger, args=tuple(args), kwargs=dict(kwargs), **options
        )

    async def has(self, name: str) -> bool:
        """Whether there is one of that name."""
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
    ) -> bool:
        """Have the task, or what the definition says, started so from now on; whether there was none of that name.

        Raises:
            UnknownTask: there is no task and no definition of that name.
            NotPermitted: the caller may not call the task, or that of the schedule which has the name.
            InvalidOption, InvalidArguments, EncodeError: it cannot be; nothing was changed.
        """
        if self._app.sessions.store_url is None:
            raise UnsupportedFeature("schedules are replaced where there is a job store; add them under other names")
        await self.check_put(name, task)
        full = self.full_name(name)
        given: dict[str, Any] = {"args": tuple(args), "kwargs": dict(kwargs), **options}
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
    ) -> None:
        """Change what is said of a schedule that was made at run time; None, and what is not said, stays.

        Raises:
            ScheduleNotFound: there is none of that name.
            UnknownTask, NotPermitted, InvalidOption, InvalidArguments, EncodeError: as `put`.
        """
        given = None if args is None else tuple(args)
        called = None if task is None else self._called(task)
        await self._schedules.achange(self.full_name(name), called, trigger, args=given, kwargs=kwargs, **options)

    async def check_change(self, name: str, task: str | None) -> None:
        """Refuse what the caller may not call, and schedules of the code; raises as `change` does."""
        await self.check_run(name)
        if self.full_name(name) in self._schedules:
            raise InvalidOption(f"schedule {name!r} is defined in the code: change it there")
        if task is not None:
            await self._check_called(task)

    async def check_put(self, name: str, task: str) -> None:
        """Refuse what the caller may not call, names of schedules of such tasks, and names that the code has.

        Raises as `put` does.
        """
        full = self.full_name(name)
        if full in self._schedules:
            raise InvalidOption(f"schedule {name!r} is defined in the code already")
        await self._check_called(task)
        with suppress(ScheduleNotFound):
            await self.check_run(name)

    async def remove(self, name: str) -> None:
        """End its emission, within a second.

        Raises:
            InvalidOption: the code defines it.
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        await self._schedules.aremove(self.full_name(name))

    async def pause(self, name: str, *, note: str) -> None:
        """Have nothing emitted until it is resumed.

        Raises:
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        await self._schedules.apause(self.full_name(name), note=note)

    async def resume(self, name: str) -> None:
        """Have it go on.

        Raises:
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        await self._schedules.aresume(self.full_name(name))

    async def run(self, name: str) -> str:
        """Send a call now; what the caller calls the job, or the workflow.

        Raises:
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        return self._own_name(await self._schedules.arun(self.full_name(name)))

    async def check_run(self, name: str) -> None:
        """Refuse what the caller may not call; raises as `run` does."""
        entry = await self.entry(name)
        for task in [entry.task.name] if entry.workflow is None else tasks_of(entry.workflow):
            self._check(task)

    async def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool) -> Backfill:
        """Emit the occurrences from `start` up to `end` again; see `Schedules.backfill`.

        Raises:
            NotPermitted: the caller may not call its task.
        """
        await self.check_run(name)
        return await self._schedules.abackfill(self.full_name(name), start, end, dry_run=dry_run)

    def _called(self, task: str) -> Task[..., Any] | str:
        """Resolve a name: without a store to a task of the app, else to whatever the store knows.

        Raises:
            InvalidOption: the app, which has no store, has no such task.
        """
        if self._app.sessions.store_url is not None:
            return task
        if (known := self._app.tasks.get(task)) is None:
            has = ", ".join(sorted(self._app.tasks)) or "none"
            raise InvalidOption(f"the app has no task {task!r}; it has {has}")
        return known

    async def _check_called(self, task: str) -> None:
        if isinstance(self._called(task), str):
            task = (await self._app.jobs.named(task, tenant=self._tenant)).task
        self._check(task)

    def _own_name(self, name: str) -> str:
        return split_tenant_key(name)[1] if self._tenant else name

    def _check(self, task: str) -> None:
        if not self._allows(task):
            raise NotPermitted(f"you may not call task {task!r}")
