"""Groups of failures: which errors occur in which tasks, and which of them are resolved or muted."""

from datetime import datetime

from taskmq.api.history.failure_groups import FailureGroupList, FailureGroupView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, milliseconds_of, render_all
from taskmq.errors import NotPermitted, RequestRefused
from taskmq.model.history.failure_groups import GroupState
from taskmq.operations.history import FailureGroup, TenantFailureGroups


class AppFailureGroups(AppCalls):
    """Groups of failures by task and error, of the caller's tenant."""

    async def list(
        self, *, since: datetime | None = None, state: GroupState | None = None, limit: int = 200
    ) -> FailureGroupList:
        """List the groups with failures in a period, by default the last 24 hours, and those resolved or muted.

        Args:
            state: only groups in this state.
        """
        found = await self._groups().list(since=None if since is None else milliseconds_of(since))
        states = [group.state for group in found.groups]
        shown = [group for group in found.groups if state in (None, group.state)]
        return FailureGroupList(
            items=render_all(_view, shown[:limit]),
            since=instant_text(found.since),
            open=states.count("open"),
            resolved=states.count("resolved"),
            muted=states.count("muted"),
            is_complete=found.is_complete,
        )

    async def resolve(self, group_id: str, *, note: str = "") -> None:
        """Mark a group as resolved; the next failure opens it again.

        Raises:
            RequestRefused: `failure_group_not_found`: there is no such group.
            NotPermitted: the caller may not call the task.
            LimitReached: the tenant has 500 resolved or muted groups.
        """
        await self._groups(note).mark(await self._find(group_id), "resolved")

    async def mute(self, group_id: str, *, seconds: float | None = None, note: str = "") -> None:
        """Mute a group for this many seconds, by default without end. Raises as `resolve`."""
        await self._groups(note).mark(await self._find(group_id), "muted", seconds=seconds)

    async def reopen(self, group_id: str, *, note: str = "") -> None:
        """Open a resolved or muted group again. Raises as `resolve`, without the limit."""
        await self._groups(note).reopen(await self._find(group_id))

    async def _find(self, group_id: str) -> FailureGroup:
        for group in (await self._groups().list(since=0)).groups:
            if group.key.id == group_id:
                if not self._caller.allows(group.key.task):
                    raise NotPermitted(f"the group fails in {group.key.task!r}, which you may not call")
                return group
        raise RequestRefused(
            f"group of failures {group_id[:40]!r} not found", status=404, code="failure_group_not_found"
        )

    def _groups(self, note: str = "") -> TenantFailureGroups:
        return TenantFailureGroups(self._app, self._caller.tenant, by=self._caller.actor(note))


def _view(group: FailureGroup) -> FailureGroupView:
    mark = group.mark
    return FailureGroupView(
        id=group.key.id,
        tenant=group.key.tenant,
        task=group.key.task,
        error=group.key.error,
        state=group.state,
        failures=group.count,
        before=group.before,
        trend=[*group.trend],
        first=instant_text(group.first),
        last=instant_text(group.last),
        message=group.message,
        is_new=group.is_new,
        first_version=group.first_version,
        is_back=mark is not None and mark.state == "resolved" and group.state == "open",
        until=instant_text(mark.until) if mark else None,
        marked_at=instant_text(mark.at) if mark else None,
        marked_by=mark.by if mark else "",
        note=mark.note if mark else "",
    )
