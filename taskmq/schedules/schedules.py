"""`app.schedules`: an app's schedules and the operations on them at run time."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import msgspec
from msgspec.structs import replace

from taskmq.client.sessions import blocking
from taskmq.errors import InvalidOption
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import new_job_id
from taskmq.model.units import to_datetime
from taskmq.run.facts import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.schedules.definition import (
    ScheduleEntry,
    check_arguments,
    check_schedule_name,
    read_definition,
    task_elsewhere,
)
from taskmq.schedules.policy import ScheduleOptions, read_policy
from taskmq.schedules.record import Emitted, MissedSpan, ScheduleRecord
from taskmq.schedules.schedule_queries import ScheduleQueries
from taskmq.schedules.status import (
    Backfill,
)
from taskmq.schedules.target import read_target, run_of, tasks_of
from taskmq.schedules.triggers import Trigger
from taskmq.tasks.job_options import DefinitionOptions, plain_options
from taskmq.tasks.task import Task

if TYPE_CHECKING:
    from taskmq.workflow.named_workflow import NamedWorkflow
    from taskmq.workflow.parts import Workflow

_MOST_SHOWN: Final = 10_000


class Schedules(ScheduleQueries):
    """Schedules that an app's code defines, by name; its methods also cover those added at run time.

    They are stored in the job store, if the app has one, and fired by `taskmq scheduler`; else in the state, and
    fired by `taskmq beat`. Every method that accesses it has a twin for coroutines, whose name begins with `a`. Each
    may raise:

    - `InvalidOption`: no schedule has this name, or the request is invalid.
    - `StoreUnavailable`, `StateUnavailable`: it could not be reached. A change may have been made all the same.
    - `UnsupportedFeature`: the app has neither a store nor a state.
    """

    def define(self, entry: ScheduleEntry) -> None:
        """Add a schedule that the code defines.

        Raises:
            InvalidOption: the name is taken, or the task does not accept the arguments.
        """
        if entry.name in self._static:
            raise InvalidOption(f"schedule {entry.name!r} is defined twice; give one of them a name=")
        if entry.tenant:
            raise InvalidOption(
                f"schedule {entry.name!r}: schedules in code cannot belong to a tenant; call the task with tenant="
            )
        check_arguments(entry, self._producer.content_type)
        self._static[entry.name] = entry

    async def aadd(
        self,
        name: str,
        task: "Task[..., Any] | NamedWorkflow[..., Any] | Workflow[Any] | str",
        trigger: Trigger,
        *,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        job_options: DefinitionOptions | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Start `task` whenever `trigger` is due, within a second from now and until the schedule is removed.

        Args:
            name: `@acme:nightly` belongs to tenant `acme`, as do its jobs and workflows.
            task: a task, which is called with `args` and `kwargs`; `task.s(...)` with all its arguments; a workflow,
                started for each occurrence, a named one with `args` and `kwargs`; or, with a job store, the name of
                a definition, whose current version is used from then on, or of a task, which workers have registered
                if its code is not here.
            job_options: options of its jobs, which override those of the task or definition; need a job store.
        """
        call = (tuple(args), dict(kwargs or {}))
        definition = await self._definition(name, task, trigger, call, options, job_options=job_options)
        if not await self._records().define(name, before=None, after=definition):
            raise InvalidOption(f"schedule {name!r} exists already and is different; change or remove it")

    add = blocking(aadd)

    async def achange(
        self,
        name: str,
        task: "Task[..., Any] | NamedWorkflow[..., Any] | Workflow[Any] | str | None" = None,
        trigger: Trigger | None = None,
        *,
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        job_options: DefinitionOptions | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Change a schedule that was added at run time; what is not given keeps its value.

        Its counters and its progress stay. With another trigger, past occurrences are not caught up.

        Args:
            task, trigger, args, kwargs: see `add`. A workflow or `task.s(...)` has its own arguments.
            job_options: replace all options of its jobs.

        Raises:
            ScheduleNotFound: no schedule has this name.
            InvalidOption: the code defines it, or the change is invalid; nothing was changed.
        """
        if name in self._own:
            raise InvalidOption(f"schedule {name!r} is defined in the code: change it there")

        async def apply(kept: bytes) -> bytes:
            entry = read_definition(kept, name=name, tasks=self._tasks)
            return await self._apply_changes(entry, task, trigger, (args, kwargs), options, job_options=job_options)

        await self._redefine(name, apply)

    change = blocking(achange)

    async def areplace(
        self,
        name: str,
        task: str,
        trigger: Trigger,
        *,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        job_options: DefinitionOptions | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Replace the definition of a schedule that was added at run time; what is not given has its default."""
        call = (tuple(args), dict(kwargs or {}))
        definition = await self._definition(name, task, trigger, call, options, job_options=job_options)
        await self._redefine(name, lambda _: _as_awaitable(definition))

    async def aremove(self, name: str) -> None:
        """Remove a schedule that was added at run time; it stops within a second."""
        if name in self._own:
            raise InvalidOption(f"schedule {name!r} is defined in the code: remove it there, or pause it")
        await self._redefine(name, lambda _: _as_awaitable(None))

    remove = blocking(aremove)

    async def _redefine(self, name: str, make: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        """Replace the definition by what `make` returns when called with it."""
        records = self._records()
        while True:
            before = await records.definition(name)
            if before is None:
                raise self._not_found(name)
            if await records.define(name, before=before, after=await make(before)):
                return

    async def _apply_changes(
        self,
        entry: ScheduleEntry,
        task: "Task[..., Any] | NamedWorkflow[..., Any] | Workflow[Any] | str | None",
        trigger: Trigger | None,
        call: tuple[tuple[Any, ...] | None, Mapping[str, Any] | None],
        options: ScheduleOptions,
        *,
        job_options: DefinitionOptions | None,
    ) -> bytes:
        """Return the definition of an entry with changes."""
        from taskmq.schedules.triggers import for_schedule

        name, (args, kwargs) = entry.name, call
        policy = entry.policy.with_options(options, schedule=name)
        rule = entry.trigger if trigger is None else trigger
        if task is None and entry.workflow is not None:
            if job_options:
                raise _build_refusal(name)
            if args is not None or kwargs is not None:
                raise InvalidOption(
                    f"schedule {name!r} starts a workflow, which has its own arguments: pass another workflow"
                )
            changed = replace(entry, trigger=for_schedule(rule, name), policy=policy)
            check_arguments(changed, self._producer.content_type)
            return self._records().encode(changed)
        version = None
        if task is None:
            task, version = entry.definition, entry.definition_version
            if not task:
                task, version = entry.task if entry.task.name in self._tasks else entry.task.name, None
        if isinstance(task, str | Task):
            args = entry.args if args is None else args
            kwargs = entry.kwargs if kwargs is None else kwargs
        given = (tuple(args or ()), dict(kwargs or {}))
        said = cast("ScheduleOptions", policy.as_options())
        own = entry.job_options if job_options is None else job_options
        return await self._definition(name, task, rule, given, said, version=version, job_options=own)

    async def _definition(
        self,
        name: str,
        task: "Task[..., Any] | NamedWorkflow[..., Any] | Workflow[Any] | str",
        trigger: Trigger,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        options: ScheduleOptions,
        *,
        version: int | None = None,
        job_options: DefinitionOptions | None = None,
    ) -> bytes:
        from taskmq.schedules.triggers import for_schedule

        check_schedule_name(name)
        if name in self._own:
            raise InvalidOption(f"schedule {name!r} is defined in the code already")
        if job_options and isinstance(task, Task) and self._producer.sessions.current().store is not None:
            # The store keeps the whole call; a state only the task's name.
            task = task.name
        if isinstance(task, str):
            return await self._named_definition(
                name, task, trigger, call, options, version=version, job_options=job_options
            )
        if job_options:
            raise _build_refusal(name)
        target = read_target(task, args=call[0], kwargs=call[1], schedule=name)
        own = [target.task.name] if target.workflow is None else tasks_of(target.workflow)
        if self._tasks.get(target.task.name) is not target.task or any(each not in self._tasks for each in own):
            raise InvalidOption(f"schedule {name!r}: task {target.task.name} is not defined in this app")
        policy, rule = read_policy(options, schedule=name), for_schedule(trigger, name)
        entry = ScheduleEntry(
            name, target.task, rule, target.args, target.kwargs, policy, is_dynamic=True, workflow=target.workflow
        )
        check_arguments(entry, self._producer.content_type)
        return self._records().encode(entry)

    async def _named_definition(
        self,
        name: str,
        called: str,
        trigger: Trigger,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        options: ScheduleOptions,
        *,
        version: int | None,
        job_options: DefinitionOptions | None,
    ) -> bytes:
        from taskmq.schedules.triggers import for_schedule

        if self._producer.sessions.current().store is None:
            raise InvalidOption(f"schedule {name!r}: a task's name needs a job store; pass a task instead")
        tenant = check_schedule_name(name)
        plain = plain_options(job_options or {})
        sending = await self._producer.jobs.named_sending(called, *call, plain, version=version, tenant=tenant)
        detail = None if sending.submission is None else sending.submission.detail
        called = sending.envelope.task
        entry = ScheduleEntry(
            name,
            self._tasks.get(called) or task_elsewhere(called, sending.queue),
            for_schedule(trigger, name),
            *_call_of(sending),
            policy=read_policy(options, schedule=name),
            is_dynamic=True,
            definition="" if detail is None else detail.definition,
            definition_version=0 if detail is None else detail.definition_version,
            job_options=plain,
        )
        return self._records().encode(entry, sending)

    async def apause(self, name: str, *, note: str = "") -> None:
        """Pause a schedule until `resume`; on return, nothing more is emitted except what is already in flight."""
        now = await self._records().now()

        def pause(record: ScheduleRecord) -> None:
            if record.paused is None:
                record.paused = now
            record.note = note

        await self._change(name, pause)

    pause = blocking(apause)

    async def aresume(self, name: str) -> None:
        """Resume a schedule; its `on_resume` decides about the occurrences missed while paused."""
        now = await self._records().now()

        def resume(record: ScheduleRecord) -> None:
            if record.paused is not None:
                record.paused, record.resumed, record.note = None, now, ""

        await self._change(name, resume)

    resume = blocking(aresume)

    async def arun(self, name: str) -> str:
        """Send a call now, even if the schedule is paused or not due, and return the id of its job or workflow.

        Its `scheduled_for` is now. It does not count for `overlap`.
        """
        entry = await self._find(name)
        now = await self._records().now()
        job_id = new_job_id(now, secrets.token_bytes(10))
        said = {SCHEDULE_NAME: name, SCHEDULED_FOR: str(now)}
        if entry.workflow is not None:
            from taskmq.workflow.runs.service import RunService

            run = run_of(entry.workflow, schedule=name, instant=now)
            job_id = await RunService(self._sessions).start_run(run, run_id=job_id, tenant=entry.tenant or None)
        else:
            is_stored = self._producer.sessions.current().store is not None
            jobs = self._producer.jobs
            is_own = entry.task.name in self._tasks and not entry.job_options
            if named := entry.definition or ("" if is_own else entry.task.name):
                version, options = entry.definition_version or None, entry.job_options
                sending = await jobs.named_sending(
                    named, entry.args, entry.kwargs, options, version=version, tenant=entry.tenant
                )
            else:
                called = entry.task.options(tenant=entry.tenant) if entry.tenant else entry.task
                make = called.submission if is_stored else called.sending
                sending = make(*entry.args, **entry.kwargs)
            meta = {**(sending.envelope.meta or {}), **said}
            sending.envelope = replace(sending.envelope, id=job_id, meta=meta)
            if is_stored:
                await jobs.submit_sending(sending)
            else:
                await self._producer.send_async(sending)
        await self._change(name, lambda record: record.remember(Emitted(now, now, "run")))
        return job_id

    run = blocking(arun)

    async def abackfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> Backfill:
        """Emit the occurrences from `start` up to `end` again, at low priority and a few a second.

        They are new jobs, even if the same instants were emitted before. Up to 10,000 are listed.

        Args:
            start, end: with a time zone; `end` is not later than now.
            dry_run: only list the occurrences.

        Raises:
            InvalidOption: no schedule has this name, or the range is not in the past.
            LimitReached: ten backfills of the schedule are in progress.
        """
        entry = await self._find(name)
        now = await self._records().now()
        first, last = _instant(start, name), _instant(end, name)
        if last > now or first > last:
            raise InvalidOption(
                f"schedule {name!r}: a backfill needs a start before its end, and an end no later than now"
            )
        instants: list[int] = []
        following = entry.trigger.next_after(first - 1)
        while following is not None and following <= last and len(instants) < _MOST_SHOWN:
            instants.append(following)
            following = entry.trigger.next_after(following)
        run = "" if dry_run or not instants else f"backfill-{secrets.token_hex(4)}"
        if run:
            backlog = MissedSpan("backfill", run, first - 1, last, now)
            await self._change(name, lambda record: record.begin_backfill(backlog, name=name))
        return Backfill(
            run=run,
            instants=[to_datetime(instant) for instant in instants],
            has_more=following is not None and following <= last,
        )

    backfill = blocking(abackfill)

    async def _change(self, name: str, change: Callable[[ScheduleRecord], object]) -> None:
        await self._records().change(await self._find(name), change)


async def _as_awaitable(definition: bytes | None) -> bytes | None:
    return definition


def _call_of(sending: Sending) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call for the store as plain data."""
    envelope = sending.envelope
    args = msgspec.json.decode(envelope.args, type=list[Any])
    return tuple(args), msgspec.json.decode(envelope.kwargs, type=dict[str, Any])


def _instant(value: datetime, name: str) -> int:
    if value.tzinfo is None:
        raise InvalidOption(f"schedule {name!r}: {value} has no time zone")
    return round(value.timestamp() * 1000)


def _build_refusal(name: str) -> InvalidOption:
    return InvalidOption(f"schedule {name!r}: options of jobs need a task or a definition, and a job store")
