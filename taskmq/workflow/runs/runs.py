"""`app.runs`: the runs in the app's store, and runs of stored workflows."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import msgspec

from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import NewRun, RunFilter
from taskmq.errors import InvalidOption
from taskmq.model.envelope import JSON
from taskmq.model.jobs.filter_text import RUN_STATES, select_run_states
from taskmq.model.keys import tenant_key
from taskmq.model.runs.records import RunRecord, RunState
from taskmq.model.units import Duration, instant_ms
from taskmq.model.values.return_type import PLAIN
from taskmq.workflow.runs.handle import Run
from taskmq.workflow.runs.service import RunService, timeout_of_run


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list.

    Attributes:
        id: its id, which begins with its tenant if it has one.
        workflow: name of its workflow, or the one that its sender gave it.
        cancelled: why it was cancelled; None if it was not.
        started, ended: ms since the epoch.
    """

    id: str
    workflow: str
    state: RunState
    cancelled: str | None
    error: str
    started: int
    ended: int | None


class RunList(msgspec.Struct, frozen=True):
    """A page of runs, the newest first.

    Attributes:
        after: cursor of the next page; None on the last one.
        is_bounded: whether the search stopped before the page was full; the next page continues there.
    """

    lines: list[ListedRun]
    after: str | None
    is_bounded: bool = False


class Runs:
    """Runs in the app's store, of every sender. Methods that begin with `a` are for coroutines.

    Every method may raise `StoreUnavailable`, and `UnsupportedFeature` if the app has no store.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._service = RunService(sessions)

    @property
    def _sessions(self) -> Sessions:
        return self._service.sessions

    async def astart(
        self,
        workflow: str,
        params: Mapping[str, Any] | None = None,
        *,
        version: str = "",
        run_id: str | None = None,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> Run[Any]:
        """Start a run of a stored workflow; return its handle. A known id starts nothing.

        Args:
            version: default: the current one.
            run_id: default: a new time-ordered UUID.
            tenant: tenant of the run. If it has no such workflow, the run is one of the workflow without a tenant.
            labels: names with values, for filters; the jobs of its steps have them too.
            timeout: maximum duration; the run is cancelled then, and fails. Default: that of the workflow.

        Raises:
            InvalidOption: there is no such workflow or version, or a parameter is wrong.
            EncodeError: a parameter has no form in JSON.
        """
        run = NewRun(
            id="",
            tenant=tenant or "",
            workflow=workflow,
            version=version,
            params=PLAIN.encode(dict(params or {}), JSON),
            labels=dict(labels or {}),
            timeout=timeout_of_run(timeout),
        )
        return Run(await self._service.start_run(run, run_id=run_id, tenant=tenant), service=self._service)

    start = blocking(astart)

    def get(self, run_id: str, *, tenant: str | None = None) -> Run[Any]:
        """Return a handle for a run, without checking that it exists; its values are plain data.

        Args:
            tenant: the run's tenant, if `run_id` is the sender's id; omit it with the `id` of a handle.
        """
        return Run(tenant_key(tenant, run_id), service=self._service)

    async def alist(
        self,
        *,
        workflow: str = "",
        states: Collection[str] = (),
        tenant: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        labels: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> RunList:
        """Return up to `limit` runs, the newest first.

        Args:
            workflow: name, in which `*` stands for any text; "": all.
            states: one of these; `held` selects running runs that are held; none: all.
            tenant: `""`: those without a tenant; None: everybody's.
            since, until: bounds of the start, with a time zone; `until` is excluded.
            labels: labels that the runs have.
            after: the `after` of the page before.

        Raises:
            InvalidOption: there is no such state, an instant has no time zone, or `after` is no cursor.
        """
        if limit < 1:
            raise InvalidOption(f"limit={limit}: at least 1")
        if unknown := [state for state in states if state not in RUN_STATES]:
            raise InvalidOption(f"unknown state {unknown[0][:40]!r} of a run: use one of {', '.join(RUN_STATES)}")
        which = RunFilter(
            tenant=tenant,
            workflow=workflow,
            since=None if since is None else instant_ms(since, what="since"),
            until=None if until is None else instant_ms(until, what="until"),
            labels=dict(labels or {}),
            **select_run_states(states),
        )
        page = await self._service.store.list_runs(which, after=after, limit=limit)
        return RunList([_line(record) for record in page.runs], page.after, page.is_bounded)

    list = blocking(alist)


def _line(record: RunRecord) -> ListedRun:
    return ListedRun(
        id=tenant_key(record.tenant or None, record.id),
        workflow=record.workflow,
        state=record.state,
        cancelled=record.cancelled,
        error=record.error,
        started=record.created,
        ended=record.ended,
    )
