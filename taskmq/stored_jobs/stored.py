"""What an app does with jobs of the store: one decision at a time, compared and set."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from taskmq.client.large_values import REFERENCE
from taskmq.client.session import Session
from taskmq.client.sessions import Sessions
from taskmq.contracts.identity import Actor
from taskmq.contracts.jobs import JobRecord, JobUpdate, Lane, NewJob, Submitted
from taskmq.contracts.stores import ErrorRecord, ResultRecord
from taskmq.errors import (
    DuplicateJob,
    InvalidOption,
    JobConflict,
    JobNotFound,
    QuotaExceeded,
    ResultDamaged,
    StateUnavailable,
    StoreUnavailable,
    TooLarge,
)
from taskmq.middleware.chain import Sending
from taskmq.model.codec import Signature
from taskmq.model.envelope import JSON, LAST_INSTANT, VERSION, decode_envelope, encode_envelope
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.changes import Action, Decision, Refusal, decide, needs_time, resumption_refusal
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency
from taskmq.model.jobs.quotas import QuotaExcess
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.model.states import JobState
from taskmq.model.units import to_datetime
from taskmq.stored_jobs.dependencies import check_refusal, upstream_again, upstream_of
from taskmq.stored_jobs.group_commit import GroupCommit
from taskmq.stored_jobs.lane_announcer import LaneAnnouncer
from taskmq.stored_jobs.new_jobs import name_of, resumed_body
from taskmq.stored_jobs.task_catalogue import RegisteredSignature

__all__ = ["NOTHING", "By", "Change", "JobRef", "StoredJobs", "id_of", "instant_ms", "of_tenant", "require_taken"]

T = TypeVar("T")

By = str | Actor
"""Who changes a job: a name, or one whose changes are in the audit as well."""

JobRef = str | JobRecord
"""A job, by its id or as `get` has returned it: then it is read again only where that does not lead to a change."""

# Another caller may change the job at the same moment; each attempt has one winner.
_TRIES: Final = 20


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different about a job. What is unset stays as it is.

    Attributes:
        due: ms since the epoch.
        call: its arguments: positional ones, and those by name; encoded, once it is known how its task is called.
    """

    due: int | msgspec.UnsetType = msgspec.UNSET
    expires: int | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    queue: str | msgspec.UnsetType = msgspec.UNSET
    call: tuple[Any, Any] | msgspec.UnsetType = msgspec.UNSET

    def words(self, record: JobRecord) -> str:
        """Each field that it changes, from and to what; of arguments only that they are others."""
        changed = [
            f"{name} {_shown(name, getattr(record, name))} -> {_shown(name, after)}"
            for name in ("due", "expires", "priority", "queue")
            if (after := getattr(self, name)) is not msgspec.UNSET
        ]
        return ", ".join(changed if self.call is msgspec.UNSET else [*changed, "arguments"])


def _shown(name: str, value: Any) -> str:
    if value is None or name not in ("due", "expires"):
        return str(value)
    return to_datetime(value).isoformat(timespec="seconds")


NOTHING: Final = Change()


class _Ways(NamedTuple):
    """How one session's jobs come into the store, and its schedulers hear of them."""

    commit: GroupCommit
    lanes: LaneAnnouncer


