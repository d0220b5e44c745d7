"""Schedules: list, change, pause, resume, run and backfill."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple, cast

import msgspec

from taskmq.api.schedules import (
    BackfillBody,
    BackfillView,
    ChangeScheduleBody,
    OccurrenceView,
    PutScheduleBody,
    RuleExplanation,
    ScheduleExplanation,
    ScheduleFields,
    ScheduleLine,
    ScheduleList,
    ScheduleRule,
    ScheduleView,
)
from taskmq.api.values import MOST_PER_PAGE
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.jobs.orders import options_of
from taskmq.app_api.reactions import AppReactions
from taskmq.app_api.views import instant_text, milliseconds_of, render_all
from taskmq.errors import InvalidOption, ScheduleNotFound, UnsupportedFeature
from taskmq.model.identity import Permission
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.model.runs.graphs import WorkflowContent, load_graph
from taskmq.operations.schedule_facts import amend_trigger, build_trigger, schedule_facts
from taskmq.operations.schedule_facts import instant_text as instant_text_of
from taskmq.schedules import ScheduleEntry, ScheduleOptions, Schedules, ScheduleStatus
from taskmq.schedules.policy import read_policy
from taskmq.schedules.target import StoredWorkflow, tasks_of
from taskmq.schedules.triggers import (
    Trigger,
    explain_trigger,
    instants_after,
    jitter_of,
    local_text,
    zone_of,
)
from taskmq.tasks.job_options import DefinitionOptions
from taskmq.tasks.task import Task
from taskmq.workflow.runs.calls import find_calls

_LONGEST_NAME: Final = 255
_COUNTS: Final = ("fired", "late", "missed", "coalesced", "skipped", "failed", "waiting")


class _Found(NamedTuple):
    """A schedule under the caller's name; without a status if neither a store nor a state keeps one."""

    name: str
    entry: ScheduleEntry
    status: ScheduleStatus | None


