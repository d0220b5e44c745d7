"""Reads and compare-and-set changes of stored jobs, for `app.jobs`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from taskmq.client.sessions import Sessions
from taskmq.contracts.jobs import JobRecord, JobUpdate, Lane, NewJob, Submitted
from taskmq.contracts.stores import ErrorRecord, ResultRecord
from taskmq.errors import (
    DuplicateJob,
    InvalidOption,
    JobConflict,
    JobNotFound,
    ResultDamaged,
)
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import JSON, VERSION, decode_envelope, encode_envelope
from taskmq.model.jobs.changes import Action, Decision, Refusal, decide, needs_time, resumption_refusal
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency
from taskmq.model.keys import split_tenant_key
from taskmq.model.states import JobState
from taskmq.model.values.light_values import REFERENCE
from taskmq.stored_jobs.change import (
    NOTHING,
    By,
    Change,
    JobRef,
    build_entry,
    id_of,
    is_no_change,
    user_of,
)
from taskmq.stored_jobs.dependencies import check_refusal, resolve_upstream, resolve_upstream_again
from taskmq.stored_jobs.new_jobs import build_resumed_body, name_of
from taskmq.stored_jobs.recorded_jobs import RecordedJobs, check_stored
from taskmq.stored_jobs.submission.submissions import Submissions, build_quota_error, require_accepted
from taskmq.stored_jobs.task_catalogue import RegisteredSignature
from taskmq.tasks.task import Task

T = TypeVar("T")


# Several callers may change the job concurrently; each try has one winner.
_TRIES: Final = 20


class StoredJobs:
    """Jobs in the store of the running loop's session.

    Args:
        recorded: the recorded sent jobs.
        find_task: returns a task by its name, or its signature; None if unknown.
    """

    def __init__(
        self,
        sessions: Sessions,
        recorded: RecordedJobs,
        *,
        find_task: Callable[[str], Awaitable[Task[..., Any] | RegisteredSignature | None]],
    ) -> None:
        self._sessions = sessions
        self._recorded = recorded
        self._find_task = find_task
        self.submissions: Submissions = Submissions(sessions)

    @property
    def has_store(self) -> bool:
        """Whether the app has a store."""
        return self._sessions.current().store is not None

    async def job_name(self, sending: Sending, answer: Submitted, *, connection: Any = None) -> str:
        """Return the name of the job that a caller gets for a call.

        Raises:
            DuplicateJob: another job has the unique key, and the task's policy is to refuse.
            QuotaExceeded: a quota is exhausted.
        """
        if answer.exceeded is not None:
            raise build_quota_error(sending.envelope.task, answer.exceeded)
        if not answer.is_duplicate or sending.unique is None:
            return sending.envelope.id
        record = await self.find(answer.id, connection=connection)
        # The existing job may have been erased since.
        name = answer.id if record is None else name_of(record)
        if sending.unique.rule.policy in ("existing", "throttle"):
            return name
        raise DuplicateJob(sending.envelope.task, job_id=name)

    async def upstream(
        self, depends_on: Sequence[tuple[str, DependencyCondition]], *, connection: Any = None
    ) -> tuple[JobDependency, ...]:
        """Resolve dependencies to the store's ids, including jobs submitted in the caller's own transaction.

        Raises:
            InvalidOption, JobNotFound: see `resolve_upstream`.
        """
        return await resolve_upstream(depends_on, partial(self.find, connection=connection)) if depends_on else ()

    async def find(self, job_id: str, *, connection: Any = None) -> JobRecord | None:
        """Find a job by the store's id or its submitter's, each with or without the tenant's prefix.

        Args:
            connection: connection of the caller's own transaction, which sees its uncommitted jobs.
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
        """Return the job, as `find` does, else the recorded sent job of this id.

        Raises:
            JobNotFound: there is no such job.
        """
        if (record := await self.find(job_id) or await self._recorded.find(job_id)) is None:
            raise JobNotFound(f"the store has no job {job_id!r}: it was never submitted, or is no longer kept")
        return record

    async def read(self, job: JobRef) -> JobRecord:
        """Return a record with its body, reading it if needed: lists leave bodies out."""
        is_whole = isinstance(job, JobRecord) and (job.body or job.via == "broker")
        return job if isinstance(job, JobRecord) and is_whole else await self.get(id_of(job))

    async def fetch_value(self, record: ResultRecord) -> ResultRecord:
        """Return the record with its value, fetching a large value.

        Raises:
            ResultDamaged, ResultExpired, StateUnavailable: the value is missing or cannot be fetched.
        """
        if record.content_type == REFERENCE:
            raise ResultDamaged(f"the result of job {record.job_id} is a reference that cannot be resolved")
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
        """Apply an operator's action to a job. Returns the job.

        Args:
            version: version that the job must have; None: any.
            now: the store's time in ms, if known.
            by: the actor; actions of an `Actor` are audited.

        Raises:
            JobNotFound: there is no such job.
            JobConflict: the job's state forbids the action, or its version differs.
            InvalidArguments: the arguments do not match the task's signature.
        """
        store = self._sessions.store()
        record = check_stored(await self.read(job))
        is_read = record is not job
        change = await self._encode_change(record, change)
        if now is None and needs_time(action, is_moved=change.due is not msgspec.UNSET):
            now = await store.now_ms()
        for _ in range(_TRIES):
            due = record.due if change.due is msgspec.UNSET else change.due
            decision = decide(action, record.state, due=due, now=now)
            if version is not None and record.version != version:
                decision = Refusal(f"has version {record.version}, not {version}: read it again")
            if isinstance(decision, Refusal):
                if is_read:
                    raise _build_conflict(record, decision.reason)
            elif is_no_change(decision, record, action, change):
                if is_read:
                    return record
            else:
                update = self._update(record, decision, action, change, now=now, by=by, note=note)
                if update.body is not msgspec.UNSET:
                    body = await self.submissions.lighten(update.body, job_id=record.id, due=due)
                    update = msgspec.structs.replace(update, body=body)
                if (after := await store.update(update)) is not None:
                    if after.state is JobState.QUEUED:
                        self.submissions.lanes.add([Lane(after.queue, after.priority, after.tenant)])
                    return after
            # It has changed, or may have changed since the caller read it.
            record = await self.get(record.id)
            is_read = True
        raise _build_conflict(record, f"changed {_TRIES} times while it was being changed; try again")

    async def repeat(
        self, record: JobRecord, copy: NewJob, *, version: int | None, again: bool, by: By, note: str
    ) -> tuple[JobState | None, int]:
        """Submit a job that repeats an ended one, and link the two.

        Returns the state of the job that an earlier call of the same request created, if any, and the number of ended
        dependents that wait for the new job.

        Args:
            version: version that the ended job must have; None: any.
            again: also repeat a job that another job already repeats.

        Raises:
            JobConflict: the version differs, or another job already repeats it.
            QuotaExceeded: a quota is exhausted.
        """
        store = self._sessions.store()
        copy = await self.submissions.prepare(copy)
        for _ in range(_TRIES):
            if (
                record.retried_as
                and not again
                and (same := await self._find_repetition(copy, record.retried_as)) is not None
            ):
                return same.state, 0
            await self._check_open(record, version=version, again=again)
            update = JobUpdate(
                id=record.id,
                before=record.state,
                version=record.version,
                after=record.state,
                kind="retry",
                by=user_of(by),
                note=note,
                audit=build_entry(record, "retry", {"retried_as": copy.id}, by=by, note=note),
            )
            if (answer := await store.retry(copy, update)) is not None:
                check_refusal(answer, name_of(copy))
                if require_accepted(copy, answer).is_new:
                    self.submissions.announce([copy])
                return answer.existing, answer.reattached
            # It has changed, or has since the caller read it.
            record = await self.get(record.id)
        raise _build_conflict(record, f"changed {_TRIES} times while it was being retried; try again")

    async def _find_repetition(self, copy: NewJob, job_id: str) -> JobRecord | None:
        """Return the job of this id if the same request created it."""
        store = self._sessions.store()
        if copy.key is None or await store.find_key(copy.tenant, copy.key) != job_id:
            return None
        return await store.get(job_id)

    async def resume(self, record: JobRecord, *, version: int | None, again: bool, by: By, note: str) -> JobRecord:
        """Resume an ended job, and return it. A job that is not ended any more becomes due now.

        Args:
            version: version that it must have; None: any.
            again: also resume a job that another job already repeats.

        Raises:
            JobConflict: it cannot resume, its version differs, another job repeats it, or a failed dependency was not
                retried.
        """
        store = self._sessions.store()
        for _ in range(_TRIES):
            if not record.state.is_final:
                return await self.edit(record, "retry", version=version, by=by, note=note)
            await self._check_open(record, version=version, again=again)
            refusal = resumption_refusal(record.state, was_asked_to_end=record.cancel_requested is not None)
            if refusal is not None:
                raise _build_conflict(record, refusal.reason)
            now = await store.now_ms()
            update = JobUpdate(
                id=record.id,
                before=record.state,
                version=record.version,
                after=JobState.QUEUED,
                due=now,
                body=await self.submissions.lighten(build_resumed_body(record), job_id=record.id, due=now),
                depends_on=await resolve_upstream_again(record, store.get),
                kind="retry",
                by=user_of(by),
                note=note,
                audit=build_entry(record, "retry", {"mode": "resume"}, by=by, note=note),
            )
            if (after := await store.update(update)) is not None:
                if after.state is JobState.QUEUED:
                    self.submissions.lanes.add([Lane(after.queue, after.priority, after.tenant)])
                return after
            # It has changed, or has since the caller read it.
            record = await self.get(record.id)
        raise _build_conflict(record, f"changed {_TRIES} times while it was being retried; try again")

    async def _check_open(self, record: JobRecord, *, version: int | None, again: bool) -> None:
        """Check that an ended job may be retried.

        Raises:
            JobConflict: another job repeats it, or its version differs.
        """
        if record.retried_as and not again:
            raise _build_conflict(record, await self._describe_repetition(record.retried_as))
        if version is not None and record.version != version:
            raise _build_conflict(record, f"has version {record.version}, not {version}: read it again")

    async def _describe_repetition(self, job_id: str) -> str:
        """Return the reason why a job that this one repeats is not retried, as the rest of a sentence."""
        found = await self._sessions.store().get(job_id)
        known = "which is no longer kept" if found is None else f"which is {found.state}"
        name = job_id if found is None else found.key or job_id
        return f"was retried as job {name}, {known}: retry that one, or pass `again` to retry this one once more"

    async def _encode_change(self, record: JobRecord, change: Change) -> Change:
        """Return the change with its arguments in wire form."""
        if change.call is msgspec.UNSET:
            return change
        args, kwargs = change.call
        return msgspec.structs.replace(change, call=await self.encode_call(record, args, kwargs))

    async def encode_call(self, record: JobRecord, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the envelope that new arguments change.

        Raises:
            InvalidArguments, EncodeError: the arguments do not match the task's signature.
            InvalidOption: neither the app nor a worker has the task.
        """
        if (task := await self._find_task(record.task)) is None:
            raise InvalidOption(
                f"job {record.id}: its arguments cannot change, as neither the app nor a worker has task "
                f"{record.task!r}"
            )
        signature = task.signature if isinstance(task, Task) else task
        raw_args, raw_kwargs = signature.encode(tuple(args), dict(kwargs), JSON)
        limits = None
        if isinstance(task, Task) and task.limits:
            limits = task.limit_keys(*task.signature.decode(raw_args, raw_kwargs, JSON))
        return {"v": VERSION, "args": raw_args, "kwargs": raw_kwargs, "blob": None, "parts": None, "limits": limits}

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
        facts = {"state": str(decision.state)}
        if action == "change":
            facts["changed"] = change.describe(record)
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
            by=user_of(by),
            note="; ".join(filter(None, (change.describe(record), note))),
            audit=build_entry(record, action, facts, by=by, note=note),
        )

    def _body(self, record: JobRecord, change: Change) -> bytes | msgspec.UnsetType:
        changes: dict[str, Any] = {} if change.call is msgspec.UNSET else {**change.call}
        if change.priority is not msgspec.UNSET:
            changes["priority"] = change.priority
        if change.expires is not msgspec.UNSET:
            changes["expires"] = change.expires
        if not changes:
            return msgspec.UNSET
        envelope = decode_envelope(record.body)
        return encode_envelope(msgspec.structs.replace(envelope, **changes))


def _build_conflict(record: JobRecord, reason: str) -> JobConflict:
    name = record.key or record.id
    return JobConflict(f"job {name} {reason}", state=str(record.state), version=record.version)
