"""What can be seen of the jobs in the store: the reading half of `app.jobs`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from msgspec.structs import replace

from taskmq.client.delayed import WaitingJob, waiting_jobs
from taskmq.client.progress import JobProgress
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
from taskmq.stored_jobs.explain import Explanation, explain_job
from taskmq.stored_jobs.new_jobs import name_of, result_of
from taskmq.stored_jobs.stored import StoredJobs

__all__ = ["JobQueries"]

_FIRST_LOOK: Final = 0.05
_LONGEST_LOOK: Final = 0.5
_BETWEEN_LOOKS: Final = 1.0


class JobQueries:
    """Reads jobs where they are: in the store, else in the state."""

    def __init__(self, sessions: Sessions, sent: SentJobs, stored: StoredJobs) -> None:
        self.sent: SentJobs = sent
        self._sessions = sessions
        self._store = stored

    async def alist_waiting(
        self, *, limit: int = 100, task: str | None = None, queue: str | None = None
    ) -> list[WaitingJob]:
        """Up to `limit` jobs that wait for their time in the state, the earliest due first.

        Those that are on their way to their queue are among them.

        Raises:
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return await waiting_jobs(self._sessions.delays(), limit=limit, task=task, queue=queue)

    list_waiting = blocking(alist_waiting)

    async def aget(self, job_id: str, *, tenant: str | None = None) -> JobRecord:
        """Return the job as the store has it, with its body and its result.

        Args:
            tenant: whose job it is, where `job_id` is an id within that tenant: what its submitter called it, or the
                store's own. The `id` of a handle names the tenant already.
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
        """List up to `limit` jobs, the newest first, without their bodies and results.

        Args:
            which: a `JobFilter`, or a filter as text, such as "status:failed", see docs/finding-jobs.md.
            tenant: only jobs of this tenant; "" is that of jobs that have none.
            after: the `after` of the page before.

        Raises:
            InvalidFilter: the text cannot be read; says where.
            InvalidOption: the filter names another tenant.
        """
        if limit < 1:
            raise InvalidOption(f"limit={limit}: at least 1")
        if after is not None:
            _check_cursor(after)
        return await self._sessions.store().list_jobs(await self._filter(which, tenant), after=after, limit=limit)

    list = blocking(alist)

    async def acount(
        self, which: JobFilter | str = EVERYTHING, *, tenant: str | None = None, cap: int = 10_000
    ) -> int:
        """Count jobs exactly up to `cap`; `cap` + 1 means more. `which` and `tenant` are as for `list`."""
        return await self._sessions.store().count_jobs(await self._filter(which, tenant), cap=cap)

    count = blocking(acount)

    async def _filter(self, which: JobFilter | str, tenant: str | None) -> JobFilter:
        if isinstance(which, str):
            # Not for apps that only submit.
            from taskmq.model.jobs.filter_text import may_have_times, parse_filter

            now = await self._sessions.store().now_ms() if may_have_times(which) else 0
            which = parse_filter(which, now)
        if tenant is None:
            return which
        if which.tenant not in (None, tenant):
            raise InvalidOption(f"tenant={tenant!r}: the filter is for tenant {which.tenant!r}; name one of them")
        return replace(which, tenant=tenant)

    async def ahistory(self, job_id: str, *, tenant: str | None = None) -> Sequence[HistoryEntry]:
        """Return what happened to the job beside the ordinary steps, the earliest first: by whom, and why."""
        record = await self.aget(job_id, tenant=tenant)
        return await self._sessions.store().events(record.id)

    history = blocking(ahistory)

    async def aattempts(self, job_id: str, *, tenant: str | None = None) -> Sequence[AttemptRecord]:
        """Return the attempts that did not end the job, the earliest first; the last one is in the job itself."""
        record = await self.aget(job_id, tenant=tenant)
        return await self._sessions.store().attempts(record.id)

    attempts = blocking(aattempts)

    async def alogs(
        self,
        job_id: str,
        *,
        tenant: str | None = None,
        level: str = "debug",
        text: str = "",
        after: int | None = None,
        limit: int = 1_000,
    ) -> LogPage:
        """Return what the job's runs logged, the earliest first; nothing unless its workers run with `capture_logs`.

        Args:
            level: lines from this one on: debug, info, warning, error.
            text: only lines that have it.
            after: the `after` of the page before; also that of an empty page, to follow a job that runs.

        Raises:
            UnsupportedFeature: the store keeps no lines.
        """
        record = await self.aget(job_id, tenant=tenant)
        which = LogFilter(job=record.id, level=read_level(level), text=text)
        return await history_of(self._sessions.store()).logs.page(which, after=after, limit=limit, oldest_first=True)

    logs = blocking(alogs)

    async def follow_logs(
        self, job_id: str, *, tenant: str | None = None, level: str = "debug", text: str = ""
    ) -> AsyncGenerator[StoredLine]:
        """Yield the job's log lines from the first on, and further ones as they come, until it has ended."""
        after: int | None = None
        while True:
            is_over = (await self.aget(job_id, tenant=tenant)).state.is_final
            # What was logged before its end is there when the end is.
            while True:
                page = await self.alogs(job_id, tenant=tenant, level=level, text=text, after=after)
                for line in page.lines:
                    yield line
                after = page.after
                if not page.lines and not page.is_bounded:
                    break
            if is_over:
                return
            await asyncio.sleep(_LONGEST_LOOK)

    async def aexplain(self, job_id: str, *, tenant: str | None = None) -> Explanation:
        """Say what the job waits for: a pause, a worker, the broker, other jobs, a limit."""
        record = await self.aget(job_id, tenant=tenant)
        return await explain_job(self._sessions.current(), self._sessions.store(), record)

    explain = blocking(aexplain)

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """See `JobService`; a job of the store ends there."""
        if not self._store.has_store or (first := await self._store.find(job_id)) is None:
            return await self.sent.wait_for_result(job_id, timeout)
        if timeout is None and self._sessions.patience is not None:
            timeout = self._sessions.patience.seconds
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        results = self._sessions.current().stores.results
        record, pause = result_of(first), _FIRST_LOOK
        while record is None:
            left = _LONGEST_LOOK if end is None else end - loop.time()
            if left <= 0:
                if self._sessions.patience is not None:
                    raise ResultTimeout(f"job {job_id} has not ended: {self._sessions.patience.advice}")
                return None
            if results is None:
                await asyncio.sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_LOOK)
            else:
                # The scheduler puts ends where callers may wait; one that never ran is in the store alone.
                try:
                    early = await results.wait(name_of(first), timeout=min(_BETWEEN_LOOKS, left))
                except StateUnavailable:
                    # The store has the end all the same; from now on it alone is asked.
                    results = None
                    continue
                # It is of an earlier run where the job has gone on since: from now on the store alone is asked.
                if early is not None and early.attempt >= first.attempt:
                    return early
                if early is not None:
                    results = None
                    continue
            found = await self._store.find(job_id)
            record = None if found is None else result_of(found)
        return await self._store.redeemed(record)

    async def fetch_result(self, job_id: str) -> ResultRecord | None:
        if self._store.has_store and (record := await self._store.find(job_id)) is not None:
            return None if (ended := result_of(record)) is None else await self._store.redeemed(ended)
        return await self.sent.fetch_result(job_id)

    async def find_result(self, job_id: str) -> ResultRecord | None:
        if self._store.has_store and (record := await self._store.find(job_id)) is not None:
            return result_of(record)
        return await self.sent.find_result(job_id)

    async def find_progress(self, job_id: str) -> JobProgress | None:
        """See `JobService`; a run reports under the job's name, also where the caller knows the store's id."""
        found = await self.sent.find_progress(job_id)
        if found is not None or not self._store.has_store or (record := await self._store.find(job_id)) is None:
            return found
        return None if (name := name_of(record)) == job_id else await self.sent.find_progress(name)

    async def state_of(self, job_id: str, *, was_sent: bool) -> JobState:
        if self._store.has_store:
            if (record := await self._store.find(job_id)) is not None:
                return record.state
            if self._sessions.current().state is None:
                return JobState.QUEUED if was_sent else JobState.UNKNOWN
        return await self.sent.state_of(job_id, was_sent=was_sent)


def _check_cursor(after: str) -> None:
    """Refuse what is no place in a list.

    Raises:
        InvalidOption: it is not what a list has given.
    """
    # Not for those who only send.
    from uuid import UUID

    try:
        UUID(after)
    except ValueError:
        raise InvalidOption(f"after={after[:80]!r}: not where a list has ended; say what it gave") from None
