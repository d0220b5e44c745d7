"""`app.jobs`: the jobs of an app, in the store and on their way."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET
from msgspec.structs import replace

from taskmq.client.producer import Producer
from taskmq.client.sessions import Sessions
from taskmq.contracts.jobs import JobDetail, JobRecord, NewJob, Submitted
from taskmq.errors import DuplicateJob, InvalidOption, PartlySent, QuotaExceeded, SendError
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.codec import ReturnType
from taskmq.model.envelope import LAST_INSTANT
from taskmq.model.jobs.changes import Action
from taskmq.model.keys import check_chosen_id
from taskmq.model.nodes import JobNeeds, PlaceOptions, job_needs
from taskmq.model.states import CHANGEABLE, Cancellation
from taskmq.model.topology import check_queue_name, class_of
from taskmq.model.units import Duration, parse_duration, to_ms
from taskmq.submission.definitions import Definitions
from taskmq.submission.dependencies import DependsOn, check_refusal
from taskmq.submission.job_queries import JobQueries
from taskmq.submission.named_calls import NamedCall, NamedCalls
from taskmq.submission.new_jobs import cloned, detail_of, name_of, new_job, under_derived_id
from taskmq.submission.stored import NOTHING, By, Change, JobRef, StoredJobs, id_of, instant_ms
from taskmq.submission.task_catalogue import TaskCatalogue
from taskmq.tasks.registry import TaskRegistry
from taskmq.tasks.task import Arguments, Call, Task

__all__ = ["Jobs"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The type that a task named by a text returns is unknown.
    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")

_REMEMBERED: Final = "7d"


class Jobs(JobQueries):
    """Jobs that are submitted to the store: they can be listed, changed and cancelled for as long as they wait.

    Needs `TaskMQ(store=...)`. A job is named by the id of its handle: the store's own, or the one that its submitter
    chose (`job_id=`; with a tenant, `@acme:order-17`). What changes a job also takes the record that `get` has
    returned, and saves reading it again. Every method has a twin for coroutines, whose name begins with `a`. Each
    may raise:

    - `StoreUnavailable`: the store could not be reached. Where `is_certain` is false, a change may have been made.
    - `UnsupportedFeature`: the app has no store.

    And those that are about one job:

    - `JobNotFound`: the store has none of that id.
    - `JobConflict`: its state does not allow it, or it has another version than the caller says.

    Args:
        tasks: of the app.

    Attributes:
        catalogue: the tasks that workers and schedulers have registered.
        definitions: `app.definitions`.
    """

    def __init__(self, sessions: Sessions, *, tasks: TaskRegistry, result_ttl: Duration = "1d") -> None:
        super().__init__(sessions, plan_of=tasks.plan_of, result_ttl=result_ttl)
        self._tasks = tasks
        self.catalogue: TaskCatalogue = TaskCatalogue(lambda: self.sessions)
        self._names = NamedCalls(self, tasks, self.catalogue)
        self.definitions: Definitions = Definitions(lambda: self.sessions, self._names)

    def use_producer(self, producer: Producer) -> None:
        """Submit with what this producer sends with."""
        self._producer = producer
        self._stored = StoredJobs(lambda: self.sessions, signature_of=self._names.signature)

    def submit(
        self,
        task: "Call[..., R] | str",
        /,
        *args: Any,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        job_id: str | None = None,
        expires: Duration | datetime | None = None,
        description: str = "",
        owner: str = "",
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, object] | None = None,
        place: PlaceOptions | None = None,
        preemptible: bool | None = None,
        held: bool = False,
        depends_on: DependsOn = (),
        connection: Any = None,
        **kwargs: Any,
    ) -> Job[R]:
        """Keep one job; it is durable when this returns.

        Args:
            task: a task, one with options, or a name; called with `args` and `kwargs`. Where it has a parameter that
                is called as one of these options, give that one by its place. A name is that of one of the app's
                tasks, else of one that a worker has registered, else of a definition of the tenant: `args`, where
                there are any, replace all of that's, and `kwargs` those of the same names.
            at: when it is to run (with a time zone); or `delay`, from now on. Default: now.
            priority: 0 (lowest) to 9, among the jobs of its queue that wait in the store.
            job_id: an id of the caller's, up to 255 bytes, none that begins with "taskmq:". Submitted twice with the
                same content it is one job; with other content that is a `JobConflict`.
            expires: how long after its submission, or when, it is not to start any more.
            description, owner, labels: for people, and to find it again.
            resources: what it takes of the node that it is placed on, such as `{"cpu": 2, "memory": "4G"}`, in a
                queue with `placed=True`; default: what its task says.
            place: which nodes: `labels` that they must have, labels that it `prefers` for `patience` seconds, and
                the `gang` with which it begins, see docs/nodes.md.
            preemptible: whether a run of it may be stopped for others, see docs/scheduling.md. Default: what its task
                says.
            held: it does not run until it is released.
            depends_on: jobs of its tenant, up to 1,000, that have to end before it runs: handles or ids, of jobs that
                are to succeed, or with another condition `(job, "ended")`, `(job, "failed")`. Where one cannot meet
                it any more, the job ends: as `upstream_failed`, or, where that one was to fail, as `skipped`.
            connection: a connection or session in the caller's own transaction, where store and data are one
                database: the job is there once that commits, and is not where it does not.

        Raises:
            UnknownTask: neither the app nor the store has a task or a definition of that name.
            InvalidArguments, EncodeError, InvalidOption: nothing was kept.
            JobNotFound: so it is where the store has no job that it is to wait for.
            JobConflict: the id is that of a job with other content.
            DuplicateJob: the task is `unique`, and another job has the key.
            QuotaExceeded: its tenant or owner has submitted as much as it may; says until when.
            TooLarge: the broker could not carry it.
        """
        call = self.asubmit(
            task,
            *args,
            at=at,
            delay=delay,
            priority=priority,
            queue=queue,
            tenant=tenant,
            job_id=job_id,
            expires=expires,
            description=description,
            owner=owner,
            labels=labels,
            resources=resources,
            place=place,
            preemptible=preemptible,
            held=held,
            depends_on=depends_on,
            connection=connection,
            **kwargs,
        )
        return self.sessions.run_sync(call, instead="asubmit")

    async def asubmit(
        self,
        task: "Call[..., R] | str",
        /,
        *args: Any,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        job_id: str | None = None,
        expires: Duration | datetime | None = None,
        description: str = "",
        owner: str = "",
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, object] | None = None,
        place: PlaceOptions | None = None,
        preemptible: bool | None = None,
        held: bool = False,
        depends_on: DependsOn = (),
        connection: Any = None,
        **kwargs: Any,
    ) -> Job[R]:
        """Do what `submit` does, without blocking the event loop."""
        options: dict[str, Any] = {
            "eta": at,
            "delay": delay,
            "priority": priority,
            "queue": queue,
            "tenant": tenant,
            "job_id": job_id,
            "expires": expires,
        }
        given = {name: value for name, value in options.items() if value is not None}
        more: dict[str, Any] = {
            "description": description,
            "owner": owner,
            "labels": labels,
            "needs": job_needs(resources, place),
            "preemptible": preemptible,
            "held": held,
            "depends_on": depends_on,
            "connection": connection,
        }
        if isinstance(task, str) and task not in self._tasks:
            return (await self.keep_named(task, args, kwargs, given, **more))[0]
        return (await self.keep_call(self._called(task, given), args, kwargs, **more))[0]

    async def keep_call(
        self,
        called: Call[..., R],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        description: str = "",
        owner: str = "",
        labels: Mapping[str, str] | None = None,
        needs: JobNeeds | None = None,
        preemptible: bool | None = None,
        held: bool = False,
        depends_on: DependsOn = (),
        connection: Any = None,
    ) -> tuple[Job[R], Submitted]:
        """`asubmit` of a task with options, whatever its parameters are called; and what became of the submission."""
        sending = called.submission(*args, **kwargs)
        upstream = await self._store.upstream(depends_on)
        detail = detail_of(
            description=description,
            owner=owner,
            labels=labels,
            needs=needs,
            preemptible=preemptible,
            depends_on=upstream,
        )
        sending.submission = replace(sending.submission or Submission(), detail=detail, held=held)
        with self._producer.opened(sending):
            answer = await self._store.submit(self._new_job(sending), connection=connection)
        return called.handle(await self._store.given(sending, answer)), answer

    async def named(self, name: str, *, tenant: str | None = None) -> NamedCall:
        """What a name refers to: a task of the app, a registered one, or a definition of the tenant.

        Raises:
            UnknownTask: nothing.
        """
        return await self._names.find(name, tenant=tenant or "")

    async def keep_named(
        self,
        name: str | NamedCall,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        description: str = "",
        owner: str = "",
        labels: Mapping[str, str] | None = None,
        needs: JobNeeds | None = None,
        preemptible: bool | None = None,
        held: bool = False,
        depends_on: DependsOn = (),
        derived_id: str | None = None,
        connection: Any = None,
    ) -> tuple[Job[Any], Submitted]:
        """`keep_call` of what a name refers to: a task, also one that this app does not know, or a definition.

        Args:
            args, kwargs: plain JSON values, or what the task takes.
            options: as `task.options` takes them.
            derived_id: of `taskmq.model.keys`, in place of one that is chosen.
        """
        named = name if isinstance(name, NamedCall) else await self.named(name, tenant=options.get("tenant"))
        sending = named.submission(
            args,
            kwargs,
            options,
            description=description,
            owner=owner,
            labels=labels,
            needs=needs,
            preemptible=preemptible,
            held=held,
            depends_on=await self._store.upstream(depends_on),
        )
        if derived_id is not None:
            under_derived_id(sending, derived_id)
        with self._producer.opened(sending):
            answer = await self._store.submit(self._new_job(sending), connection=connection)
        return named.handle(await self._store.given(sending, answer)), answer

    def submit_many(
        self,
        task: "Call[..., R] | str",
        calls: Iterable[Arguments],
        /,
        *,
        depends_on: DependsOn = (),
        connection: Any = None,
    ) -> list[Job[R]]:
        """Keep many jobs of one task, in chunks of 500 of which each is kept as a whole; durable when this returns.

        Args:
            task: as for `submit`; `task.options(...)` for options.
            calls: one sequence of positional arguments per job, or one mapping of all arguments by name.
            depends_on: what each of them waits for.

        Raises:
            InvalidArguments, EncodeError, InvalidOption, TooLarge: nothing was kept.
            StoreUnavailable: chunks before the one that failed were kept.
            PartlySent: the task is `unique`, and other jobs have some of the keys, or a quota had no room for some;
                the others were kept.
        """
        call = self.asubmit_many(task, calls, depends_on=depends_on, connection=connection)
        return self.sessions.run_sync(call, instead="asubmit_many")

    async def asubmit_many(
        self,
        task: "Call[..., R] | str",
        calls: Iterable[Arguments],
        /,
        *,
        depends_on: DependsOn = (),
        connection: Any = None,
    ) -> list[Job[R]]:
        """Do what `submit_many` does, without blocking the event loop."""
        if isinstance(task, str) and task not in self._tasks:
            called: NamedCall | Call[..., R] = await self._names.find(task)
        else:
            called = self._called(task, {})
            if called.call_plan.job_id is not None:
                raise InvalidOption("job_id is for one job, not for many")
        jobs: list[NewJob] = []
        sendings: list[Sending] = []
        upstream = await self._store.upstream(depends_on)
        for sending in called.submissions(calls):
            if upstream:
                told = sending.submission or Submission()
                detail = replace(told.detail or JobDetail(), depends_on=upstream)
                sending.submission = replace(told, detail=detail)
            with self._producer.opened(sending):
                jobs.append(self._new_job(sending))
            sendings.append(sending)
        answers = await self._store.submit_all(jobs, connection=connection)
        failures: dict[int, SendError] = {}
        names: list[str] = []
        for place, (sending, answer) in enumerate(zip(sendings, answers, strict=True)):
            check_refusal(answer, sending.envelope.id)
            try:
                names.append(await self._store.given(sending, answer))
            except (DuplicateJob, QuotaExceeded) as error:
                failures[place] = error
        if failures:
            partly = PartlySent(failures, sent=len(names))
            partly.job_ids = names
            raise partly
        return [called.handle(name) for name in names]

    async def named_sending(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        version: int | None = None,
        tenant: str = "",
    ) -> Sending:
        """See `JobService`."""
        options = {"tenant": tenant} if tenant else {}
        return (await self._names.find(name, tenant=tenant, version=version)).submission(args, kwargs, options)

    async def submit_sending(self, sending: Sending) -> None:
        """See `JobService`."""
        answer = await self._store.submit(self._new_job(sending))
        sending.envelope = replace(sending.envelope, id=await self._store.given(sending, answer))

    def _new_job(self, sending: Sending) -> NewJob:
        task = self._tasks.get(sending.envelope.task)
        return new_job(
            sending,
            self._producer.queue(sending.queue),
            now=self.sessions.clock.now_ms(),
            resources=None if task is None else task.plan.resources,
        )

    def change(
        self,
        job: JobRef,
        *,
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
            version: that the job must have; None: whichever it has.
            args, kwargs: in place of all its arguments.
            by, note: who, and why: for its history. By an `Actor` it is in the audit as well, by the same
                transaction; so it is with the other changes.

        Raises:
            InvalidArguments: they do not fit its task.
        """
        call = self.achange(
            job,
            version=version,
            at=at,
            delay=delay,
            priority=priority,
            queue=queue,
            expires=expires,
            args=args,
            kwargs=kwargs,
            by=by,
            note=note,
        )
        return self.sessions.run_sync(call, instead="achange")

    async def achange(
        self,
        job: JobRef,
        *,
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
        """Do what `change` does, without blocking the event loop."""
        due: Any = UNSET
        now: int | None = None
        if at is not None and delay is not None:
            raise InvalidOption("delay and at exclude each other")
        if at is not None:
            due = instant_ms(at, what="at")
        elif delay is not None:
            wait = to_ms(parse_duration(delay, what="delay"))
            now = await self.sessions.store().now_ms()
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
        return await self._store.edit(job, "change", version=version, change=change, now=now, by=by, note=note)

    def cancel(self, job: JobRef, *, version: int | None = None, by: By = "", note: str = "") -> JobRecord:
        """Cancel a job: for good where no worker has it, else its worker is asked to stop it; the job afterwards."""
        return self.sessions.run_sync(self.acancel(job, version=version, by=by, note=note), instead="acancel")

    async def acancel(self, job: JobRef, *, version: int | None = None, by: By = "", note: str = "") -> JobRecord:
        """Do what `cancel` does, without blocking the event loop."""
        after = await self._do("cancel", job, version=version, by=by, note=note)
        if not after.state.is_final:
            reason = after.cancel_requested or ""
            if self.sessions.current().state is None:
                # Schedulers repeat it until its worker has heard it.
                self.say_cancelled(name_of(after), reason)
            else:
                await super().cancel_job(name_of(after), reason=reason, remember=_REMEMBERED, was_sent=True)
        return after

    def hold(self, job: JobRef, *, version: int | None = None, by: By = "", note: str = "") -> JobRecord:
        """Have a job that waits not run until it is released."""
        return self.sessions.run_sync(self.ahold(job, version=version, by=by, note=note), instead="ahold")

    async def ahold(self, job: JobRef, *, version: int | None = None, by: By = "", note: str = "") -> JobRecord:
        """Do what `hold` does, without blocking the event loop."""
        return await self._do("hold", job, version=version, by=by, note=note)

    def release(self, job: JobRef, *, version: int | None = None, by: By = "", note: str = "") -> JobRecord:
        """Let a held job run, at its time."""
        return self.sessions.run_sync(self.arelease(job, version=version, by=by, note=note), instead="arelease")

    async def arelease(self, job: JobRef, *, version: int | None = None, by: By = "", note: str = "") -> JobRecord:
        """Do what `release` does, without blocking the event loop."""
        return await self._do("release", job, version=version, by=by, note=note)

    def retry(self, job: JobRef, *, version: int | None = None, by: By = "", note: str = "") -> Job[Any]:
        """Run a job now: one that waits at once; one that has ended again, as another job that is linked to it."""
        return self.sessions.run_sync(self.aretry(job, version=version, by=by, note=note), instead="aretry")

    async def aretry(self, job: JobRef, *, version: int | None = None, by: By = "", note: str = "") -> Job[Any]:
        """Do what `retry` does, without blocking the event loop."""
        record = await self._store.read(job)
        if record.state.is_final:
            return await self.aclone(record)
        await self._do("retry", record, version=version, by=by, note=note)
        return self._handle_of(record)

    def clone(
        self,
        job: JobRef,
        *,
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
        call = self.aclone(job, new_id=new_id, at=at, owner=owner, args=args, kwargs=kwargs, priority=priority)
        return self.sessions.run_sync(call, instead="aclone")

    async def aclone(
        self,
        job: JobRef,
        *,
        new_id: str | None = None,
        derived_id: str | None = None,
        at: datetime | None = None,
        owner: str | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> Job[Any]:
        """Do what `clone` does, without blocking the event loop; also under an id of `taskmq.model.keys`."""
        record = await self._store.read(job)
        if new_id is not None:
            check_chosen_id(new_id, tenant=record.tenant, what="new_id")
        now = self.sessions.clock.now_ms()
        due = now if at is None else instant_ms(at, what="at")
        class_of(priority)
        call = None
        if args is not None or kwargs is not None:
            call = await self._store.encoded_call(record, args or (), kwargs or {})
        job_id = derived_id or new_id
        copy = cloned(record, job_id=job_id, now=now, due=due, owner=owner, call=call, priority=priority)
        await self._store.submit(copy)
        return Job(name_of(copy), task=copy.task, jobs=self, returns=self._returns(copy.task))

    async def _do(self, action: Action, job: JobRef, *, version: int | None, by: By, note: str) -> JobRecord:
        return await self._store.edit(job, action, version=version, by=by, note=note)

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        """See `JobService`."""
        if not self._store.has_store or (record := await self._store.find(job_id)) is None:
            return await super().reschedule_waiting(job_id, delay=delay, eta=eta)
        if record.state not in CHANGEABLE:
            return False
        await self.achange(record, at=eta, delay=delay)
        return True

    async def cancel_job(
        self, job_id: str, *, reason: str, remember: Duration, was_sent: bool = False
    ) -> Cancellation:
        """See `JobService`."""
        if not self._store.has_store or (record := await self._store.find(job_id)) is None:
            return await super().cancel_job(job_id, reason=reason, remember=remember, was_sent=was_sent)
        if record.state.is_final:
            return Cancellation.ENDED
        after = await self.acancel(record, note=reason)
        return Cancellation.CANCELLED if after.state.is_final else Cancellation.REQUESTED

    def _called(self, task: "Call[..., R] | str", options: dict[str, Any]) -> Call[..., R]:
        if isinstance(task, str):
            task = cast("Call[..., R]", self._tasks[task])
        return task.with_options(options)

    def _handle_of(self, record: JobRecord) -> Job[Any]:
        return Job(name_of(record), task=record.task, jobs=self, returns=self._returns(record.task))

    def _returns(self, task: str) -> ReturnType:
        found: Task[..., Any] | None = self._tasks.get(task)
        return ReturnType(Any) if found is None else found.returns
