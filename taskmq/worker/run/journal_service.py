"""Journal service: stores what runs report and save.

News (progress, heartbeats) is collected and written at most once a second, by one task that exists only while there
is some. Saved values are written immediately: those of stored jobs to the job store (`stored_journals`), those of
other jobs to the state. A worker whose tasks use none of it does nothing here.
"""

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from taskmq.app import TaskMQ
from taskmq.contracts.stores import BegunRun, CheckpointStore, ProgressRecord, Stores, require_store
from taskmq.errors import RunSuperseded, StateUnavailable, TaskMQError, UnsupportedFeature
from taskmq.model.outcome import (
    AlreadyDone,
    Cancelled,
    Dead,
    Interrupted,
    Outcome,
    Parked,
    Retried,
    Snoozed,
    Succeeded,
)
from taskmq.model.states import JobState
from taskmq.model.units import Duration
from taskmq.run.journal import HEARTBEAT, RunJournal, check_size
from taskmq.run.locks import Lock
from taskmq.worker.run.stored_journals import StoredJournals

_log = logging.getLogger("taskmq.worker")

T = TypeVar("T")

KEPT: Final = 7 * 86_400.0
"""Seconds for which a job's saved values are kept after its last run started or saved."""

_WHAT: Final = "progress, steps and checkpoints"
_PERIOD: Final = 1.0
# State of a job whose run reported something, by its outcome.
_STATES: Final[dict[type, JobState]] = {
    Succeeded: JobState.SUCCEEDED,
    AlreadyDone: JobState.SUCCEEDED,
    Retried: JobState.RETRYING,
    Snoozed: JobState.SCHEDULED,
    Dead: JobState.FAILED,
    Cancelled: JobState.CANCELLED,
    Interrupted: JobState.QUEUED,
    Parked: JobState.FAILED,
}
_PATIENCE: Final = 2.0