class StoredJobs:
    """Asks the store of the running loop's session.

    Args:
        signature_of: how a task is called, by its name; None where it is unknown.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        signature_of: Callable[[str], Awaitable[Signature | RegisteredSignature | None]],
    ) -> None:
        self._sessions = sessions
        self._signature_of = signature_of
        self._by_session: WeakKeyDictionary[Session, _Ways] = WeakKeyDictionary()

    @property
    def has_store(self) -> bool:
        """Whether the app has one."""
        return self._sessions.current().store is not None

    async def submit(self, job: NewJob, *, connection: Any = None) -> Submitted:
        """Keep one job; together with those of other callers, unless it is kept by the caller's own transaction.

        That another one has its unique key is for the caller to see.

        Raises:
            JobConflict: its id is that of another job.
            QuotaExceeded: there is no room for it.
            StoreUnavailable: the store could not be reached.
            TooLarge: the broker could not carry it.
        """
        job = await self._light(job)
        self._check_sizes([job])
        if connection is not None:
            (answer,) = await self._sessions.store().submit([job], connection=connection)
        else:
            answer = await self._ways().commit.submit(job)
        check_refusal(answer, name_of(job))
        return require_taken(job, answer)

    async def submit_all(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        """Keep many; what became of each. A conflict or a duplicate is the caller's to look for."""
        if self._sessions.current().arguments is not None:
            jobs = [await self._light(job) for job in jobs]
        self._check_sizes(jobs)
        if connection is not None:
            return await self._sessions.store().submit(jobs, connection=connection)
        return await self._ways().commit.submit_many(jobs)

    async def _light(self, job: NewJob) -> NewJob:
        """The job, with a reference to its arguments where they are large."""
        body = await self._lightened(job.body, job_id=job.id, due=job.due)
        return job if body is job.body else msgspec.structs.replace(job, body=body)

    async def _lightened(self, body: bytes, *, job_id: str, due: int) -> bytes:
        arguments = self._sessions.current().arguments
        if arguments is None or not arguments.may_be_large(body):
            return body
        try:
            return await arguments.lighten(body, JSON, job_id=job_id, due=due)
        except StateUnavailable as error:
            raise StoreUnavailable(f"nothing was changed: {error}") from error

    def _check_sizes(self, jobs: Sequence[NewJob]) -> None:
        limit = self._sessions.current().broker.max_message_bytes
        for job in jobs:
            if len(job.body) > limit:
                raise TooLarge(len(job.body), limit, f"job {job.key or job.id} of task {job.task}")

    def _ways(self) -> _Ways:
        """Those of the running loop's session."""
        session = self._sessions.current()
        found = self._by_session.get(session)
        if found is None:
            lanes = LaneAnnouncer(self._sessions.store(), session.announcer)
            session.before_close(lanes.announce)
            commit = GroupCommit(self._sessions.store(), committed=lambda jobs: lanes.ready(self._lanes_of(jobs)))
            found = self._by_session[session] = _Ways(commit, lanes)
        return found

    def _lanes_of(self, jobs: Sequence[NewJob]) -> set[Lane]:
        """Those in which jobs are ready."""
        now = self._sessions.clock.now_ms()
        return {Lane(job.queue, job.priority, job.tenant) for job in jobs if job.due <= now and not job.held}

    async def given(self, sending: Sending, answer: Submitted, *, connection: Any = None) -> str:
        """What the job is called that a caller gets for a call.

        Raises:
            DuplicateJob: another job has the key, and the task's calls are refused then.
            QuotaExceeded: there is no room for it.
        """
        if answer.exceeded is not None:
            raise _exceeded(sending.envelope.task, answer.exceeded)
        if not answer.is_duplicate or sending.unique is None:
            return sending.envelope.id
        record = await self.find(answer.id, connection=connection)
        # The one in the way may have been erased since.
        name = answer.id if record is None else name_of(record)
        if sending.unique.rule.policy in ("existing", "throttle"):
            return name
        raise DuplicateJob(sending.envelope.task, job_id=name)

    async def upstream(
        self, depends_on: Sequence[tuple[str, DependencyCondition]], *, connection: Any = None
    ) -> tuple[JobDependency, ...]:
        """Return what a job waits for, by the store's ids; also jobs that the caller's own transaction has submitted.

        Raises:
            InvalidOption, JobNotFound: see `upstream_of`.
        """
        return await upstream_of(depends_on, partial(self.find, connection=connection)) if depends_on else ()

    async def find(self, job_id: str, *, connection: Any = None) -> JobRecord | None:
        """Find a job by the store's id, or by the one that its submitter chose; with its tenant's mark by either.

        Args:
            connection: of the caller's own transaction, which sees its own jobs before others do.
        """
        store = self._sessions.store()
        if (record := await store.get(job_id, connection=connection)) is not None:
            return record
        tenant, key = split_tenant_key(job_id)
        if (found := await store.find_key(tenant, key, connection=connection)) is not None:
            return await store.get(found, connection=connection)
        record = None if key == job_id else await store.get(key, connection=connection)
        return record if record is not None and record.tenant == tenant else None

    async def get(self, job_id: str) -> JobRecord:
        """Return the job, as `find` does.

        Raises:
            JobNotFound: there is none.
        """
        if (record := await self.find(job_id)) is None:
            raise JobNotFound(f"the store has no job {job_id!r}: it was never submitted, or is not kept any more")
        return record

    async def read(self, job: JobRef) -> JobRecord:
        """The job as it was read with its arguments, which lists leave out; else `get` of its id."""
        return job if isinstance(job, JobRecord) and job.body else await self.get(id_of(job))

    async def redeemed(self, record: ResultRecord) -> ResultRecord:
        """The record with its value, also where that is kept elsewhere.

        Raises:
            ResultDamaged, ResultExpired, StateUnavailable: there is none, or it cannot be fetched.
        """
        if record.content_type == REFERENCE:
            raise ResultDamaged(f"what is kept as the result of job {record.job_id} refers to nothing")
        large = self._sessions.current().large_values
        if large is None or record.blob is None:
            return record
        return msgspec.structs.replace(record, value=await large.fetch(record.job_id, record.blob), blob=None)

    async def edit(
        self,
        job: JobRef,
        action: Action,
        *,
        version: int | None = None,
        change: Change = NOTHING,
        now: int | None = None,
        by: By = "",
        note: str = "",
    ) -> JobRecord:
        """Do what an operator asks for; the job afterwards.

        Args:
            version: that the job must have; None: whichever it has.
            now: the store's time in ms, where it is known.
            by: who; what an `Actor` does is in the audit, too.

        Raises:
            JobNotFound: there is no such job.
            JobConflict: its state does not allow it, or its version is another one.
            InvalidArguments: they do not fit its task.
        """
        store = self._sessions.store()
        record = await self.read(job)
        is_read = record is not job
        change = await self._encoded(record, change)
        if now is None and needs_time(action, is_moved=change.due is not msgspec.UNSET):
            now = await store.now_ms()
        for _ in range(_TRIES):
            due = record.due if change.due is msgspec.UNSET else change.due
            decision = decide(action, record.state, due=due, now=now)
            if version is not None and record.version != version:
                decision = Refusal(f"has version {record.version} and not {version}: look at it again")
            if isinstance(decision, Refusal):
                if is_read:
                    raise _conflict(record, decision.reason)
            elif _is_nothing(decision, record, action, change):
                if is_read:
                    return record
            else:
                update = self._update(record, decision, action, change, now=now, by=by, note=note)
                if update.body is not msgspec.UNSET:
                    body = await self._lightened(update.body, job_id=record.id, due=due)
                    update = msgspec.structs.replace(update, body=body)
                if (after := await store.update(update)) is not None:
                    if after.state is JobState.QUEUED:
                        self._ways().lanes.ready([Lane(after.queue, after.priority, after.tenant)])
                    return after
            # It has changed, or may have since the caller read it.
            record = await self.get(record.id)
            is_read = True
        raise _conflict(record, "changes faster than it can be changed; try again")

    async def repeat(
        self, record: JobRecord, copy: NewJob, *, version: int | None, again: bool, by: By, note: str
    ) -> JobState | None:
        """Keep a job that repeats one which has ended, and note there that it does.

        Return the state of the one that the same request has made before, if it has.

        Args:
            version: that the job which has ended must have; None: whichever it has.
            again: also where another one repeats it already.

        Raises:
            JobConflict: its version is another one, or another job repeats it.
            QuotaExceeded: there is no room for it.
        """
        store = self._sessions.store()
        copy = await self._light(copy)
        self._check_sizes([copy])
        for _ in range(_TRIES):
            if record.retried_as and not again and (same := await self._same(copy, record.retried_as)) is not None:
                return same.state
            await self._check_open(record, version=version, again=again)
            update = JobUpdate(
                id=record.id,
                before=record.state,
                version=record.version,
                after=record.state,
                kind="retry",
                by=_user(by),
                note=note,
                audit=None if isinstance(by, str) else _retried(record, {"retried_as": copy.id}, by=by, note=note),
            )
            if (answer := await store.retry(copy, update)) is not None:
                check_refusal(answer, name_of(copy))
                if require_taken(copy, answer).is_new:
                    self._ways().lanes.ready(self._lanes_of([copy]))
                return answer.existing
            # It has changed, or has since the caller read it.
            record = await self.get(record.id)
        raise _conflict(record, "changes faster than it can be retried; try again")

    async def _same(self, copy: NewJob, job_id: str) -> JobRecord | None:
        """Return the job of this id, if the same request has made it."""
        store = self._sessions.store()
        if copy.key is None or await store.find_key(copy.tenant, copy.key) != job_id:
            return None
        return await store.get(job_id)

    async def resume(self, record: JobRecord, *, version: int | None, again: bool, by: By, note: str) -> JobRecord:
        """Let a job go on that has ended; the job afterwards. One that lives by now is to run now.

        Args:
            version: that it must have; None: whichever it has.
            again: also where another job repeats it already.

        Raises:
            JobConflict: it cannot go on, its version is another one, another job repeats it, or what it waited for
                was not retried.
        """
        store = self._sessions.store()
        for _ in range(_TRIES):
            if not record.state.is_final:
                return await self.edit(record, "retry", version=version, by=by, note=note)
            await self._check_open(record, version=version, again=again)
            refusal = resumption_refusal(record.state, was_asked_to_end=record.cancel_requested is not None)
            if refusal is not None:
                raise _conflict(record, refusal.reason)
            now = await store.now_ms()
            update = JobUpdate(
                id=record.id,
                before=record.state,
                version=record.version,
                after=JobState.QUEUED,
                due=now,
                body=await self._lightened(resumed_body(record), job_id=record.id, due=now),
                depends_on=await upstream_again(record, store.get),
                kind="retry",
                by=_user(by),
                note=note,
                audit=None if isinstance(by, str) else _retried(record, {"mode": "resume"}, by=by, note=note),
            )
            if (after := await store.update(update)) is not None:
                if after.state is JobState.QUEUED:
                    self._ways().lanes.ready([Lane(after.queue, after.priority, after.tenant)])
                return after
            # It has changed, or has since the caller read it.
            record = await self.get(record.id)
        raise _conflict(record, "changes faster than it can be retried; try again")

    async def _check_open(self, record: JobRecord, *, version: int | None, again: bool) -> None:
        """See that a job that has ended may be retried.

        Raises:
            JobConflict: another job repeats it, or its version is not this one.
        """
        if record.retried_as and not again:
            raise _conflict(record, await self._repetition(record.retried_as))
        if version is not None and record.version != version:
            raise _conflict(record, f"has version {record.version} and not {version}: look at it again")

    async def _repetition(self, job_id: str) -> str:
        """Why a job is not retried which this one repeats, as the end of a sentence that begins with the job."""
        found = await self._sessions.store().get(job_id)
        known = "which is not kept any more" if found is None else f"which is {found.state}"
        name = job_id if found is None else found.key or job_id
        return f"was retried as job {name}, {known}: retry that one, or say that this one is to run again"

    async def _encoded(self, record: JobRecord, change: Change) -> Change:
        """The change with its arguments in their wire form."""
        if change.call is msgspec.UNSET:
            return change
        return msgspec.structs.replace(change, call=await self.encoded_call(record, *change.call))

    async def encoded_call(
        self, record: JobRecord, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[msgspec.Raw, msgspec.Raw]:
        """Other arguments for the task of a job, in their wire form.

        Raises:
            InvalidArguments, EncodeError: they do not fit the task.
            InvalidOption: neither the app nor a worker has the task.
        """
        if (signature := await self._signature_of(record.task)) is None:
            raise InvalidOption(
                f"job {record.id}: neither the app nor a worker has its task {record.task!r}, so its arguments stay"
            )
        return signature.encode(tuple(args), dict(kwargs), JSON)

    def _update(
        self,
        record: JobRecord,
        decision: Decision,
        action: Action,
        change: Change,
        *,
        now: int | None,
        by: By,
        note: str,
    ) -> JobUpdate:
        is_end = decision.state is JobState.CANCELLED
        reason = note or "cancelled by an operator"
        return JobUpdate(
            id=record.id,
            before=record.state,
            version=record.version,
            after=decision.state,
            due=now if decision.is_due and now is not None else change.due,
            expires=change.expires,
            priority=change.priority,
            queue=change.queue,
            body=self._body(record, change),
            cancel_requested=reason if decision.is_request else msgspec.UNSET,
            error=ErrorRecord(type_name="JobCancelled", message=reason, traceback="") if is_end else msgspec.UNSET,
            kind="cancel_requested" if decision.is_request else action,
            by=_user(by),
            note="; ".join(filter(None, (change.words(record), note))),
            audit=None if isinstance(by, str) else _entry(record, decision, action, change, by=by, note=note),
        )

    def _body(self, record: JobRecord, change: Change) -> bytes | msgspec.UnsetType:
        changes: dict[str, Any] = {}
        if change.call is not msgspec.UNSET:
            changes["args"], changes["kwargs"] = change.call
            changes["v"], changes["blob"] = VERSION, None
        if change.priority is not msgspec.UNSET:
            changes["priority"] = change.priority
        if change.expires is not msgspec.UNSET:
            changes["expires"] = change.expires
        if not changes:
            return msgspec.UNSET
        envelope = decode_envelope(record.body)
        return encode_envelope(msgspec.structs.replace(envelope, **changes))


def id_of(job: JobRef) -> str:
    """The id by which it is found."""
    return job if isinstance(job, str) else job.id


def of_tenant(job: JobRef, tenant: str | None) -> JobRef:
    """The job, by a name that is its tenant's where one is given.

    Raises:
        JobNotFound: it was read before, and is another tenant's.
    """
    if isinstance(job, str):
        return tenant_key(tenant, job)
    if tenant in (None, job.tenant):
        return job
    raise JobNotFound(f"tenant {tenant!r} has no job {job.key or job.id!r}")


def instant_ms(moment: datetime, *, what: str) -> int:
    """Milliseconds since the epoch, within what an envelope can hold.

    Raises:
        InvalidOption: it has no time zone.
    """
    if moment.tzinfo is None:
        raise InvalidOption(f"{what}={moment!r}: a datetime with a time zone, for example datetime.now(UTC)")
    return min(max(round(moment.timestamp() * 1000), 0), LAST_INSTANT)


def _entry(
    record: JobRecord, decision: Decision, action: Action, change: Change, *, by: Actor, note: str
) -> AuditEntry:
    """Of the audit: never with arguments, which are for the task alone."""
    after: dict[str, Any] = {"state": str(decision.state)}
    if action == "change":
        after["changed"] = change.words(record)
    return msgspec.structs.replace(by, note=note or by.note).entry(
        f"job.{action}",
        kind="job",
        subject=record.id,
        tenant=record.tenant,
        before={"state": str(record.state), "version": record.version},
        after=after,
    )


def _retried(record: JobRecord, after: Mapping[str, Any], *, by: Actor, note: str) -> AuditEntry:
    """The audit's entry of a job that has ended and is run again."""
    return msgspec.structs.replace(by, note=note or by.note).entry(
        "job.retry",
        kind="job",
        subject=record.id,
        tenant=record.tenant,
        before={"state": str(record.state), "version": record.version},
        after=dict(after),
    )


def _user(by: By) -> str:
    return by if isinstance(by, str) else by.user


def _exceeded(task: str, excess: QuotaExcess) -> QuotaExceeded:
    """The error for a caller whose job has no room."""
    return QuotaExceeded(
        task,
        tenant=excess.tenant,
        user=excess.user,
        limit=excess.limit,
        most=excess.most,
        retry_after=None if excess.until is None else (excess.until - excess.now) / 1000,
    )


def require_taken(job: NewJob, answer: Submitted) -> Submitted:
    """The answer, where the store has taken the job now or before, or another one has its unique key.

    Raises:
        QuotaExceeded: there is no room for it.
        JobConflict: another job has its id.
    """
    if answer.exceeded is not None:
        raise _exceeded(job.task, answer.exceeded)
    if answer.is_same or answer.is_duplicate:
        return answer
    raise JobConflict(
        f"job {job.key!r} was submitted before, as job {answer.id} with other content; it is {answer.state}. Give "
        "this one another id",
        state=str(answer.state),
        version=answer.version,
    )


def _is_nothing(decision: Decision, record: JobRecord, action: Action, change: Change) -> bool:
    if decision.is_request:
        return record.cancel_requested is not None
    return decision.state is record.state and not decision.is_due and (action != "change" or change == NOTHING)


def _conflict(record: JobRecord, reason: str) -> JobConflict:
    name = record.key or record.id
    return JobConflict(f"job {name} {reason}", state=str(record.state), version=record.version)
