"""Groups of failures that a caller may see, and may resolve, mute or open again."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.history import FailureCount, FailureGroupStore, history_of
from taskmq.contracts.identity import Actor
from taskmq.model.history.failure_groups import FailureKey, FailureMark, GroupState, state_of
from taskmq.model.identity import AuditEntry
from taskmq.model.telemetry.app_versions import WorkerVersion, version_at
from taskmq.model.units import DAY_MS

_BARS: Final = 24
_MOST: Final = 10_000


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of one tenant, task and error.

    Attributes:
        trend: failures in each of 24 equal parts of the period, the earliest first.
        before: failures in the period of the same length before it.
        first, last: of all failures that were counted (ms); None if there are none.
        message: up to 200 characters of the message of one of them.
        is_new: whether all its failures are in the period.
        first_version: version of the app in the worker of the first failure; "" if it is unknown.
        mark: set by an operator, even if it has no effect any more.
    """

    key: FailureKey
    state: GroupState
    trend: tuple[int, ...]
    before: int
    first: int | None
    last: int | None
    message: str
    is_new: bool
    first_version: str
    mark: FailureMark | None

    @property
    def count(self) -> int:
        """The failures of the period."""
        return sum(self.trend)


class FailureGroups(msgspec.Struct, frozen=True):
    """Groups with failures in the period, or with a mark; those with the most failures first.

    Attributes:
        since: start of the period (ms).
        is_complete: whether all failures were counted; False if there may be more than 10,000.
    """

    groups: Sequence[FailureGroup]
    since: int
    is_complete: bool


class TenantFailureGroups:
    """Groups of failures of a tenant.

    Every method raises `StoreUnavailable`, and `UnsupportedFeature` if the app has no store that keeps a history.

    Args:
        tenant: tenant that owns them; "" means those without a tenant, None means all.
        by: the actor, for the audit log.
    """

    def __init__(self, app: TaskMQ, tenant: str | None, *, by: Actor) -> None:
        self._app = app
        self._tenant = tenant
        self._by = by

    async def list(self, *, since: int | None = None) -> FailureGroups:
        """Return the groups with failures since an instant (ms), by default in 24 hours, and the marked ones.

        The newest 10,000 failed jobs, expired jobs and failures of sent jobs are counted. Failed runs of workflows
        count by their failed steps, dead letters by the reports of workers.
        """
        now = await self._app.sessions.store().now_ms()
        begin = now - DAY_MS if since is None else min(since, now - _BARS)
        step = -(-(now - begin) // _BARS)
        counts = await self._store.counts(since=now - 2 * _BARS * step, step=step, tenant=self._tenant, most=_MOST)
        marks = {mark.key: mark for mark in await self._store.marks(self._tenant)}
        found: dict[FailureKey, list[FailureCount]] = {key: [] for key in marks}
        for one in counts:
            found.setdefault(one.key, []).append(one)
        versions = await self._first_versions(found)
        groups = [_group(key, parts, marks.get(key), versions.get(key, ""), now) for key, parts in found.items()]
        shown = [group for group in groups if group.count or group.mark]
        shown.sort(key=lambda group: (-group.count, -(group.last or 0), group.key))
        return FailureGroups(shown, begin, is_complete=sum(one.count for one in counts) < _MOST)

    async def _first_versions(self, found: Mapping[FailureKey, Sequence[FailureCount]]) -> dict[FailureKey, str]:
        firsts = {key: min(counts, key=lambda one: one.first) for key, counts in found.items() if counts}
        workers = {one.first_worker for one in firsts.values()} - {""}
        reports: dict[str, list[WorkerVersion]] = defaultdict(list)
        if workers:
            for report in await history_of(self._app.sessions.store()).versions.of_workers(sorted(workers)):
                reports[report.worker].append(report)
        return {key: version_at(reports[one.first_worker], one.first) for key, one in firsts.items()}

    async def mark(
        self, group: FailureGroup, state: Literal["resolved", "muted"], *, seconds: float | None = None
    ) -> None:
        """Mark a group as resolved or muted, and record it in the audit.

        Args:
            seconds: end of muting, from now; None: no end.

        Raises:
            LimitReached: the tenant has 500 marks.
        """
        now = await self._app.sessions.store().now_ms()
        # A worker's clock may be ahead: a failure that is known now must not open the group again.
        at = max(now, group.last or 0)
        until = None if seconds is None else now + round(seconds * 1000)
        mark = FailureMark(key=group.key, state=state, at=at, until=until, by=self._by.user, note=self._by.note)
        audit = self._entry("failures.resolve" if state == "resolved" else "failures.mute", group, seconds)
        await self._store.put_mark(mark, audit=audit)

    async def reopen(self, group: FailureGroup) -> None:
        """Remove the mark of a group, if it has one."""
        await self._store.remove_mark(group.key, audit=self._entry("failures.reopen", group, None))

    @property
    def _store(self) -> FailureGroupStore:
        return history_of(self._app.sessions.store()).failures

    def _entry(self, action: str, group: FailureGroup, seconds: float | None) -> AuditEntry:
        tenant, task, error = group.key
        after: dict[str, object] = {"task": task, "error": error}
        if seconds is not None:
            after["seconds"] = seconds
        return self._by.entry(action, kind="failures", subject=group.key.id, tenant=tenant, after=after)


def _group(
    key: FailureKey, counts: Sequence[FailureCount], mark: FailureMark | None, version: str, now: int
) -> FailureGroup:
    trend = [0] * _BARS
    before = 0
    for one in counts:
        if one.slot >= _BARS:
            # An instant of a worker's clock that is ahead belongs to the last part.
            trend[min(one.slot, 2 * _BARS - 1) - _BARS] += one.count
        elif one.slot >= 0:
            before += one.count
    last = max((one.last for one in counts), default=None)
    return FailureGroup(
        key=key,
        state=state_of(mark, last=last, now=now),
        trend=tuple(trend),
        before=before,
        first=min((one.first for one in counts), default=None),
        last=last,
        message=max(counts, key=lambda one: one.last).message if counts else "",
        is_new=bool(counts) and all(one.slot >= _BARS for one in counts),
        first_version=version,
        mark=mark,
    )
