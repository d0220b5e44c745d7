"""Stored jobs that one caller may see: those of one tenant or of all tenants.

The HTTP API and other programs that serve several tenants use this module, so no handler has to compare tenants.
Another tenant's job is reported as unknown, whether it is requested by id or by key.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Unpack

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.client.progress import JobProgress
from taskmq.contracts.history import LogStore, history_of
from taskmq.contracts.identity import Actor, AuditFilter
from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobPage, JobRecord, StateCounts
from taskmq.errors import (
    EncodeError,
    InvalidOption,
    JobConflict,
    JobNotFound,
    NotPermitted,
    ResultTimeout,
    StateUnavailable,
    TaskMQError,
    UnsupportedFeature,
)
from taskmq.model.history.logs import LogFilter, LogPage
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.dependencies import generations
from taskmq.model.jobs.filter_text import may_have_times, parse_filter
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.jobs.pools import known_reason
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.model.values.wire_form import encode_json
from taskmq.operations.job_orders import JobOrder, JobOutcomes, SubmitOutcome
from taskmq.operations.jobs import progress_of_jobs
from taskmq.stored_jobs.change import JobRef
from taskmq.stored_jobs.explanations import Explanation, explain_job
from taskmq.stored_jobs.job_changes import ChangeOptions
from taskmq.stored_jobs.new_jobs import default_mode, name_of

_LONGEST_ID: Final = 600
_NAMED: Final = 3
_PATIENCE: Final = 1.0
_TRIES: Final = 20
# A repeated request follows the first one soon, with few other retries in between.
_MOST_RETRIES: Final = 100


class _AuditedChange(msgspec.Struct):
    """The changed fields of an audit entry."""

    after: dict[str, Any] | None = None


class TenantJobs:
    """The jobs that a caller may see, and the actions on them.

    Every method raises `JobNotFound` if there is no such job or it belongs to another tenant, `JobConflict` if the
    job's state or version forbids the action, `StoreUnavailable`, and `UnsupportedFeature` if the app has no store.
    Methods that change a job raise `NotPermitted` if the caller may not call its task.

    Args:
        tenant: tenant that owns the jobs; "" means jobs without a tenant, None means all.
        by: the actor, for the history and as owner. Changes by an `Actor` are also audited.
        allows: whether the caller may call a task of that name.
        is_at_app: whether the caller has access to the app itself, and may set other owners and queues.
    """

    def __init__(
        self,
        app: TaskMQ,
        tenant: str | None,
        *,
        by: str | Actor,
        allows: Callable[[str], bool] = lambda _: True,
        is_at_app: bool = False,
    ) -> None:
        self._allows = allows
        self._app = app
        self._jobs = app.jobs
        self._tenant = tenant
        self._by = by
        self._is_at_app = is_at_app

    async def submit(self, order: JobOrder) -> SubmitOutcome:
        """Submit one job. It is durable when this returns.

        Raises:
            UnknownTask: there is no task or definition of that name.
            NotPermitted: the caller may not call the task.
            InvalidArguments, InvalidOption, EncodeError, TooLarge: nothing was stored.
            JobConflict: the id belongs to a job with different content.
            JobNotFound: it depends on a job that the caller's tenant does not have.
        """
        options: dict[str, Any] = {**order.options, "owner": order.options.get("owner") or self._name}
        if self._tenant:
            options["tenant"] = self._tenant
        named = await self._jobs.find_call(order.task, tenant=self._tenant)
        self._check_task(named.task)
        if not self._is_at_app and options.get("queue") not in (None, named.queue):
            raise InvalidOption(f"task {named.task!r} always uses queue {named.queue!r}: leave the queue out")
        if not self._is_at_app and options["owner"] != self._name:
            raise InvalidOption(f"owner {options['owner']!r} is another user: leave it out, or name yourself")
        options["depends_on"] = [((await self.get(name)).id, condition) for name, condition in order.upstream]
        _, answer = await self._jobs.submit_by_name(
            named, order.args, order.kwargs, options, derived_id=order.derived_id
        )
        name = order.derived_id or options.get("job_id")
        definition = named.definition
        return SubmitOutcome(
            str(name or answer.id),
            answer.id,
            answer.is_new,
            answer.state,
            answer.version,
            task=named.task,
            queue=options.get("queue") or named.queue,
            definition="" if definition is None else definition.name,
            definition_version=0 if definition is None else definition.version,
        )

    async def submit_many(self, orders: Sequence[JobOrder]) -> JobOutcomes:
        """Submit jobs independently of each other. Returns their outcomes in order.

        A job may depend on another one of the list by its `job_id`; that one is then submitted first. Circular
        dependencies are refused.
        """
        names = {
            str(order.options["job_id"]): index for index, order in enumerate(orders) if "job_id" in order.options
        }
        upstream = {
            str(index): [str(names[name]) for name, _ in order.upstream if name in names]
            for index, order in enumerate(orders)
        }
        groups, circular = generations(upstream)
        outcomes: dict[str, SubmitOutcome | TaskMQError] = {
            index: InvalidOption("depends_on: the job depends on itself, directly or through others")
            for index in circular
        }
        for group in groups:
            outcomes |= zip(
                group, await asyncio.gather(*(self._attempt(orders[int(index)]) for index in group)), strict=True
            )
        return [outcomes[str(index)] for index in range(len(orders))]

    async def _attempt(self, order: JobOrder) -> SubmitOutcome | TaskMQError:
        try:
            return await self.submit(order)
        except TaskMQError as error:
            return error

    def name_of(self, record: JobRecord) -> str:
        """Return the caller's id of the job: the id that its submitter chose, else the store's."""
        if record.key is None:
            return record.id
        return record.key if self._tenant is not None else tenant_key(record.tenant or None, record.key)

    async def get(self, job_id: str) -> JobRecord:
        """Return the job of that id, with its body and result."""
        if "\0" in job_id or len(job_id) > _LONGEST_ID:
            raise _build_not_found(job_id)
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
            raise _build_not_found(job_id, await self._hint(job_id))
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

    async def _read(self, job: JobRef) -> JobRecord:
        """Return the record of a job, reading it only if an id is given."""
        if isinstance(job, str):
            return await self.get(job)
        if self._tenant not in (None, job.tenant):
            raise _build_not_found(job.id)
        return job

    async def _read_own(self, job: JobRef) -> JobRecord:
        """Return the record of a job that the caller may change."""
        record = await self._read(job)
        self._check_task(record.task)
        return record

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

    async def change(
        self, job: JobRef, *, version: int | None = None, note: str = "", **changes: Unpack[ChangeOptions]
    ) -> JobRecord:
        """Change a job that no worker has received yet; see `taskmq.stored_jobs.Jobs.change`."""
        record = await self._read_own(job)
        return await self._jobs.achange(record, version=version, by=self._by, note=note, **changes)

    async def cancel(self, job: JobRef, *, version: int | None = None, note: str = "") -> JobRecord:
        """Cancel a job and return it. If a worker has it, the worker is asked to stop it."""
        record = await self._read_own(job)
        return await self._jobs.acancel(record, version=version, by=self._by, note=note)

    async def hold(self, job: JobRef, *, version: int | None = None, note: str = "") -> JobRecord:
        """Hold a waiting job until it is released."""
        record = await self._read_own(job)
        return await self._jobs.ahold(record, version=version, by=self._by, note=note)

    async def release(self, job: JobRef, *, version: int | None = None, note: str = "") -> JobRecord:
        """Release a held job; it runs at its time."""
        record = await self._read_own(job)
        return await self._jobs.arelease(record, version=version, by=self._by, note=note)

    async def signal(self, job: JobRef, name: str, value: Any, *, signal_id: str | None = None) -> str:
        """Send a signal to a job; return the id of the signal."""
        record, by = await self._read(job), self._by
        if isinstance(by, str):
            return await self._jobs.asignal(record, name, value, signal_id=signal_id, by=by)
        facts: dict[str, object] = {"signal": name, "signal_id": signal_id}
        # Audited beforehand, because the transaction that saves a value cannot write audit entries.
        entry = by.entry("job.signal", kind="job", subject=record.id, tenant=record.tenant, after=facts)
        await self._app.sessions.store().identity.audit.add([entry])
        return await self._jobs.asignal(record, name, value, signal_id=signal_id, by=by.user)

    async def retry(
        self,
        job: JobRef,
        *,
        version: int | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        key: str | None = None,
        note: str = "",
    ) -> JobRecord:
        """Run a job now; see `taskmq.stored_jobs.Jobs.retry`. Returns the job that runs.

        Args:
            key: idempotency key of a request by an `Actor`. A repeated request changes nothing, whatever the job's
                state is by then. If another job repeats this one, it gets the key as its id.
        """
        record = await self._read_own(job)
        if key is None or isinstance(self._by, str):
            return await self._retry(record, self._by, version=version, mode=mode, again=again, key=key, note=note)
        by = replace(self._by, key=key)
        for _ in range(_TRIES):
            if (same := await self._find_retried(record, key)) is not None:
                return same
            expected = record.version if version is None else version
            try:
                after = await self._retry(record, by, version=expected, mode=mode, again=again, key=key, note=note)
            except JobConflict as error:
                if version is not None or error.version == record.version:
                    raise
                # The job changed since it was read, perhaps by the same request.
                record = await self.get(record.id)
                continue
            if (after.id, after.version) == (record.id, record.version):
                # It was already waiting to run. Without this entry, repeating the request later would run it again.
                entry = by.entry("job.retry", kind="job", subject=record.id, tenant=record.tenant)
                await self._app.sessions.store().identity.audit.add([entry])
            return after
        raise JobConflict(
            f"job {self.name_of(record)} changed {_TRIES} times while it was retried; try again",
            state=str(record.state),
            version=record.version,
        )

    async def _retry(
        self,
        record: JobRecord,
        by: str | Actor,
        *,
        version: int | None,
        mode: RetryMode | None,
        again: bool,
        key: str | None,
        note: str,
    ) -> JobRecord:
        mode = mode or default_mode(record)
        new_id = key if mode == "new" else None
        ran = await self._jobs.aretry(
            record, version=version, mode=mode, again=again, new_id=new_id, by=by, note=note
        )
        return replace(await self._jobs.aget(ran.id), reattached=ran.reattached)

    async def _find_retried(self, record: JobRecord, key: str) -> JobRecord | None:
        """Return the job that a request with this key ran, by the audit log; None if there was none."""
        audit = self._app.sessions.store().identity.audit
        which = AuditFilter(action="job.retry", kind="job", subject=record.id)
        page = await audit.entries(EVERYTHING_OF_ALL, which, limit=_MOST_RETRIES)
        for entry in page.entries:
            after = msgspec.json.decode(entry.what or b"{}", type=_AuditedChange).after or {}
            if after.get("key") == key:
                return await self.get(str(after.get("retried_as") or record.id))
        return None

    async def clone(
        self,
        job: JobRef,
        *,
        new_id: str | None = None,
        at: datetime | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> JobRecord:
        """Submit another job of the same task, linked to this one and owned by the caller.

        Args:
            args, kwargs: replace all its arguments; default: the same arguments.
        """
        record = await self._read_own(job)
        changes: dict[str, Any] = {"args": args, "kwargs": kwargs, "priority": priority}
        changes = {name: value for name, value in changes.items() if value is not None}
        if isinstance(self._by, Actor):
            # Audited beforehand, because the submitting transaction cannot write audit entries.
            facts: dict[str, Any] = {} if new_id is None else {"new_id": new_id}
            if changes:
                # Only the names: arguments never reach the audit log.
                facts["changed"] = ", ".join(changes)
            entry = self._by.entry("job.clone", kind="job", subject=record.id, tenant=record.tenant, after=facts)
            await self._app.sessions.store().identity.audit.add([entry])
        made = await self._jobs.aclone(record, new_id=new_id, at=at, owner=self._name, **changes)
        return await self._jobs.aget(made.id)

    @property
    def _name(self) -> str:
        """Name of the caller."""
        return self._by if isinstance(self._by, str) else self._by.user

    def _check_task(self, task: str) -> None:
        if not self._allows(task):
            raise NotPermitted(f"you are not permitted to call task {task!r}")


def _redact_entry(entry: HistoryEntry, tenant: str) -> HistoryEntry:
    """Return the entry with only what the tenant may know."""
    is_about_others = entry.kind in {"preempt_requested", "preempted"}
    return replace(entry, note=known_reason(entry.note, tenant)) if is_about_others else entry


def _build_not_found(job_id: str, hint: str = "") -> JobNotFound:
    return JobNotFound(f"no job is called {job_id[:_LONGEST_ID]!r}{'; ' if hint else ''}{hint}")
