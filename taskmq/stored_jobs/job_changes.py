"""Changes to stored jobs: the writing half of `app.jobs`, except submission."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypedDict

from msgspec import UNSET
from msgspec.structs import replace

from taskmq.client.sent_jobs import SentJobs
from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import JobRecord
from taskmq.errors import (
    InvalidArguments,
    InvalidOption,
    JobConflict,
    ResultDamaged,
    ResultExpired,
    SavedValuesFull,
    StateUnavailable,
    UnsupportedFeature,
)
from taskmq.jobs.handle import Job
from taskmq.model.envelope import JSON
from taskmq.model.history.signals import JobSignal, check_signal
from taskmq.model.history.suspensions import decides_form, find_form, is_awaited
from taskmq.model.jobs.changes import Action, RetryMode
from taskmq.model.keys import check_chosen_id
from taskmq.model.states import UNDERWAY
from taskmq.model.topology import check_queue_name, class_of
from taskmq.model.units import LAST_INSTANT, Duration, instant_ms, parse_duration, to_ms
from taskmq.model.values.light_values import read_reference
from taskmq.model.values.return_type import PLAIN
from taskmq.model.values.schemas import find_misfit
from taskmq.stored_jobs.change import NOTHING, By, Change, JobRef, id_of, of_tenant
from taskmq.stored_jobs.dependencies import resolve_upstream_again
from taskmq.stored_jobs.job_queries import JobQueries
from taskmq.stored_jobs.named_calls import NamedCalls
from taskmq.stored_jobs.new_jobs import clone_job, default_mode, name_of
from taskmq.stored_jobs.recorded_jobs import RecordedJobs, check_stored
from taskmq.stored_jobs.stored import StoredJobs

_REMEMBERED: Final = "7d"
# A job changes its state between two attempts to wake it.
_TRIES: Final = 10


class ChangeOptions(TypedDict, total=False):
    """The new values of a change to a job. Missing options keep the present values."""

    at: datetime | None
    delay: Duration | None
    priority: int | None
    queue: str | None
    expires: datetime | None
    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None


class JobChanges(JobQueries):
    """Changes, cancellations and retries of submitted jobs.

    Args:
        names: builds the handles of jobs that repeat others.
    """

    def __init__(
        self, sessions: Sessions, sent: SentJobs, stored: StoredJobs, recorded: RecordedJobs, names: NamedCalls
    ) -> None:
        super().__init__(sessions, sent, stored, recorded)
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
        """Change a job that no worker has received yet, and return it. Missing options keep the present values.

        Args:
            tenant: tenant that owns the job, if `job` is an id within that tenant. All changes accept this.
            version: version that the job must have; None: any.
            args, kwargs: replace all its arguments.
            by, note: actor and reason, for its history. A change by an `Actor` is also audited, in the same
                transaction. All changes accept this.

        Raises:
            InvalidArguments: the arguments do not match the task's signature.
        """
        due: Any = UNSET
        now: int | None = None
        if at is not None and delay is not None:
            raise InvalidOption("give delay or at, not both")
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
        record = await self._store.read(of_tenant(job, tenant))
        if record.via == "broker" and change == Change(due=due):
            return await self.recorded.reschedule(record, due=due, version=version, by=by, note=note)
        return await self._store.edit(record, "change", version=version, change=change, now=now, by=by, note=note)

    change = blocking(achange)

    async def acancel(
        self, job: JobRef, *, tenant: str | None = None, version: int | None = None, by: By = "", note: str = ""
    ) -> JobRecord:
        """Cancel a job and return it. If a worker has it, the worker is asked to stop it."""
        record = await self._store.read(of_tenant(job, tenant))
        if record.via == "broker":
            return await self.recorded.cancel(record, version=version, remember=_REMEMBERED, by=by, note=note)
        after = await self._edit("cancel", record, version=version, by=by, note=note)
        if not after.state.is_final:
            reason = after.cancel_requested or ""
            # Schedulers repeat the request until the worker has received it, so the state may be unreachable.
            self.sent.announce_cancellation(name_of(after), reason)
            if self._sessions.current().state is not None:
                with suppress(StateUnavailable):
                    await self.sent.cancel_job(name_of(after), reason=reason, remember=_REMEMBERED, state=after.state)
        return after

    cancel = blocking(acancel)

    async def ahold(
        self, job: JobRef, *, tenant: str | None = None, version: int | None = None, by: By = "", note: str = ""
    ) -> JobRecord:
        """Hold a waiting job until it is released."""
        return await self._edit("hold", of_tenant(job, tenant), version=version, by=by, note=note)

    hold = blocking(ahold)

    async def arelease(
        self, job: JobRef, *, tenant: str | None = None, version: int | None = None, by: By = "", note: str = ""
    ) -> JobRecord:
        """Release a held job; it runs at its time."""
        return await self._edit("release", of_tenant(job, tenant), version=version, by=by, note=note)

    release = blocking(arelease)

    async def asignal(
        self,
        job: JobRef,
        name: str,
        value: Any = None,
        *,
        tenant: str | None = None,
        signal_id: str | None = None,
        by: By = "",
    ) -> str:
        """Send a signal to a job, whose call of `Context.wait_for` returns the value. Returns the signal's id.

        A job that waits for it runs again at once. Other jobs keep it until a call takes it. After an error, send it
        again with the same `signal_id`.

        Args:
            value: anything that has a form in JSON.
            signal_id: of this signal: a second one with the same id has no effect. Default: generated.

        Raises:
            EncodeError: the value has no form in JSON.
            InvalidArguments: the job waits for the signal, and the value does not fit the form of that call.
            JobConflict: the job has ended; or it keeps the signal, and changed in each try to wake it.
            SavedValuesFull: the job has no room for the signal.
            InvalidOption: the name or the id has other characters than letters, digits, `_`, `.`, `:` and `-`.
        """
        check_signal(name, what="signal")
        sender = secrets.token_hex(16) if signal_id is None else check_signal(signal_id, what="signal_id")
        signal = JobSignal(name, sender, PLAIN.encode(value, JSON))
        record = check_stored(await self._store.get(id_of(of_tenant(job, tenant))))
        if is_awaited(name, record.suspension):
            await self._check_form(record, signal)
        effect = await self._sessions.store().journals.signal(record.id, signal)
        if effect is None:
            raise JobConflict(
                f"job {name_of(record)} has ended: signal {name!r} was not sent",
                state=record.state,
                version=record.version,
            )
        if not effect.key:
            raise SavedValuesFull(name_of(record), f"the signal {name!r}")
        await self._wake(record.id, replace(signal, name=effect.name), by=by)
        return sender

    signal = blocking(asignal)

    async def _check_form(self, record: JobRecord, signal: JobSignal) -> None:
        """Check the value of a signal against the form of the call that waits for it.

        Raises:
            InvalidArguments: see `asignal`.
        """
        values = await self._find_values(record, signal)
        # If the form cannot be read here, only the task checks the value.
        form = None if values is None else find_form(values, signal)
        flaw = ""
        # Without the validator, or with a schema that is not one, only the task checks it, too.
        with suppress(UnsupportedFeature, ValueError):
            # A type accepts more than the format of its schema, for example durations with parts of a second.
            value = PLAIN.decode(signal.value, JSON)
            flaw = find_misfit(form or {}, value, purpose="forms of signals", checks_formats=False)
        if flaw:
            raise InvalidArguments(f"job {name_of(record)}: signal {signal.name!r} does not fit its form: {flaw}")

    async def _find_values(self, record: JobRecord, signal: JobSignal) -> dict[str, bytes] | None:
        """Return the saved values that decide the form; None if one is kept where this process cannot read it."""
        saved = (await self._sessions.store().journals.values([record.id])).get(record.id)
        large = self._sessions.current().large_values
        values: dict[str, bytes] = {}
        for name, each in ({} if saved is None else saved.values).items():
            if not each.is_reference:
                values[name] = each.value
            elif decides_form(name, signal):
                reference = read_reference(each.value)
                if large is None or reference is None:
                    return None
                try:
                    values[name] = await large.fetch(record.id, reference[1])
                except (ResultDamaged, ResultExpired, StateUnavailable):
                    return None
        return values

    async def _wake(self, job_id: str, signal: JobSignal, *, by: By) -> None:
        """Make a job due that waits for the signal.

        Raises:
            JobConflict: it changed at the same time in each try.
        """
        record = await self._store.get(job_id)
        for _ in range(_TRIES):
            if record.state in UNDERWAY or not is_awaited(signal.name, record.suspension):
                # Its next run gets the signal with its message, or has done.
                return
            with suppress(JobConflict):
                await self._store.edit(record, "retry", version=record.version, by=by, note=f"signal {signal.name!r}")
                return
            record = await self._store.get(job_id)
        raise JobConflict(
            f"job {name_of(record)} keeps signal {signal.name!r}, but changed {_TRIES} times while being woken: "
            f"send it again with signal_id={signal.id!r}",
            state=record.state,
            version=record.version,
        )

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
        """Run a job now. A waiting job becomes due; an ended job runs again. Concurrent calls run it once.

        A job that runs again first waits for those of its dependencies that also run again. Jobs that ended because
        of its end (`skipped`, `upstream_failed`) wait for the new run; `reattached` of the answer counts them.

        Args:
            mode: how an ended job runs again. `resume`: the same job continues with its next attempt and its saved
                steps; its retries count anew. `new`: a new job repeats it from the start, and each names the other.
                Default: `resume` if its submitter chose its id and it neither succeeded nor was cancelled while
                running, else `new`.
            again: also run a job that another job already repeats.
            new_id: id of the new job (mode `new`); default: chosen by the store. Repeating the call with the same id
                returns the same job.

        Raises:
            JobConflict: another job already repeats it; it cannot resume; it never ran because a dependency
                failed, and that one was not retried; or it is a step of a run, which only a redrive repeats.
            QuotaExceeded: its tenant or owner has exhausted a quota. A resumed job does not count.
        """
        record = check_stored(await self._store.read(of_tenant(job, tenant)))
        if not record.state.is_final:
            await self._edit("retry", record, version=version, by=by, note=note)
            return self._names.handle(record)
        _check_repeatable(record)
        if mode is None:
            mode = default_mode(record) if new_id is None else "new"
        if mode == "resume":
            if new_id is not None:
                raise InvalidOption(f"new_id={new_id!r}: with mode='resume' the job keeps its id")
            live = await self._store.resume(record, version=version, again=again, by=by, note=note)
            return self._names.handle(record, reattached=live.reattached)
        if new_id is not None:
            check_chosen_id(new_id, tenant=record.tenant, what="new_id")
        now = self._sessions.clock.now_ms()
        upstream = await resolve_upstream_again(record, self._sessions.store().get)
        copy = clone_job(record, job_id=new_id, now=now, due=now, depends_on=upstream)
        existing, reattached = await self._store.repeat(record, copy, version=version, again=again, by=by, note=note)
        return self._names.handle(copy, existing, reattached=reattached)

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
        """Submit another job of the same task, linked to this one.

        Args:
            new_id: its id; default: chosen by the store.
            at: when it should run; default: now.
            owner, priority: default: those of the original job.
            args, kwargs: replace all its arguments; default: the same arguments.

        Raises:
            InvalidArguments: the arguments do not match the task's signature.
        """
        record = check_stored(await self._store.read(of_tenant(job, tenant)))
        if new_id is not None:
            check_chosen_id(new_id, tenant=record.tenant, what="new_id")
        now = self._sessions.clock.now_ms()
        due = now if at is None else instant_ms(at, what="at")
        class_of(priority)
        call = None
        if args is not None or kwargs is not None:
            call = await self._store.encode_call(record, args or (), kwargs or {})
        copy = clone_job(record, job_id=new_id, now=now, due=due, owner=owner, call=call, priority=priority)
        return self._names.handle(copy, (await self._store.submissions.submit(copy)).existing)

    clone = blocking(aclone)

    async def _edit(self, action: Action, job: JobRef, *, version: int | None, by: By, note: str) -> JobRecord:
        return await self._store.edit(job, action, version=version, by=by, note=note)


def _check_repeatable(record: JobRecord) -> None:
    """Check that an ended job may run again on its own.

    Raises:
        JobConflict: it is a step of a run, whose other steps would not wait for its repetition.
    """
    if record.detail is not None and record.detail.step_of:
        run = record.detail.step_of.rpartition("/")[0]
        raise JobConflict(
            f"job {record.key or record.id} is a step of run {run}: run it again with `taskmq run redrive {run}`",
            state=str(record.state),
            version=record.version,
        )
