"""`app.jobs`: the jobs of an app, in the store and on their way."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from taskmq.client.producer import Producer
from taskmq.client.sessions import Sessions
from taskmq.contracts.jobs import JobDetail, NewJob, Submitted
from taskmq.errors import DuplicateJob, InvalidOption, PartlySent, QuotaExceeded, SendError
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.nodes import JobNeeds, PlaceOptions, job_needs
from taskmq.model.states import CHANGEABLE, Cancellation
from taskmq.model.units import Duration
from taskmq.submission.definitions import Definitions
from taskmq.submission.dependencies import DependsOn, check_refusal
from taskmq.submission.job_changes import JobChanges
from taskmq.submission.named_calls import NamedCall, NamedCalls
from taskmq.submission.new_jobs import detail_of, new_job, under_derived_id
from taskmq.submission.stored import StoredJobs
from taskmq.submission.task_catalogue import TaskCatalogue
from taskmq.tasks.registry import TaskRegistry
from taskmq.tasks.task import Arguments, Call

__all__ = ["Jobs"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The type that a task named by a text returns is unknown.
    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")


class Jobs(JobChanges):
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
        super().__init__(sessions, tasks=tasks, result_ttl=result_ttl)
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
        upstream = await self._store.upstream(depends_on, connection=connection)
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
        return called.handle(await self._store.given(sending, answer, connection=connection)), answer

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
            depends_on=await self._store.upstream(depends_on, connection=connection),
        )
        if derived_id is not None:
            under_derived_id(sending, derived_id)
        with self._producer.opened(sending):
            answer = await self._store.submit(self._new_job(sending), connection=connection)
        return named.handle(await self._store.given(sending, answer, connection=connection)), answer

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
        upstream = await self._store.upstream(depends_on, connection=connection)
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
                names.append(await self._store.given(sending, answer, connection=connection))
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