class JournalService:
    """The journals of one worker. Belongs to the running loop; journals of threads call it there."""

    def __init__(self, app: TaskMQ, stored: StoredJournals) -> None:
        self._app = app
        self._stored = stored
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._news: set[RunJournal] = set()
        self._writing: asyncio.Task[None] | None = None
        self._beginning: dict[RunJournal, asyncio.Task[BegunRun]] = {}
        self._is_answering = True

    def mark_changed(self, journal: RunJournal) -> None:
        if threading.get_ident() == self._thread:
            self._note(journal)
            return
        try:
            self._loop.call_soon_threadsafe(self._note, journal)
        except RuntimeError:
            # The worker continued without this run, and its loop is closed.
            return

    def now_ms(self) -> int:
        return self._app.sessions.clock.now_ms()

    async def begin(self, journal: RunJournal) -> BegunRun:
        if journal.run is not None:
            return journal.run
        beginning = self._beginning.get(journal)
        if beginning is None:
            # One call for all callers: a second one would supersede the first.
            beginning = self._beginning[journal] = asyncio.create_task(self._begin(journal))
            beginning.add_done_callback(lambda task: self._forget_beginning(journal, task))
        return await asyncio.shield(beginning)

    async def save(self, journal: RunJournal, name: str, value: bytes) -> None:
        run = await self.begin(journal)
        if (invitation := journal.invitation) is not None:
            if not await self._stored.save(journal, invitation, name, value, fence=run.token):
                raise self._superseded_error(journal)
            return
        check_size(name, value)
        if not await self._checkpoints().save(journal.job_id, name, value, token=run.token, ttl=KEPT):
            raise self._superseded_error(journal)

    def begin_blocking(self, journal: RunJournal) -> BegunRun:
        return self._call(self.begin(journal))

    def save_blocking(self, journal: RunJournal, name: str, value: bytes) -> None:
        self._call(self.save(journal, name, value))

    def lock(self, name: str, *, owner: str, timeout: Duration | None, lease: Duration) -> Lock:
        # May be called in any thread, so the session is only looked up on the loop.
        self._app.sessions.check_coordinator("locks need")
        return Lock(
            name,
            leases=self._app.sessions.coordinator,
            call=self._call,
            owner=owner,
            timeout=timeout,
            lease=lease,
            monotonic=self._app.sessions.clock.monotonic,
        )

    async def finish(self, journal: RunJournal, outcome: Outcome) -> None:
        """Write the last news of an ended run, and its outcome.

        This happens before the outcome is settled, and in one call with it, so that the next run finds the heartbeat.
        """
        self._news.discard(journal)
        if not journal.has_told:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._write(journal, _STATES[type(outcome)])
        except (TaskMQError, TimeoutError) as error:
            self._complain(error)

    async def end(self, journal: RunJournal, outcome: Outcome) -> None:
        """Drop what the job saved, because the outcome of its run is durable.

        A dead job keeps it, because a replay continues from there.
        """
        run, checkpoints = journal.run, self._stores().checkpoints
        if journal.invitation is not None:
            # The scheduler drops the values with the report of the end.
            self._stored.forget(journal)
            return
        if run is None or checkpoints is None or not isinstance(outcome, Succeeded | Cancelled):
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await checkpoints.forget(journal.job_id, token=run.token)
        except (TaskMQError, TimeoutError) as error:
            # It expires by itself.
            self._complain(error)

    async def aclose(self) -> None:
        """Stop writing after the last run."""
        tasks = [*self._beginning.values(), *([self._writing] if self._writing else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._stored.aclose()

    def _note(self, journal: RunJournal) -> None:
        self._news.add(journal)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_news())

    async def _write_news(self) -> None:
        try:
            while self._news:
                journals, self._news = self._news, set()
                for journal in journals:
                    try:
                        await self._write(journal)
                    except StateUnavailable as error:
                        self._complain(error)
                        journal.is_dirty = True
                        self._news.add(journal)
                    except TaskMQError as error:
                        self._complain(error)
                await asyncio.sleep(_PERIOD)
        finally:
            self._writing = None

    async def _write(self, journal: RunJournal, state: JobState = JobState.RUNNING) -> None:
        # Before the news is read: later news is written next time.
        journal.is_dirty = False
        if journal.invitation is not None:
            self._stored.report_progress(journal, journal.invitation, state)
            return
        store = require_store(self._stores().progress, f"{_WHAT} need")
        record = ProgressRecord(
            job_id=journal.job_id,
            attempt=journal.attempt,
            done=journal.done,
            total=journal.total,
            note=journal.note,
            started=journal.started,
            updated=self._app.sessions.clock.now_ms(),
            state=state,
        )
        await store.report(record, ttl=self._app.sessions.result_ttl)
        if journal.details is not None:
            await self.save(journal, HEARTBEAT, journal.details)
        self._is_answering = True

    def _complain(self, error: Exception) -> None:
        if isinstance(error, RunSuperseded):
            return
        if self._is_answering:
            _log.warning("saving progress and heartbeats of tasks failed: %s", error)
        self._is_answering = False

    async def _begin(self, journal: RunJournal) -> BegunRun:
        if journal.invitation is None:
            run = await self._checkpoints().begin(journal.job_id, attempt=journal.attempt, ttl=KEPT)
        else:
            run = await self._stored.begin(journal, journal.invitation)
        if run is None:
            raise self._superseded_error(journal)
        journal.run = run
        return run

    def _forget_beginning(self, journal: RunJournal, task: "asyncio.Task[BegunRun]") -> None:
        del self._beginning[journal]
        if not task.cancelled():
            # The caller may be gone: then no one else retrieves the exception.
            task.exception()

    def _stores(self) -> Stores:
        return self._app.sessions.current().stores

    def _checkpoints(self) -> CheckpointStore:
        return require_store(self._stores().checkpoints, f"{_WHAT} need")

    def _superseded_error(self, journal: RunJournal) -> RunSuperseded:
        journal.mark_superseded()
        return RunSuperseded(
            f"job {journal.job_id}: another run has begun since attempt {journal.attempt} did; this one can save "
            "nothing more"
        )

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        if threading.get_ident() == self._thread:
            call.close()
            raise UnsupportedFeature(
                "a blocking call on the worker's event loop would wait for itself: in coroutines use `await "
                "context.astep(...)`, `acheckpoint` and `resume`, and `async with context.lock(...)`"
            )
        if os.getpid() != self._process:
            call.close()
            raise UnsupportedFeature(
                "a fork of the worker can save nothing, and holds no lock: save in the process that the task was "
                "started in, and hand the values back to it"
            )
        try:
            return asyncio.run_coroutine_threadsafe(call, self._loop).result()
        except (RuntimeError, concurrent.futures.CancelledError) as error:
            call.close()
            raise StateUnavailable(f"the worker has stopped: {error}", is_certain=False) from error
