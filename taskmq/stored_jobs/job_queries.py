"""Queries of stored jobs: the reading half of `app.jobs`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from msgspec.structs import replace

from taskmq.client.delayed import WaitingJob, waiting_jobs
from taskmq.client.progress import JobProgress, progress_of
from taskmq.client.sent_jobs import SentJobs
from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.history import history_of
from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobPage, JobRecord
from taskmq.contracts.stores import ResultRecord
from taskmq.errors import InvalidOption, ResultTimeout, StateUnavailable
from taskmq.model.history.logs import LogFilter, LogPage, StoredLine, read_level
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.keys import tenant_key
from taskmq.model.states import JobState
from taskmq.stored_jobs.explanations import Explanation, explain_job
from taskmq.stored_jobs.new_jobs import name_of, result_of
from taskmq.stored_jobs.recorded_jobs import RecordedJobs, merge_pages
from taskmq.stored_jobs.stored import StoredJobs

_FIRST_POLL: Final = 0.05
_LONGEST_POLL: Final = 0.5
_BETWEEN_POLLS: Final = 1.0


class JobQueries:
    """Queries that read jobs from the store, else from the state."""

    def __init__(self, sessions: Sessions, sent: SentJobs, stored: StoredJobs, recorded: RecordedJobs) -> None:
        self.sent: SentJobs = sent
        self.recorded: RecordedJobs = recorded
        self._sessions = sessions
        self._store = stored

    async def alist_waiting(
        self, *, limit: int = 100, task: str | None = None, queue: str | None = None
    ) -> list[WaitingJob]:
        """Return up to `limit` jobs that wait for their time in the state, earliest due first.

        Jobs that are being published to their queue are included.

        Raises:
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return await waiting_jobs(self._sessions.delays(), limit=limit, task=task, queue=queue)

    list_waiting = blocking(alist_waiting)

    async def aget(self, job_id: str, *, tenant: str | None = None) -> JobRecord:
        """Return the stored job, with its body and result, or the recorded sent job.

        Args:
            tenant: tenant that owns the job, if `job_id` is an id within that tenant. The `id` of a handle already
                includes the tenant.
        """
        return await self._store.get(tenant_key(tenant, job_id))

    get = blocking(aget)

    async def alist(
        self,
        which: JobFilter | str = EVERYTHING,
        *,
        tenant: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """List up to `limit` jobs, newest first, without bodies and results.

        Args:
            which: a `JobFilter`, or a filter as text, such as "status:failed task:invoice.*"; see docs/store.md. With
                `via:broker`, recorded sent jobs; with `via:any`, both; else stored ones.
            tenant: only jobs of this tenant; "" means jobs without a tenant.
            after: the `after` of the previous page.

        Raises:
            InvalidFilter: the text is malformed; the message says where.
            InvalidOption: the filter names another tenant.
        """
        if limit < 1:
            raise InvalidOption(f"limit={limit}: give at least 1")
        if after is not None:
            _check_cursor(after)
        found = await self._filter(which, tenant)
        if found.via in ("", "store"):
            return await self._sessions.store().list_jobs(found, after=after, limit=limit)
        sent = self.recorded.store.page(found, after=after, limit=limit)
        if found.via == "broker":
            return await sent
        stored = self._sessions.store().list_jobs(found, after=after, limit=limit)
        return merge_pages(await asyncio.gather(stored, sent), limit)

    list = blocking(alist)

    async def acount(
        self, which: JobFilter | str = EVERYTHING, *, tenant: str | None = None, cap: int = 10_000
    ) -> int:
        """Count jobs exactly up to `cap`; `cap` + 1 means more. See `list` for `which` and `tenant`."""
        found = await self._filter(which, tenant)
        if found.via in ("", "store"):
            return await self._sessions.store().count_jobs(found, cap=cap)
        sent = self.recorded.store.count(found, cap=cap)
        if found.via == "broker":
            return await sent
        stored = self._sessions.store().count_jobs(found, cap=cap)
        return min(sum(await asyncio.gather(stored, sent)), cap + 1)

    count = blocking(acount)

    async def _filter(self, which: JobFilter | str, tenant: str | None) -> JobFilter:
        if isinstance(which, str):
            # Imported late: apps that only submit do not need it.
            from taskmq.model.jobs.filter_text import may_have_times, parse_filter

            now = await self._sessions.store().now_ms() if may_have_times(which) else 0
            which = parse_filter(which, now)
        if tenant is None:
            return which
        if which.tenant not in (None, tenant):
            raise InvalidOption(f"tenant={tenant!r}: the filter names tenant {which.tenant!r}; give only one of them")
        return replace(which, tenant=tenant)

    async def ahistory(self, job_id: str, *, tenant: str | None = None) -> Sequence[HistoryEntry]:
        """Return the job's history apart from its ordinary steps, earliest first, with actors and reasons."""
        record = await self.aget(job_id, tenant=tenant)
        return await self._sessions.store().events(record.id)

    history = blocking(ahistory)

    async def aattempts(self, job_id: str, *, tenant: str | None = None) -> Sequence[AttemptRecord]:
        """Return all attempts of the job, earliest first. Runs that do not count are in its history."""
        return await self.recorded.attempts(await self.aget(job_id, tenant=tenant))

    attempts = blocking(aattempts)

    async def alogs(
        self,
        job_id: str,
        *,
        tenant: str | None = None,
        level: str = "debug",
        text: str = "",
        attempt: int | None = None,
        after: int | None = None,
        limit: int = 1_000,
    ) -> LogPage:
        """Return what the job's runs logged, earliest first. Its workers must run with `capture_logs`.

        Args:
            level: lowest level to return: debug, info, warning or error.
            text: only lines that contain this text.
            attempt: only lines of this attempt, from 1.
            after: the `after` of the previous page. Pass that of an empty page to follow a running job.

        Raises:
            UnsupportedFeature: the store keeps no log lines.
        """
        record = await self.aget(job_id, tenant=tenant)
        which = LogFilter(
            job=record.id, is_sent=record.via == "broker", level=read_level(level), text=text, attempt=attempt
        )
        return await history_of(self._sessions.store()).logs.page(which, after=after, limit=limit, oldest_first=True)

    logs = blocking(alogs)

    async def follow_logs(
        self, job_id: str, *, tenant: str | None = None, level: str = "debug", text: str = ""
    ) -> AsyncGenerator[StoredLine]:
        """Yield the job's log lines from the first on, and new ones as they arrive, until the job has ended."""
        after: int | None = None
        while True:
            is_over = (await self.aget(job_id, tenant=tenant)).state.is_final
            # Lines logged before the end are readable once the end is.
            while True:
                page = await self.alogs(job_id, tenant=tenant, level=level, text=text, after=after)
                for line in page.lines:
                    yield line
                after = page.after
                if not page.lines and not page.is_bounded:
                    break
            if is_over:
                return
            await asyncio.sleep(_LONGEST_POLL)

    async def aexplain(self, job_id: str, *, tenant: str | None = None) -> Explanation:
        """Explain what the job waits for: a pause, a worker, the broker, other jobs or a limit."""
        record = await self.aget(job_id, tenant=tenant)
        return await explain_job(self._sessions.current(), self._sessions.store(), record)

    explain = blocking(aexplain)

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """Wait for a result, see `JobService`. The result of a stored job comes from the store."""
        if not self._store.has_store or (first := await self._store.find(job_id)) is None:
            return await self.sent.wait_for_result(job_id, timeout)
        if timeout is None and self._sessions.patience is not None:
            timeout = self._sessions.patience.seconds
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        results = self._sessions.current().stores.results
        record, pause = result_of(first), _FIRST_POLL
        while record is None:
            left = _LONGEST_POLL if end is None else end - loop.time()
            if left <= 0:
                if self._sessions.patience is not None:
                    raise ResultTimeout(f"job {job_id} has not ended: {self._sessions.patience.advice}")
                return None
            if results is None:
                await asyncio.sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_POLL)
            else:
                # The scheduler also writes results to the state; that of a job that never ran is only in the store.
                try:
                    early = await results.wait(name_of(first), timeout=min(_BETWEEN_POLLS, left))
                except StateUnavailable:
                    # The store also gets the result, so poll only the store from now on.
                    results = None
                    continue
                # A lower attempt belongs to a run before the job was resumed; poll only the store from now on.
                if early is not None and early.attempt >= first.attempt:
                    return early
                if early is not None:
                    results = None
                    continue
            found = await self._store.find(job_id)
            record = None if found is None else result_of(found)
        return await self._store.fetch_value(record)

    async def fetch_result(self, job_id: str) -> ResultRecord | None:
        if self._store.has_store and (record := await self._store.find(job_id)) is not None:
            return None if (ended := result_of(record)) is None else await self._store.fetch_value(ended)
        return await self.sent.fetch_result(job_id)

    async def find_result(self, job_id: str) -> ResultRecord | None:
        if self._store.has_store and (record := await self._store.find(job_id)) is not None:
            return result_of(record)
        return await self.sent.find_result(job_id)

    async def find_progress(self, job_id: str) -> JobProgress | None:
        """Find the progress, see `JobService`; that of a stored job is in the store."""
        if (stored := await self.find_stored(job_id)) is None:
            return await self.sent.find_progress(job_id)
        return stored[1]

    async def find_stored(self, job_id: str) -> tuple[JobState, JobProgress | None] | None:
        """See `JobService`."""
        if not self._store.has_store or (record := await self._store.find(job_id)) is None:
            return None
        found = (await self._sessions.store().journals.progress([record.id])).get(record.id)
        return record.state, None if found is None else progress_of(found)

    async def state_of(self, job_id: str, *, was_sent: bool) -> JobState:
        if self._store.has_store:
            if (record := await self._store.find(job_id)) is not None:
                return record.state
            if self._sessions.current().state is None:
                return JobState.QUEUED if was_sent else JobState.UNKNOWN
        return await self.sent.state_of(job_id, was_sent=was_sent)


def _check_cursor(after: str) -> None:
    """Check that the text is the cursor of a list.

    Raises:
        InvalidOption: the text is not a cursor.
    """
    # Imported late: apps that only send do not need it.
    from uuid import UUID

    try:
        UUID(after)
    except ValueError:
        raise InvalidOption(f"after={after[:80]!r} is not a cursor: pass the `after` of the previous page") from None
