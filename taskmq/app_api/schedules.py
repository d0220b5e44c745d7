"""Schedules: list, change, pause, resume, run and backfill."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, cast

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
from taskmq.model.identity import Permission
from taskmq.operations.schedule_facts import amend_trigger, build_trigger, schedule_facts
from taskmq.operations.schedule_facts import instant_text as instant_text_of
from taskmq.operations.tenant_schedules import TenantSchedule, TenantSchedules
from taskmq.schedules import ScheduleOptions
from taskmq.schedules.policy import read_policy
from taskmq.schedules.triggers import (
    Trigger,
    explain_trigger,
    instants_after,
    jitter_of,
    local_text,
    zone_of,
)
from taskmq.tasks.job_options import DefinitionOptions

_COUNTS = ("fired", "late", "missed", "coalesced", "skipped", "failed", "waiting")


class AppSchedules(AppCalls):
    """The schedules that the caller may see. Methods raise `ScheduleNotFound`; changes `NotPermitted`."""

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule with the history of its occurrences."""
        return self._view(await self._own.get(name))

    async def has(self, name: str) -> bool:
        """Whether a schedule has the name."""
        return await self._own.has(name)

    async def add(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """Add a schedule like `put`, unless one with the name exists. Repeating the same one changes nothing.

        Raises:
            InvalidOption: another schedule has the name.
        """
        await self._own.add(name, body.task, await self._note_put(name, body), **_call(body))
        return await self.get(name)

    async def put(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """Create or replace a schedule. Omitted fields take their defaults."""
        await self._own.put(name, body.task, await self._note_put(name, body), **_call(body))
        return await self.get(name)

    async def _note_put(self, name: str, body: PutScheduleBody) -> Trigger:
        trigger, own = build_trigger(_rule(body)), self._own
        await own.check_put(name, body.task)
        if body.job is not None:
            await self._check_options(body.job, body.task)
        policy = read_policy(_options(body), schedule=name)
        after = {"task": body.task, "rule": trigger.describe(), **policy.facts()}
        await self._caller.note_action(self._app, "schedule.put", subject=own.full_name(name), after=after)
        return trigger

    async def change(self, name: str, body: ChangeScheduleBody) -> ScheduleView:
        """Change the given fields of a schedule created at run time. All others stay unchanged, including its counts.

        Raises:
            InvalidOption: it is defined in code, or the change is invalid.
        """
        own, options = self._own, _options(body)
        await own.check_change(name, body.task)
        entry = await own.entry(name)
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
        await self._caller.note_action(self._app, "schedule.change", subject=own.full_name(name), after=after)
        await own.change(name, task=body.task, trigger=other, **_call(body))
        return await self.get(name)

    async def next(self, name: str, *, count: int = 5, after: datetime | None = None) -> Sequence[str | None]:
        """Return the next occurrences, even while it is paused."""
        entry = await self._own.entry(name)
        start = self._now if after is None else milliseconds_of(after)
        return [instant_text(at) for at in islice(instants_after(entry.trigger, start), count)]

    async def explain(self, name: str, *, count: int = 5) -> ScheduleExplanation:
        """Explain a schedule in words, with its next occurrences in its time zone."""
        found = await self._own.get(name)
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
        """Explain a rule in words, with its next occurrences. Nothing is stored."""
        return RuleExplanation(**explain_trigger(build_trigger(_rule(body)), after=self._now, count=count)._asdict())

    async def remove(self, name: str) -> None:
        """Remove a schedule. Jobs it started continue.

        Raises:
            InvalidOption: it is defined in code.
        """
        await self._note(name, "remove")
        await self._own.remove(name)

    async def pause(self, name: str, *, note: str = "") -> ScheduleView:
        """Pause a schedule: no occurrences are emitted until it is resumed."""
        await self._note(name, "pause", note=note)
        await self._own.pause(name, note=note)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleView:
        """Resume a paused schedule."""
        await self._note(name, "resume")
        await self._own.resume(name)
        return await self.get(name)

    async def run(self, name: str) -> str:
        """Start the schedule's task now, independent of its rule. Returns the job's id."""
        await self._note(name, "run")
        return await self._own.run(name)

    async def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> BackfillView:
        """Emit the occurrences of a past period, at low priority and a limited rate.

        Raises:
            InvalidOption: the period is empty or not in the past.
        """
        if not dry_run:
            facts = msgspec.to_builtins(BackfillBody(start=start, end=end, dry_run=dry_run))
            await self._note(name, "backfill", after=facts)
        found = await self._own.backfill(name, start, end, dry_run=dry_run)
        return BackfillView(run=found.run, instants=[_text(at) for at in found.instants], has_more=found.has_more)

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> ScheduleList:
        """Return a page of the schedules whose names have this prefix; without a tenant, the app's and all
        tenants'.
        """
        page = await self._own.list(prefix, after=cursor, limit=limit)
        has_reactions = page.after is None and not self._caller.tenant
        reactions = (
            [] if not has_reactions else [line async for line in AppReactions(self._app, self._caller).list(prefix)]
        )
        return ScheduleList(
            render_all(self._line, page.schedules),
            page.after,
            reactions,
            is_of_code_alone=any(one.status is None for one in page.schedules),
        )

    async def list(self, prefix: str = "") -> AsyncIterator[ScheduleLine]:
        """Iterate over the schedules with this prefix, ordered by name."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self.page(prefix, limit=MOST_PER_PAGE, cursor=cursor)
            for line in page.items:
                yield line
            cursor = page.next

    async def _note(self, name: str, verb: str, *, after: dict[str, object] | None = None, note: str = "") -> None:
        """Write an audit entry about an action, if the caller may perform it."""
        await self._own.check_run(name)
        subject = self._own.full_name(name)
        await self._caller.note_action(self._app, f"schedule.{verb}", subject=subject, after=after, note=note)

    @property
    def _own(self) -> TenantSchedules:
        return TenantSchedules(self._app, self._caller.tenant, allows=self._caller.allows)

    @property
    def _now(self) -> int:
        return self._app.sessions.clock.now_ms()

    def _line(self, found: TenantSchedule) -> ScheduleLine:
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

    def _view(self, found: TenantSchedule) -> ScheduleView:
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
    return {"args": body.args, "kwargs": body.kwargs, "options": _options(body), "job_options": _job_options(body)}


def _options(body: ScheduleFields) -> ScheduleOptions:
    said: Any = {name: getattr(body, name) for name in ScheduleOptions.__annotations__}
    return cast("ScheduleOptions", {name: value for name, value in said.items() if value is not None})


def _job_options(body: ScheduleFields) -> DefinitionOptions | None:
    return None if body.job is None else options_of(body.job)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else instant_text_of(moment)
