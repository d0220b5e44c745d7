"""Stored jobs that one caller may see: those of one tenant or of all tenants.

Another tenant's job is reported as unknown, whether it is requested by id or by key.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.client.progress import JobProgress
from taskmq.contracts.history import LogStore, history_of
from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobPage, JobRecord, StateCounts
from taskmq.errors import (
    EncodeError,
    InvalidOption,
    JobNotFound,
    ResultTimeout,
    StateUnavailable,
    UnsupportedFeature,
)
from taskmq.model.history.logs import LogFilter, LogPage
from taskmq.model.jobs.filter_text import may_have_times, parse_filter
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.jobs.pools import known_reason
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.model.values.wire_form import encode_json
from taskmq.operations.jobs import progress_of_jobs
from taskmq.stored_jobs.explanations import Explanation, explain_job
from taskmq.stored_jobs.new_jobs import name_of

_LONGEST_ID: Final = 600
_NAMED: Final = 3
_PATIENCE: Final = 1.0


class VisibleJobs:
    """The jobs that a caller may see.

    Every method raises `JobNotFound` if there is no such job or it belongs to another tenant, `StoreUnavailable`, and
    `UnsupportedFeature` if the app has no store.

    Args:
        tenant: tenant that owns the jobs; "" means jobs without a tenant, None means all.
    """

    def __init__(self, app: TaskMQ, tenant: str | None) -> None:
        self._app = app
        self._jobs = app.jobs
        self._tenant = tenant

    def name_of(self, record: JobRecord) -> str:
        """Return the caller's id of the job: the id that its submitter chose, else the store's."""
        if record.key is None:
            return record.id
        return record.key if self._tenant is not None else tenant_key(record.tenant or None, record.key)

    async def get(self, job_id: str) -> JobRecord:
        """Return the job of that id, with its body and result."""
        if "\0" in job_id or len(job_id) > _LONGEST_ID:
            raise build_not_found(job_id)
        store = self._app.sessions.store()
        if self._tenant is None:
            try:
                return await self._jobs.aget(job_id)
            except JobNotFound as error:
                hint = await self._hint(job_id)
                raise (JobNotFound(f"{error}; {hint}") if hint else error) from error
        record = await store.get(job_id)
        if record is None or record.tenant != self._tenant:
            found = await store.find_key(self._tenant, job_id)
            record = None if found is None else await store.get(found)
        if record is None or record.tenant != self._tenant:
            record = await self._find_recorded(job_id, self._tenant)
        if record is None or record.tenant != self._tenant:
            raise build_not_found(job_id, await self._hint(job_id))
        return record

    async def _find_recorded(self, job_id: str, tenant: str) -> JobRecord | None:
        find = self._jobs.recorded.find
        return await find(job_id) or await find(tenant_key(tenant or None, job_id))

    async def _hint(self, job_id: str) -> str:
        """Return a hint on where an unknown job may be found, limited to what the caller may know; "" if none."""
        if self._tenant is None:
            page = await self._jobs.alist(JobFilter(keys=(job_id,)), limit=_NAMED)
            if page.jobs:
                names = " and ".join(repr(self.name_of(job)) for job in page.jobs)
                return f"there is {names}: give the full name, or ?tenant="
        tenant, own_name = split_tenant_key(job_id)
        if tenant and tenant == self._tenant and await self._app.sessions.store().find_key(tenant, own_name):
            return f"leave out the tenant: there is {own_name!r}"
        if tenant and self._tenant is not None:
            return ""
        try:
            async with asyncio.timeout(_PATIENCE):
                sent = await self._jobs.find_result(tenant_key(self._tenant or None, job_id))
        except (StateUnavailable, UnsupportedFeature, TimeoutError):
            return ""
        return "" if sent is None else "it was sent to the broker and is not in the store; see /failures?job_id="

    async def filter(self, text: str, **further: Any) -> JobFilter:
        """Parse the text of a filter; see `taskmq.model.jobs.filter_text`.

        Args:
            further: further fields of the filter.

        Raises:
            InvalidFilter: the text is malformed.
            InvalidOption: the text also sets one of the further fields.
        """
        which = parse_filter(text, await self._app.sessions.store().now_ms() if may_have_times(text) else 0)
        for name, value in further.items():
            if getattr(which, name) != getattr(JobFilter(), name):
                raise InvalidOption(f"{name} is given twice: in the filter and as a parameter")
            which = replace(which, **{name: value})
        return which

    async def list(self, which: JobFilter, *, after: str | None = None, limit: int = 50) -> JobPage:
        """Return up to `limit` matching jobs of the caller, newest first, without bodies and results."""
        own = self._restrict(which)
        return JobPage([], None) if own is None else await self._jobs.alist(own, after=after, limit=limit)

    async def progress(self, jobs: Sequence[JobRecord]) -> dict[str, JobProgress]:
        """Return the progress of the caller's jobs; see `progress_of_jobs`."""
        return await progress_of_jobs(self._app, jobs)

    async def count(self, which: JobFilter, *, cap: int = 10_000) -> int:
        """Count the matching jobs of the caller, exactly up to `cap`; `cap` + 1 means more."""
        own = self._restrict(which)
        return 0 if own is None else await self._jobs.acount(own, cap=cap)

    async def count_states(self, which: JobFilter) -> StateCounts:
        """Count the matching stored jobs of the caller by state, as `JobStore.count_states`.

        Raises:
            InvalidOption: the filter selects sent jobs.
        """
        which.check_stored()
        own = self._restrict(which)
        return StateCounts({}, is_exact=True) if own is None else await self._app.sessions.store().count_states(own)

    def _restrict(self, which: JobFilter) -> JobFilter | None:
        if self._tenant is None or which.tenant == self._tenant:
            return which
        return replace(which, tenant=self._tenant) if which.tenant is None else None

    async def history(self, job_id: str) -> Sequence[HistoryEntry]:
        """Return the job's history apart from its ordinary steps, earliest first."""
        entries = await self._app.sessions.store().events((await self.get(job_id)).id)
        return entries if self._tenant is None else [_redact_entry(entry, self._tenant) for entry in entries]

    async def attempts(self, job_id: str) -> Sequence[AttemptRecord]:
        """Return all attempts of the job, earliest first."""
        return await self._jobs.recorded.attempts(await self.get(job_id))

    async def refusals(self, record: JobRecord) -> dict[str, str]:
        """Return the actions that are impossible because the job was sent to the broker, each with the reason."""
        try:
            return await self._jobs.recorded.refusals(record)
        except StateUnavailable as error:
            return dict.fromkeys(("cancel", "change"), str(error))

    async def explain(self, job_id: str) -> Explanation:
        """Explain what the job waits for."""
        sessions, record = self._app.sessions, await self.get(job_id)
        return await explain_job(sessions.current(), sessions.store(), record, reader=self._tenant)

    async def logs(self, job_id: str, which: LogFilter, *, after: int | None = None, limit: int = 50) -> LogPage:
        """Return log lines of the job's runs, earliest first.

        Args:
            which: filter of the lines; its job is set to this one.
        """
        record = await self.get(job_id)
        own = replace(which, job=record.id, is_sent=record.via == "broker")
        return await self._logs.page(own, after=after, limit=limit, oldest_first=True)

    async def search_logs(self, which: LogFilter, *, after: int | None = None, limit: int = 50) -> LogPage:
        """Return log lines of the caller's jobs, newest first."""
        if self._tenant is not None:
            which = replace(which, tenant=self._tenant)
        return await self._logs.page(which, after=after, limit=limit)

    @property
    def _logs(self) -> LogStore:
        return history_of(self._app.sessions.store()).logs

    async def value_of(self, record: JobRecord) -> Any:
        """Return the result of a job that succeeded, as plain data.

        Raises:
            ResultExpired, ResultDamaged: the result is no longer kept, or is not what was stored.
            UnsupportedFeature: this process cannot reach the result, or it has no JSON form.
        """
        try:
            value: Any = await self._app.job(name_of(record)).aresult(0)
        except ResultTimeout as error:
            raise UnsupportedFeature(f"the result of sent job {record.id} is not kept: {error}") from error
        try:
            encode_json(value)
        except EncodeError as error:
            raise UnsupportedFeature(f"the result of job {record.id} cannot be shown as JSON: {error}") from error
        return value


def _redact_entry(entry: HistoryEntry, tenant: str) -> HistoryEntry:
    """Return the entry with only what the tenant may know."""
    is_about_others = entry.kind in {"preempt_requested", "preempted"}
    return replace(entry, note=known_reason(entry.note, tenant)) if is_about_others else entry


def build_not_found(job_id: str, hint: str = "") -> JobNotFound:
    """Build the error for a job that the caller does not find."""
    return JobNotFound(f"no job is called {job_id[:_LONGEST_ID]!r}{'; ' if hint else ''}{hint}")
