"""`app.jobs`: the jobs of an app, in the store and on their way."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack, cast, overload

from msgspec.structs import replace

from taskmq.client.producer import Producer
from taskmq.client.sent_jobs import SentJobs
from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import JobDetail, NewJob, Submitted
from taskmq.errors import DuplicateJob, InvalidArguments, InvalidOption, PartlySent, QuotaExceeded, SendError
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.nodes import PlaceOptions
from taskmq.model.states import CHANGEABLE, Cancellation
from taskmq.model.units import Duration
from taskmq.stored_jobs.definitions import Definitions
from taskmq.stored_jobs.dependencies import check_refusal
from taskmq.stored_jobs.job_changes import JobChanges
from taskmq.stored_jobs.named_calls import NamedCall, NamedCalls
from taskmq.stored_jobs.new_jobs import new_job, under_derived_id
from taskmq.stored_jobs.stored import StoredJobs
from taskmq.stored_jobs.task_catalogue import TaskCatalogue
from taskmq.tasks.call_shapes import CallOfNone, CallOfOne, CallOfThree, CallOfTwo
from taskmq.tasks.job_options import DependsOn, SubmitOptions
from taskmq.tasks.task import Arguments, Call
from taskmq.tasks.tasks import Tasks

__all__ = ["Jobs"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The type that a task named by a text returns is unknown.
    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


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
        sent: the jobs that were sent, as the state knows them.
        catalogue: the tasks that workers and schedulers have registered.
        definitions: `app.definitions`.
    """

    def __init__(self, sessions: Sessions, *, tasks: Tasks, result_ttl: Duration = "1d") -> None:
        self.catalogue: TaskCatalogue = TaskCatalogue(sessions)
        names = NamedCalls(self, tasks, self.catalogue)
        sent = SentJobs(sessions, plan_of=tasks.plan_of, result_ttl=result_ttl)
        super().__init__(sessions, sent, StoredJobs(sessions, signature_of=names.signature), names)
        self.definitions: Definitions = Definitions(sessions, names)
        self._tasks = tasks

    def use_producer(self, producer: Producer) -> None:
        """Submit with what this producer sends with."""
        self._producer = producer

    @overload
    def submit(
        self,
        task: str,
        /,
        *args: Any,
        at: datetime | None = ...,
        delay: Duration | None = ...,
        priority: int | None = ...,
        queue: str | None = ...,
        tenant: str | None = ...,
        job_id: str | None = ...,
        expires: Duration | datetime | None = ...,
        description: str = ...,
        owner: str = ...,
        labels: Mapping[str, str] | None = ...,
        resources: Mapping[str, object] | None = ...,
        place: PlaceOptions | None = ...,
        preemptible: bool | None = ...,
        held: bool = ...,
        depends_on: DependsOn = ...,
        connection: Any = ...,
        **kwargs: Any,
    ) -> Job[Any]: ...
    @overload
    def submit(self, task: Call[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def submit(self, task: CallOfNone[R], /, **options: Unpack[SubmitOptions]) -> Job[R]: ...
    @overload
    def submit(self, task: CallOfOne[A, R], a: A, /, **options: Unpack[SubmitOptions]) -> Job[R]: ...
    @overload
    def submit(self, task: CallOfTwo[A, B, R], a: A, b: B, /, **options: Unpack[SubmitOptions]) -> Job[R]: ...
    @overload
    def submit(
        self, task: CallOfThree[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[SubmitOptions]
    ) -> Job[R]: ...
    def submit(self, task: Any, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Keep one job; it is durable when this returns.

        Args:
            task: a task, one with options, or a name; called with `args` and `kwargs`. A name is that of one of the
                app's tasks, else of one that a worker has registered, else of a definition of the tenant: `args`,
                where there are any, replace all of that's, and `kwargs` those of the same names. Type checkers know
                options beside up to three positional arguments; with more, or with arguments by name, say
                `task.options(...).submit(...)`.
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
            InvalidArguments, EncodeError, InvalidOption: nothing was kept. So it is where an option has the name of a
                parameter that is not given by its place.
            JobNotFound: so it is where the store has no job that it is to wait for.
            JobConflict: the id is that of a job with other content.
            DuplicateJob: the task is `unique`, and another job has the key.
            QuotaExceeded: its tenant or owner has submitted as much as it may; says until when.
            TooLarge: the broker could not carry it.
        """
        return self._sessions.run_sync(self.asubmit(task, *args, **kwargs), instead="asubmit")

    @overload
    async def asubmit(
        self,
        task: str,
        /,
        *args: Any,
        at: datetime | None = ...,
        delay: Duration | None = ...,
        priority: int | None = ...,
        queue: str | None = ...,
        tenant: str | None = ...,
        job_id: str | None = ...,
        expires: Duration | datetime | None = ...,
        description: str = ...,
        owner: str = ...,
        labels: Mapping[str, str] | None = ...,
        resources: Mapping[str, object] | None = ...,
        place: PlaceOptions | None = ...,
        preemptible: bool | None = ...,
        held: bool = ...,
        depends_on: DependsOn = ...,
        connection: Any = ...,
        **kwargs: Any,
    ) -> Job[Any]: ...
    @overload
    async def asubmit(self, task: Call[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    async def asubmit(self, task: CallOfNone[R], /, **options: Unpack[SubmitOptions]) -> Job[R]: ...
    @overload
    async def asubmit(self, task: CallOfOne[A, R], a: A, /, **options: Unpack[SubmitOptions]) -> Job[R]: ...
    @overload
    async def asubmit(self, task: CallOfTwo[A, B, R], a: A, b: B, /, **options: Unpack[SubmitOptions]) -> Job[R]: ...
    @overload
    async def asubmit(
        self, task: CallOfThree[A, B, C, R], a: A, b: B, c: C, /, **options: Unpack[SubmitOptions]
    ) -> Job[R]: ...
    async def asubmit(self, task: Any, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Do what `submit` does, without blocking the event loop."""
        given = {name: kwargs.pop(name) for name in SubmitOptions.__annotations__ if name in kwargs}
        options = {"eta" if name == "at" else name: value for name, value in given.items() if value is not None}
        if isinstance(task, str) and task not in self._tasks:
            named = await self.named(task, tenant=options.get("tenant"))
            if taken := named.open_names(len(args)) & options.keys():
                name = min(taken)
                raise InvalidArguments(
                    f"task {named.task}: {name}= is an option of submit, and the task has a parameter {name!r}: give "
                    "the parameter by its place"
                )
            return (await self.keep_named(named, args, kwargs, options))[0]
        called = self._called(task, options)
        if taken := called.open_names(len(args)) & {name for name in given if given[name] is not None}:
            name = min(taken)
            option = "eta" if name == "at" else name
            raise InvalidArguments(
                f"task {called.task_name}: {name}= is an option of submit, and the task has a parameter {name!r}: "
                f"for the option say task.options({option}=...).submit(...), for the other task.submit({name}=...)"
            )
        sending = called.submission(*args, **kwargs)
        with self._producer.send_context(sending):
            answer = await self._keep(sending)
        return _handle(called, sending, answer)

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
        derived_id: str | None = None,
    ) -> tuple[Job[Any], Submitted]:
        """Submit what a name refers to: a task, also one that this app does not know, or a definition.

        Args:
            args, kwargs: plain JSON values, or what the task takes.
            options: as `task.options` takes them.
            derived_id: of `taskmq.model.keys`, in place of one that is chosen.
        """
        named = name if isinstance(name, NamedCall) else await self.named(name, tenant=options.get("tenant"))
        sending = named.submission(args, kwargs, options)
        if derived_id is not None:
            under_derived_id(sending, derived_id)
        with self._producer.send_context(sending):
            answer = await self._keep(sending)
        return _handle(named, sending, answer), answer

    async def asubmit_many(
        self,
        task: "Call[..., R] | str",
        calls: Iterable[Arguments],
        /,
        *,
        tenant: str | None = None,
        depends_on: DependsOn = (),
        connection: Any = None,
    ) -> list[Job[R]]:
        """Keep many jobs of one task, in chunks of 500 of which each is kept as a whole; durable when this returns.

        Args:
            task: as for `submit`; `task.options(...)` for options.
            calls: one sequence of positional arguments per job, or one mapping of all arguments by name.
            tenant: whose jobs they are; default: that of the task's options.
            depends_on: what each of them waits for.
            connection: as for `submit`.

        Raises:
            InvalidArguments, EncodeError, InvalidOption, TooLarge: nothing was kept.
            StoreUnavailable: chunks before the one that failed were kept.
            PartlySent: the task is `unique`, and other jobs have some of the keys, or a quota had no room for some;
                the others were kept.
        """
        given = {"tenant": tenant, "depends_on": depends_on or None, "connection": connection}
        options = {name: value for name, value in given.items() if value is not None}
        if isinstance(task, str) and task not in self._tasks:
            named = await self.named(task, tenant=tenant)
            handle: Callable[[str], Job[R]] = named.handle
            sendings = list(named.submissions(calls, options))
        else:
            called = self._called(task, options)
            handle = called.handle
            if called.call_plan.job_id is not None:
                raise InvalidOption("job_id is for one job, not for many")
            sendings = list(called.submissions(calls))
        if not sendings:
            return []
        # All of them have the same options.
        told = sendings[0].submission or Submission()
        connection = told.connection
        upstream = await self._store.upstream(told.depends_on, connection=connection)
        jobs: list[NewJob] = []
        for sending in sendings:
            _wait_for(sending, upstream)
            with self._producer.send_context(sending):
                jobs.append(self._new_job(sending))
        answers = await self._store.submit_all(jobs, connection=connection)
        failures: dict[int, SendError] = {}
        found: list[Job[R]] = []
        for place, (sending, answer) in enumerate(zip(sendings, answers, strict=True)):
            check_refusal(answer, sending.envelope.id)
            try:
                job = handle(await self._store.given(sending, answer, connection=connection))
                job.existing = answer.existing
                found.append(job)
            except (DuplicateJob, QuotaExceeded) as error:
                failures[place] = error
        if failures:
            partly = PartlySent(failures, sent=len(found))
            partly.job_ids = [job.id for job in found]
            raise partly
        return found

    submit_many = blocking(asubmit_many)

    async def named_sending(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        version: int | None = None,
        tenant: str = "",
    ) -> Sending:
        options = {"tenant": tenant} if tenant else {}
        return (await self._names.find(name, tenant=tenant, version=version)).submission(args, kwargs, options)

    async def submit_sending(self, sending: Sending) -> None:
        await self._keep(sending)

    async def _keep(self, sending: Sending) -> Submitted:
        """Submit a call in the caller's transaction, where it has one; the call has the job's name afterwards."""
        told = sending.submission or Submission()
        if told.depends_on:
            _wait_for(sending, await self._store.upstream(told.depends_on, connection=told.connection))
        answer = await self._store.submit(self._new_job(sending), connection=told.connection)
        name = await self._store.given(sending, answer, connection=told.connection)
        sending.envelope = replace(sending.envelope, id=name)
        if not answer.is_new:
            sending.submission = replace(sending.submission or told, existing=answer.state)
        return answer

    def _new_job(self, sending: Sending) -> NewJob:
        task = self._tasks.get(sending.envelope.task)
        return new_job(
            sending,
            self._producer.queue(sending.queue),
            now=self._sessions.clock.now_ms(),
            resources=None if task is None else task.plan.resources,
        )

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        if not self._store.has_store or (record := await self._store.find(job_id)) is None:
            return await self.sent.reschedule_waiting(job_id, delay=delay, eta=eta)
        if record.state not in CHANGEABLE:
            return False
        await self.achange(record, at=eta, delay=delay)
        return True

    async def cancel_job(
        self, job_id: str, *, reason: str, remember: Duration, was_sent: bool = False
    ) -> Cancellation:
        if not self._store.has_store or (record := await self._store.find(job_id)) is None:
            return await self.sent.cancel_job(job_id, reason=reason, remember=remember, was_sent=was_sent)
        if record.state.is_final:
            return Cancellation.ENDED
        after = await self.acancel(record, note=reason)
        return Cancellation.CANCELLED if after.state.is_final else Cancellation.REQUESTED

    def _called(self, task: "Call[..., R] | str", options: dict[str, Any]) -> Call[..., R]:
        if isinstance(task, str):
            task = cast("Call[..., R]", self._tasks[task])
        return task.with_options(options)


def _wait_for(sending: Sending, upstream: tuple[JobDependency, ...]) -> None:
    if upstream:
        told = sending.submission or Submission()
        detail = replace(told.detail or JobDetail(), depends_on=upstream)
        sending.submission = replace(told, detail=detail, depends_on=())


def _handle(called: "Call[..., R] | NamedCall", sending: Sending, answer: Submitted) -> Job[R]:
    """The handle of a job that was submitted, or was there before."""
    job: Job[R] = called.handle(sending.envelope.id)
    job.existing = answer.existing
    return job
