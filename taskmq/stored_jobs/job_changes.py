"""Changes to jobs in the store: the writing half of `app.jobs`, apart from submitting."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET

from taskmq.client.sent_jobs import SentJobs
from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import JobRecord
from taskmq.errors import InvalidOption
from taskmq.jobs.handle import Job
from taskmq.model.envelope import LAST_INSTANT
from taskmq.model.jobs.changes import Action, RetryMode
from taskmq.model.keys import check_chosen_id
from taskmq.model.topology import check_queue_name, class_of
from taskmq.model.units import Duration, parse_duration, to_ms
from taskmq.stored_jobs.dependencies import upstream_again
from taskmq.stored_jobs.job_queries import JobQueries
from taskmq.stored_jobs.named_calls import NamedCalls
from taskmq.stored_jobs.new_jobs import cloned, mode_of, name_of
from taskmq.stored_jobs.stored import NOTHING, By, Change, JobRef, StoredJobs, id_of, instant_ms, of_tenant

__all__ = ["JobChanges"]

_REMEMBERED: Final = "7d"


class JobChanges(JobQueries):
    """Changes, cancels and repeats jobs that were submitted.

    Args:
        names: gives handles of those that repeat others.
    """

    def __init__(self, sessions: Sessions, sent: SentJobs, stored: StoredJobs, names: NamedCalls) -> None:
        super().__init__(sessions, sent, stored)
        self._names = names

    async def achange(
        self,
        job: JobRef,
        *,
        tenant: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        queue: str | None = None,
        expires: datetime | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        by: By = "",
        note: str = "",
    ) -> JobRecord:
        """Change a job that no worker has yet; the job afterwards. What is not given stays.

        Args:
            tenant: whose job it is, where `job` is an id within that tenant; so it is with the other changes.
            version: that the job must have; None: whichever it has.
            args, kwargs: in place of all its arguments.
            by, note: who, and why: for its history. By an `Actor` it is in the audit as well, by the same
                transaction; so it is with the other changes.

        Raises:
            InvalidArguments: they do not fit its task.
        """
        due: Any = UNSET
        now: int | None = None
        if at is not None and delay is not None:
            raise InvalidOption("delay and at exclude each other")
        if at is not None:
            due = instant_ms(at, what="at")
        elif delay is not None:
            wait = to_ms(parse_duration(delay, what="delay"))
            now = await self._sessions.store().now_ms()
            due = min(now + wait, LAST_INSTANT)
        class_of(priority)
        change = Change(
            due=due,
            expires=UNSET if expires is None else instant_ms(expires, what="expires"),
            priority=UNSET if priority is None else priority,
            queue=UNSET if queue is None else check_queue_name(queue),
            call=UNSET if args is None and kwargs is None else (tuple(args or ()), dict(kwargs or {})),
        )
        if change == NOTHING:
            raise InvalidOption(
                f"job {id_of(job)}: nothing to change: give at, delay, priority, queue, expires or arguments"
            )
        return await self._store.edit(
            of_tenant(job, tenant), "change", version=version, change=change, now=now, by=by, note=note
        )

    change = blocking(achange)

    async def acancel(
        self, job: JobRef, *, tenant: str | None = None, version: int | None = None, by: By = "", note: str = ""
    ) -> JobRecord:
        """Cancel a job: for good where no worker has it, else its worker is asked to stop it; the job afterwards."""
        after = await self._do("cancel", of_tenant(job, tenant), version=version, by=by, note=note)
        if not after.state.is_final:
            reason = after.cancel_requested or ""
            if self._sessions.current().state is None:
                # Schedulers repeat it until its worker has heard it.
                self.sent.announce_cancellation(name_of(after), reason)
            else:
                await self.sent.cancel_job(name_of(after), reason=reason, remember=_REMEMBERED, state=after.state)
        return after

    cancel = blocking(acancel)

    async def ahold(
        self, job: JobRef, *, tenant: str | None = None, version: int | None = None, by: By = "", note: str = ""
    ) -> JobRecord:
        """Have a job that waits not run until it is released."""
        return await self._do("hold", of_tenant(job, tenant), version=version, by=by, note=note)

    hold = blocking(ahold)

    async def arelease(
        self, job: JobRef, *, tenant: str | None = None, version: int | None = None, by: By = "", note: str = ""
    ) -> JobRecord:
        """Let a held job run, at its time."""
        return await self._do("release", of_tenant(job, tenant), version=version, by=by, note=note)

    release = blocking(arelease)

    async def aretry(
        self,
        job: JobRef,
        *,
        tenant: str | None = None,
        version: int | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        new_id: str | None = None,
        by: By = "",
        note: str = "",
    ) -> Job[Any]:
        """Run a job now: one that waits at once; one that has ended again. Of several who do so, one does.

        It waits first for what it waited for before, as far as that runs again.

        Args:
            mode: how one that has ended is run again. `resume`: the same job goes on, under its id, with its next
                attempt and what its runs have saved, and its retries count anew. `new`: another job repeats it from
                the beginning, and each names the other. Default: a job goes on whose submitter chose its id and that
                neither has succeeded nor was cancelled while it ran; of others there is a new one.
            again: also one that another job repeats already.
            new_id: of the job that repeats it (mode `new`); default: one of the store's. The same id once more is
                the same job.

        Raises:
            JobConflict: another job repeats it already, which is named; it cannot go on; or it has not run since a
                job that it waited for has failed, and that one was not retried.
            QuotaExceeded: its tenant or owner has submitted as much as it may. One that goes on counts for none.
        """
        record = await self._store.read(of_tenant(job, tenant))
        if not record.state.is_final:
            await self._do("retry", record, version=version, by=by, note=note)
            return self._names.handle(record)
        if mode is None:
            mode = mode_of(record) if new_id is None else "new"
        if mode == "resume":
            if new_id is not None:
                raise InvalidOption(f"new_id={new_id!r}: the job goes on under its own id with mode='resume'")
            await self._store.resume(record, version=version, again=again, by=by, note=note)
            return self._names.handle(record)
        if new_id is not None:
            check_chosen_id(new_id, tenant=record.tenant, what="new_id")
        now = self._sessions.clock.now_ms()
        upstream = await upstream_again(record, self._sessions.store().get)
        copy = cloned(record, job_id=new_id, now=now, due=now, depends_on=upstream)
        existing = await self._store.repeat(record, copy, version=version, again=again, by=by, note=note)
        return self._names.handle(copy, existing)

    retry = blocking(aretry)

    async def aclone(
        self,
        job: JobRef,
        *,
        tenant: str | None = None,
        new_id: str | None = None,
        at: datetime | None = None,
        owner: str | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> Job[Any]:
        """Submit another job of the same task, which is linked to this one.

        Args:
            new_id: its id; default: one of the store's.
            at: when it is to run; default: now.
            owner, priority: default: those of the first one.
            args, kwargs: in place of all its arguments; default: the same call.

        Raises:
            InvalidArguments: they do not fit the task.
        """
        record = await self._store.read(of_tenant(job, tenant))
        if new_id is not None:
            check_chosen_id(new_id, tenant=record.tenant, what="new_id")
        now = self._sessions.clock.now_ms()
        due = now if at is None else instant_ms(at, what="at")
        class_of(priority)
        call = None
        if args is not None or kwargs is not None:
            call = await self._store.encoded_call(record, args or (), kwargs or {})
        copy = cloned(record, job_id=new_id, now=now, due=due, owner=owner, call=call, priority=priority)
        return self._names.handle(copy, (await self._store.submit(copy)).existing)

    clone = blocking(aclone)

    async def _do(self, action: Action, job: JobRef, *, version: int | None, by: By, note: str) -> JobRecord:
        return await self._store.edit(job, action, version=version, by=by, note=note)
