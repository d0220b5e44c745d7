"""Actions on the stored jobs that one caller may see.

The HTTP API and other programs that serve several tenants use this module, so no handler has to compare tenants.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Unpack

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor, AuditFilter
from taskmq.contracts.jobs import JobRecord
from taskmq.errors import (
    InvalidOption,
    JobConflict,
    NotPermitted,
    TaskMQError,
)
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.dependencies import generations
from taskmq.operations.job_orders import JobOrder, JobOutcomes, SubmitOutcome
from taskmq.operations.visible_jobs import VisibleJobs, build_not_found
from taskmq.stored_jobs.change import JobRef
from taskmq.stored_jobs.job_changes import ChangeOptions
from taskmq.stored_jobs.new_jobs import default_mode

_TRIES: Final = 20
# A repeated request follows the first one soon, with few other retries in between.
_MOST_RETRIES: Final = 100


class _AuditedChange(msgspec.Struct):
    """The changed fields of an audit entry."""

    after: dict[str, Any] | None = None


class TenantJobs(VisibleJobs):
    """The jobs that a caller may see, and the actions on them.

    Besides the errors of `VisibleJobs`, methods that change a job raise `JobConflict` if its state or version forbids
    the action, and `NotPermitted` if the caller may not call its task.

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
        super().__init__(app, tenant)
        self._allows = allows
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

    async def _read(self, job: JobRef) -> JobRecord:
        """Return the record of a job, reading it only if an id is given."""
        if isinstance(job, str):
            return await self.get(job)
        if self._tenant not in (None, job.tenant):
            raise build_not_found(job.id)
        return job

    async def _read_own(self, job: JobRef) -> JobRecord:
        """Return the record of a job that the caller may change."""
        record = await self._read(job)
        self._check_task(record.task)
        return record

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
