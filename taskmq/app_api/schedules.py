"""Schedules: what is due when, pausing, resuming, running and making up for them."""

from datetime import UTC, datetime

import msgspec

from taskmq.api.schedules import (
    BackfillBody,
    BackfillView,
    OccurrenceView,
    ScheduleLine,
    ScheduleList,
    ScheduleView,
)
from taskmq.app_api.caller import ApiCaller, AppCalls
from taskmq.app_api.views import rendered
from taskmq.model.identity import Permission
from taskmq.operations.schedule_facts import schedule_facts
from taskmq.operations.tenant_schedules import TenantSchedule, TenantSchedules
from taskmq.schedules.triggers import zone_of

__all__ = ["AppSchedules", "schedule_view"]


class AppSchedules(AppCalls):
    """The schedules that the caller may see. Methods raise `ScheduleNotFound`; changes `NotPermitted`."""

    async def get(self, name: str) -> ScheduleView:
        """A schedule, and what has become of its occurrences so far."""
        return schedule_view(await self._own.get(name), self._caller)

    async def remove(self, name: str) -> None:
        """Have it start nothing any more; what it has started goes on.

        Raises:
            InvalidOption: the code defines it.
        """
        await self._note(name, "remove")
        await self._own.remove(name)

    async def pause(self, name: str, *, note: str = "") -> ScheduleView:
        """Have nothing emitted until it is resumed."""
        await self._note(name, "pause", note=note)
        await self._own.pause(name, note=note)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleView:
        """Have a paused schedule go on."""
        await self._note(name, "resume")
        await self._own.resume(name)
        return await self.get(name)

    async def run(self, name: str) -> str:
        """Send a call of its task now, whatever the schedule says; the job's id."""
        await self._note(name, "run")
        return await self._own.run(name)

    async def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> BackfillView:
        """Emit the occurrences of a range of the past, at low priority and a few a second.

        Raises:
            InvalidOption: the range is none, or not of the past.
        """
        if not dry_run:
            facts = msgspec.to_builtins(BackfillBody(start=start, end=end, dry_run=dry_run))
            await self._note(name, "backfill", after=facts)
        found = await self._own.backfill(name, start, end, dry_run=dry_run)
        return BackfillView(run=found.run, instants=[_text(at) for at in found.instants], has_more=found.has_more)

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> ScheduleList:
        """A page of the schedules whose names begin so; without a tenant those of the app, and everybody's."""
        page = await self._own.list(prefix, after=cursor, limit=limit)
        return ScheduleList(rendered(lambda one: _line(one, self._caller), page.schedules), page.after)

    async def _note(self, name: str, verb: str, *, after: dict[str, object] | None = None, note: str = "") -> None:
        """Have the audit say what is about to be done, where the caller may do so."""
        await self._own.check_run(name)
        subject = self._own.full_name(name)
        await self._caller.note_action(self._app, f"schedule.{verb}", subject=subject, after=after, note=note)

    @property
    def _own(self) -> TenantSchedules:
        return TenantSchedules(self._app, self._caller.tenant, allows=self._caller.allows)


def _line(found: TenantSchedule, caller: ApiCaller) -> ScheduleLine:
    entry, status = found.entry, found.status
    facts = schedule_facts(entry)
    if not caller.may(Permission.JOBS_READ, entry.tenant):
        facts |= {"args": None, "kwargs": None}
    return ScheduleLine(
        name=found.name,
        tenant=entry.tenant,
        starts=entry.starts,
        rule=entry.trigger.describe(),
        tz=str(zone_of(entry.trigger)),
        is_dynamic=entry.is_dynamic,
        next=None if status is None else _text(status.next),
        paused=None if status is None else _text(status.paused),
        note="" if status is None else status.note,
        **facts,
    )


def schedule_view(found: TenantSchedule, caller: ApiCaller) -> ScheduleView:
    """A schedule as the API shows it, with what has become of its occurrences."""
    line, status = _line(found, caller), found.status
    assert status is not None
    return ScheduleView(
        **{name: getattr(line, name) for name in line.__struct_fields__},
        fired=status.fired,
        late=status.late,
        missed=status.missed,
        skipped=status.skipped,
        failed=status.failed,
        waiting=status.waiting,
        active=status.active,
        history=[
            OccurrenceView(scheduled_for=_text(one.scheduled_for), emitted=_text(one.emitted), kind=one.kind)
            for one in status.history
        ],
    )


def _text(moment: datetime | None) -> str | None:
    return (
        None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
