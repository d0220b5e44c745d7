"""Groups of failures: which errors occur in which tasks, and which of them are resolved or muted."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from taskmq.api.history.failure_groups import FailureGroupList, FailureGroupView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, milliseconds_of, render_all
from taskmq.contracts.history import FailureCount, FailureGroupStore, history_of
from taskmq.errors import NotPermitted, RequestRefused
from taskmq.model.history.failure_groups import FailureKey, FailureMark, GroupState, state_of
from taskmq.model.identity import AuditEntry
from taskmq.model.telemetry.app_versions import WorkerVersion, version_at
from taskmq.model.units import DAY_MS

_BARS: Final = 24
_MOST: Final = 10_000


class _Group(NamedTuple):
    """The counted failures of one tenant, task and error, and the mark that an operator set last."""

    key: FailureKey
    counts: Sequence[FailureCount]
    mark: FailureMark | None

    @property
    def last(self) -> int | None:
        """The instant of the last failure (ms); None if there is none."""
        return max((one.last for one in self.counts), default=None)


class AppFailureGroups(AppCalls):
    """Groups of failures by task and error, of the caller's tenant."""

    async def list(
        self, *, since: datetime | None = None, state: GroupState | None = None, limit: int = 200
    ) -> FailureGroupList:
        """List the groups with failures in a period, by default the last 24 hours, and those resolved or muted.

        The newest 10,000 failed jobs, expired jobs and failures of sent jobs are counted. Failed runs of workflows
        count by their failed steps, dead letters by the reports of workers.

        Args:
            state: only groups in this state.
        """
        now = await self._app.sessions.store().now_ms()
        begin = now - DAY_MS if since is None else min(milliseconds_of(since), now - _BARS)
        groups = await self._read(begin, now)
        versions = await self._first_versions(groups)
        views = render_all(lambda group: _view(group, versions.get(group.key, ""), now), groups)
        shown = [view for view in views if view.failures or view.marked_at]
        shown.sort(key=lambda view: (view.tenant, view.task, view.error))
        shown.sort(key=lambda view: (view.failures, view.last or ""), reverse=True)
        states = [view.state for view in shown]
        return FailureGroupList(
            items=[view for view in shown if state in (None, view.state)][:limit],
            since=instant_text(begin),
            open=states.count("open"),
            resolved=states.count("resolved"),
            muted=states.count("muted"),
            is_complete=sum(one.count for group in groups for one in group.counts) < _MOST,
        )

    async def resolve(self, group_id: str, *, note: str = "") -> None:
        """Mark a group as resolved; the next failure opens it again.

        Raises:
            RequestRefused: `failure_group_not_found`: there is no such group.
            NotPermitted: the caller may not call the task.
            LimitReached: the tenant has 500 resolved or muted groups.
        """
        await self._mark(group_id, "resolved", note=note)

    async def mute(self, group_id: str, *, seconds: float | None = None, note: str = "") -> None:
        """Mute a group for this many seconds, by default without end. Raises as `resolve`."""
        await self._mark(group_id, "muted", seconds=seconds, note=note)

    async def reopen(self, group_id: str, *, note: str = "") -> None:
        """Open a resolved or muted group again. Raises as `resolve`, without the limit."""
        group = await self._find(group_id)
        await self._store.remove_mark(group.key, audit=self._entry("failures.reopen", group, note=note))

    async def _mark(
        self, group_id: str, state: Literal["resolved", "muted"], *, seconds: float | None = None, note: str
    ) -> None:
        group = await self._find(group_id)
        now = await self._app.sessions.store().now_ms()
        # A worker's clock may be ahead: a failure that is known now must not open the group again.
        at = max(now, group.last or 0)
        until = None if seconds is None else now + round(seconds * 1000)
        by = self._caller.actor(note)
        mark = FailureMark(key=group.key, state=state, at=at, until=until, by=by.user, note=by.note)
        action = "failures.resolve" if state == "resolved" else "failures.mute"
        await self._store.put_mark(mark, audit=self._entry(action, group, seconds=seconds, note=note))

    async def _find(self, group_id: str) -> _Group:
        for group in await self._read(0, await self._app.sessions.store().now_ms()):
            if group.key.id == group_id:
                if not self._caller.allows(group.key.task):
                    raise NotPermitted(f"the group fails in {group.key.task!r}, which you may not call")
                return group
        raise RequestRefused(
            f"group of failures {group_id[:40]!r} not found", status=404, code="failure_group_not_found"
        )

    async def _read(self, begin: int, now: int) -> Sequence[_Group]:
        """Count the failures in 24 parts of the time from `begin` to `now`, and in as many parts before it."""
        tenant, step = self._caller.tenant, -(-(now - begin) // _BARS)
        counts = await self._store.counts(since=now - 2 * _BARS * step, step=step, tenant=tenant, most=_MOST)
        marks = {mark.key: mark for mark in await self._store.marks(tenant)}
        found: dict[FailureKey, list[FailureCount]] = {key: [] for key in marks}
        for one in counts:
            found.setdefault(one.key, []).append(one)
        return [_Group(key, parts, marks.get(key)) for key, parts in found.items()]

    async def _first_versions(self, groups: Sequence[_Group]) -> dict[FailureKey, str]:
        """Return the version of the app in the worker of each group's first failure; "" if it is unknown."""
        firsts = {group.key: min(group.counts, key=lambda one: one.first) for group in groups if group.counts}
        workers = {one.first_worker for one in firsts.values()} - {""}
        reports: dict[str, list[WorkerVersion]] = defaultdict(list)
        if workers:
            for report in await history_of(self._app.sessions.store()).versions.of_workers(sorted(workers)):
                reports[report.worker].append(report)
        return {key: version_at(reports[one.first_worker], one.first) for key, one in firsts.items()}

    @property
    def _store(self) -> FailureGroupStore:
        return history_of(self._app.sessions.store()).failures

    def _entry(self, action: str, group: _Group, *, seconds: float | None = None, note: str) -> AuditEntry:
        tenant, task, error = group.key
        after: dict[str, object] = {"task": task, "error": error}
        if seconds is not None:
            after["seconds"] = seconds
        by = self._caller.actor(note)
        return by.entry(action, kind="failures", subject=group.key.id, tenant=tenant, after=after)


def _view(group: _Group, version: str, now: int) -> FailureGroupView:
    key, counts, mark = group
    trend = [0] * _BARS
    before = 0
    for one in counts:
        if one.slot >= _BARS:
            # An instant of a worker's clock that is ahead belongs to the last part.
            trend[min(one.slot, 2 * _BARS - 1) - _BARS] += one.count
        elif one.slot >= 0:
            before += one.count
    state = state_of(mark, last=group.last, now=now)
    return FailureGroupView(
        id=key.id,
        tenant=key.tenant,
        task=key.task,
        error=key.error,
        state=state,
        failures=sum(trend),
        before=before,
        trend=trend,
        first=instant_text(min((one.first for one in counts), default=None)),
        last=instant_text(group.last),
        message=max(counts, key=lambda one: one.last).message if counts else "",
        is_new=bool(counts) and all(one.slot >= _BARS for one in counts),
        first_version=version,
        is_back=mark is not None and mark.state == "resolved" and state == "open",
        until=instant_text(mark.until) if mark else None,
        marked_at=instant_text(mark.at) if mark else None,
        marked_by=mark.by if mark else "",
        note=mark.note if mark else "",
    )