class AppSchedules(AppCalls):
    """The schedules that the caller may see: those of one tenant, or those of all tenants and of the app.

    A tenant owns the stored schedules whose names start with its prefix, and uses their names without it. Another
    tenant's schedule is reported as unknown. Methods raise `ScheduleNotFound`, `StoreUnavailable`, and
    `UnsupportedFeature` if the app has neither a store nor a state. Changes raise `NotPermitted` if the caller may
    not call the task of the schedule.
    """

    async def get(self, name: str) -> ScheduleView:
        return self._view(await self._read(name))

    async def has(self, name: str) -> bool:
        """Whether a schedule has the name."""
        try:
            await self._entry(name)
        except ScheduleNotFound:
            return False
        return True

    async def add(self, name: str, body: PutScheduleBody) -> ScheduleView:
        trigger = await self._note_put(name, body)
        await self._schedules.aadd(self._full_name(name), self._resolve(body.task), trigger, **_call(body))
        return await self.get(name)

    async def put(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """Create or replace the schedule of a task or definition. Omitted fields take their defaults.

        Raises:
            UnknownTask: there is no task or definition of that name.
            InvalidOption, InvalidArguments, EncodeError: the schedule is invalid; nothing was changed.
        """
        trigger, full = await self._note_put(name, body), self._full_name(name)
        if self._app.sessions.store_url is None:
            raise UnsupportedFeature("replacing schedules needs a job store; add the schedule under another name")
        try:
            await self._schedules.areplace(full, body.task, trigger, **_call(body))
        except ScheduleNotFound:
            await self._schedules.aadd(full, body.task, trigger, **_call(body))
        return await self.get(name)

    async def _note_put(self, name: str, body: PutScheduleBody) -> Trigger:
        trigger, full = build_trigger(_rule(body)), self._full_name(name)
        if full in self._schedules:
            raise InvalidOption(f"schedule {name!r} is defined in the code already")
        await self._check_task(body.task)
        with suppress(ScheduleNotFound):
            await self._check_run(name)
        if body.job is not None:
            await self._check_options(body.job, body.task)
        policy = read_policy(_options(body), schedule=name)
        after = {"task": body.task, "rule": trigger.describe(), **policy.facts()}
        await self._caller.note_action(self._app, "schedule.put", subject=full, after=after)
        return trigger

    async def change(self, name: str, body: ChangeScheduleBody) -> ScheduleView:
        """Change the given fields of a schedule created at run time. All others stay unchanged, including its counts.

        Raises:
            InvalidOption: it is defined in code, or the change is invalid.
        """
        full, options = self._full_name(name), _options(body)
        await self._check_run(name)
        if full in self._schedules:
            raise InvalidOption(f"schedule {name!r} is defined in the code: change it there")
        if body.task is not None:
            await self._check_task(body.task)
        entry = await self._entry(name)
        if body.job is not None:
            await self._check_options(body.job, body.task or entry.task.name)
        present = entry.trigger
        trigger = amend_trigger(present, _rule(body))
        other = None if trigger is present else trigger
        said = {"task": body.task, "rule": None if other is None else other.describe(), **options}
        if body.job is not None:
            said["job"] = ", ".join(options_of(body.job)) or "none"
        if body.args is not None or body.kwargs is not None:
            # Never the arguments themselves, which only the task may see.
            said["arguments"] = "changed"
        after = {key: value for key, value in said.items() if value is not None}
        await self._caller.note_action(self._app, "schedule.change", subject=full, after=after)
        task = None if body.task is None else self._resolve(body.task)
        await self._schedules.achange(full, task, other, **_call(body))
        return await self.get(name)

    async def next(self, name: str, *, count: int = 5, after: datetime | None = None) -> Sequence[str | None]:
        entry = await self._entry(name)
        start = self._now if after is None else milliseconds_of(after)
        return [instant_text(at) for at in islice(instants_after(entry.trigger, start), count)]

    async def explain(self, name: str, *, count: int = 5) -> ScheduleExplanation:
        found = await self._read(name)
        line = self._line(found)
        trigger, now = found.entry.trigger, self._now
        words = explain_trigger(trigger, after=now, count=count)
        if found.status is not None and found.status.next is not None:
            following = milliseconds_of(found.status.next)
            if following + jitter_of(found.entry.name, found.entry.policy.jitter) <= now:
                words = words._replace(next=[local_text(following, zone_of(trigger)), *words.next][:count])
        return ScheduleExplanation(
            name=line.name, starts=line.starts, paused=line.paused, note=line.note, **words._asdict()
        )

    async def explain_rule(self, body: ScheduleRule, *, count: int = 5) -> RuleExplanation:
        return RuleExplanation(**explain_trigger(build_trigger(_rule(body)), after=self._now, count=count)._asdict())

    async def remove(self, name: str) -> None:
        """Remove a schedule. It stops firing within a second; jobs it started continue.

        Raises:
            InvalidOption: it is defined in code.
        """
        await self._schedules.aremove(await self._note(name, "remove"))

    async def pause(self, name: str, *, note: str = "") -> ScheduleView:
        await self._schedules.apause(await self._note(name, "pause", note=note), note=note)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleView:
        await self._schedules.aresume(await self._note(name, "resume"))
        return await self.get(name)

    async def run(self, name: str) -> str:
        """Start the schedule's call now, independent of its rule. Returns the caller's id of the job or workflow."""
        return self._own_name(await self._schedules.arun(await self._note(name, "run")))

    async def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> BackfillView:
        """Emit the occurrences from `start` up to `end`, at low priority and a limited rate.

        Raises:
            InvalidOption: the period is empty or not in the past.
        """
        if dry_run:
            await self._check_run(name)
            full = self._full_name(name)
        else:
            facts = msgspec.to_builtins(BackfillBody(start=start, end=end, dry_run=dry_run))
            full = await self._note(name, "backfill", after=facts)
        found = await self._schedules.abackfill(full, start, end, dry_run=dry_run)
        return BackfillView(run=found.run, instants=[_text(at) for at in found.instants], has_more=found.has_more)

    async def page(
        self, prefix: str = "", *, workflow: str = "", limit: int = 50, cursor: str | None = None
    ) -> ScheduleList:
        """Return a page of the schedules whose names have this prefix, sorted by name.

        Without a store or a state, all schedules of the code are returned at once.

        Args:
            workflow: instead, return those that start this workflow: of the code, and of up to `limit` others whose
                names begin with the workflow's.
        """
        if workflow:
            return await self._starting(f"workflow {workflow}", await self.page(workflow, limit=limit))
        behind = tenant_key(self._caller.tenant or None, cursor or "")
        try:
            page = await self._schedules.alist(prefix, tenant=self._caller.tenant, after=behind, limit=limit)
            found = [_Found(self._own_name(one.entry.name), *one) for one in page.schedules]
            following = None if page.after is None else self._own_name(page.after)
        except UnsupportedFeature:
            own = {} if self._caller.tenant else dict(self._schedules)
            names = sorted(name for name in own if name > behind and name.startswith(prefix))
            found, following = [_Found(name, own[name], None) for name in names], None
        has_reactions = following is None and not self._caller.tenant
        reactions = (
            [] if not has_reactions else [line async for line in AppReactions(self._app, self._caller).list(prefix)]
        )
        return ScheduleList(
            render_all(self._line, found),
            following,
            reactions,
            is_of_code_alone=any(one.status is None for one in found),
        )

    async def _starting(self, what: str, page: ScheduleList) -> ScheduleList:
        """Return those of a page, and of the code, that start this."""
        found = {line.name: line for line in page.items if line.starts == what}
        own = {} if self._caller.tenant else dict(self._schedules)
        names = [name for name, entry in own.items() if entry.starts == what and name not in found]
        found |= {line.name: line for line in render_all(self._line, [await self._read(name) for name in names])}
        return ScheduleList([found[name] for name in sorted(found)], None)

    async def list(self, prefix: str = "") -> AsyncIterator[ScheduleLine]:
        cursor: str | None = ""
        while cursor is not None:
            page = await self.page(prefix, limit=MOST_PER_PAGE, cursor=cursor)
            for line in page.items:
                yield line
            cursor = page.next

    async def _note(self, name: str, verb: str, *, after: dict[str, object] | None = None, note: str = "") -> str:
        """Write an audit entry about an action, if the caller may perform it; return the app's name."""
        await self._check_run(name)
        full = self._full_name(name)
        await self._caller.note_action(self._app, f"schedule.{verb}", subject=full, after=after, note=note)
        return full

    def _full_name(self, name: str) -> str:
        """Return the app's name for the schedule.

        Raises:
            ScheduleNotFound: the name is not possible for the caller's schedules.
        """
        tenant = self._caller.tenant
        if not name.isprintable() or len(name) > _LONGEST_NAME or (tenant == "" and split_tenant_key(name)[0]):
            raise ScheduleNotFound(f"no schedule is called {name[:80]!r}")
        return tenant_key(tenant or None, name)

    def _own_name(self, name: str) -> str:
        return split_tenant_key(name)[1] if self._caller.tenant else name

    async def _entry(self, name: str) -> ScheduleEntry:
        try:
            return await self._schedules.aentry(self._full_name(name))
        except UnsupportedFeature as error:
            raise ScheduleNotFound(f"no schedule of the code is called {name!r}, and {error}") from error

    async def _read(self, name: str) -> _Found:
        entry = await self._entry(name)
        try:
            return _Found(name, entry, await self._schedules.astatus(self._full_name(name)))
        except UnsupportedFeature:
            return _Found(name, entry, None)

    async def _check_run(self, name: str) -> None:
        """Check that the caller may call the schedule's tasks.

        Raises:
            NotPermitted: it may not call one of them.
        """
        entry = await self._entry(name)
        tasks = [entry.task.name]
        if entry.workflow is not None:
            tasks = [*tasks_of(entry.workflow), *await self._find_tasks(name, entry.workflow)]
        for task in tasks:
            self._check_permission(task)

    async def _find_tasks(self, name: str, workflow: WorkflowContent | StoredWorkflow) -> Sequence[str]:
        """Return the tasks that the next run of a workflow would call, and those of its sub-workflows."""
        runs, (tenant, _) = self._app.sessions.store().runs, split_tenant_key(self._full_name(name))
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

    async def _check_task(self, task: str) -> None:
        if isinstance(self._resolve(task), str):
            task = (await self._app.jobs.find_call(task, tenant=self._caller.tenant)).task
        self._check_permission(task)

    @property
    def _schedules(self) -> Schedules:
        return self._app.schedules

    @property
    def _now(self) -> int:
        return self._app.sessions.clock.now_ms()

    def _line(self, found: _Found) -> ScheduleLine:
        entry, status = found.entry, found.status
        facts = schedule_facts(entry)
        if not self._caller.may(Permission.JOBS_READ, entry.tenant):
            facts |= {"args": None, "kwargs": None}
        if status is None:
            following = entry.trigger.next_after(self._now)
        else:
            following = None if status.next is None else milliseconds_of(status.next)
        jitter = jitter_of(entry.name, entry.policy.jitter)
        return ScheduleLine(
            name=found.name,
            tenant=entry.tenant,
            starts=entry.starts,
            rule=entry.trigger.describe(),
            tz=str(zone_of(entry.trigger)),
            is_dynamic=entry.is_dynamic,
            next=None if following is None else instant_text(following + jitter),
            paused=None if status is None else _text(status.paused),
            note="" if status is None else status.note,
            refused="" if status is None else status.refused,
            **facts,
        )

    def _view(self, found: _Found) -> ScheduleView:
        """Build the API's view of a schedule with the history of its occurrences."""
        line, status = self._line(found), found.status
        facts: dict[str, Any] = {name: None if status is None else getattr(status, name) for name in _COUNTS}
        return ScheduleView(
            **{name: getattr(line, name) for name in line.__struct_fields__},
            **facts,
            active=[] if status is None else status.active,
            history=[
                OccurrenceView(scheduled_for=_text(one.scheduled_for), emitted=_text(one.emitted), kind=one.kind)
                for one in (() if status is None else status.history)
            ],
        )


def _rule(body: ScheduleRule) -> dict[str, Any]:
    return {name: getattr(body, name) for name in ScheduleRule.__struct_fields__}


def _call(body: PutScheduleBody | ChangeScheduleBody) -> dict[str, Any]:
    args = None if body.args is None else tuple(body.args)
    return {"args": args, "kwargs": body.kwargs, "job_options": _job_options(body), **_options(body)}


def _options(body: ScheduleFields) -> ScheduleOptions:
    said: Any = {name: getattr(body, name) for name in ScheduleOptions.__annotations__}
    return cast("ScheduleOptions", {name: value for name, value in said.items() if value is not None})


def _job_options(body: ScheduleFields) -> DefinitionOptions | None:
    return None if body.job is None else options_of(body.job)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else instant_text_of(moment)
