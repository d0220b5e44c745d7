"""`app.jobs`: the jobs of an app, in the store and at the broker."""

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
from taskmq.options.task_options import Guarantee, RetryOptions
from taskmq.stored_jobs.definitions import Definitions
from taskmq.stored_jobs.dependencies import check_refusal
from taskmq.stored_jobs.job_changes import JobChanges
from taskmq.stored_jobs.named_calls import NamedCall, NamedCalls
from taskmq.stored_jobs.new_jobs import new_job, set_derived_id
from taskmq.stored_jobs.recorded_jobs import RecordedJobs
from taskmq.stored_jobs.stored import StoredJobs
from taskmq.stored_jobs.task_catalogue import TaskCatalogue
from taskmq.tasks.call import Arguments, Call
from taskmq.tasks.call_shapes import CallOfNone, CallOfOne, CallOfThree, CallOfTwo
from taskmq.tasks.job_options import DependsOn, SubmitOptions
from taskmq.tasks.tasks import Tasks

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The return type of a task given by name is unknown.
    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Jobs(JobChanges):
    """Jobs submitted to the store, which can be listed, changed and cancelled while they wait.

    Needs `TaskMQ(store=...)`. A job is identified by the id of its handle: the store's id, or the one that its
    submitter chose (`job_id=`; with a tenant, `@acme:order-17`). Methods that change a job also accept a record from
    `get`, which saves reading it again. Every method has a variant for coroutines, whose name starts with `a`. All of
    them may raise:

    - `StoreUnavailable`: the store could not be reached. If `is_certain` is false, a change may have been made.
    - `UnsupportedFeature`: the app has no store.

    Methods about one job may also raise:

    - `JobNotFound`: the store has no job with that id.
    - `JobConflict`: the job's state forbids the action, or its version differs from the given one.

    Args:
        tasks: tasks of the app.

    Attributes:
        sent: jobs sent to the broker, as the state knows them.
        recorded: those that the store has recorded (`record="all"`).
        catalogue: tasks registered by workers and schedulers.
        definitions: `app.definitions`.
    """

    def __init__(self, sessions: Sessions, *, tasks: Tasks) -> None:
        self.catalogue: TaskCatalogue = TaskCatalogue(sessions)
        names = NamedCalls(self, tasks, self.catalogue)
        sent = SentJobs(sessions, plan_of=tasks.plan_of)
        recorded = RecordedJobs(sessions, sent)
        super().__init__(sessions, sent, StoredJobs(sessions, recorded, find_task=names.find_task), recorded, names)
        self.definitions: Definitions = Definitions(sessions, names)
        self._tasks = tasks

    def use_producer(self, producer: Producer) -> None:
        """Submit through the middleware and queues of this producer."""
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
        order_key: str = ...,
        idempotency_key: str = ...,
        meta: Mapping[str, str] = ...,
        expires: Duration | datetime | None = ...,
        timeout: Duration | None = ...,
        max_attempts: int | None = ...,
        retry: RetryOptions | None = ...,
        guarantee: Guarantee | None = ...,
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
        """Submit one job. It is durable when this returns.

        Args:
            task: a task, a task with options, or a name; called with `args` and `kwargs`. A name is resolved to a
                task of the app, else to a registered task, else to a definition of the tenant. `args` replace all
                positional arguments of a definition; `kwargs` replace those of the same names. Type checkers know
                the options only with up to three positional arguments; otherwise use
                `task.options(...).submit(...)`.
            at: when it should run (with a time zone); or `delay`, from now. Default: now.
            priority: 0 (lowest) to 9, among the jobs of its queue that wait in the store.
            job_id: an id chosen by the caller, up to 255 bytes, not starting with "taskmq:". Submitting the same
                content again returns the same job; different content raises `JobConflict`.
            order_key, idempotency_key: the key itself. Default: the task's key for these arguments.
            meta: strings that the task reads as `ctx.meta`, added to the task's.
            expires: duration after its submission, or instant, after which it must not start.
            timeout, max_attempts, retry, guarantee: as of `task.options`, see docs/options.md. Default: as its task.
            description, owner, labels: information for people and for filters.
            resources: resources it needs on its node, such as `{"cpu": 2, "memory": "4G"}`, in a queue with
                `placed=True`; default: those of its task.
            place: requirements on the node: `labels` that it must have, labels that the job `prefers` for `patience`
                seconds, and the `gang` that it starts with; see docs/nodes.md.
            preemptible: whether its run may be stopped for other jobs, see docs/scheduling.md. Default: as its task.
            held: do not run it until it is released.
            depends_on: up to 1,000 jobs of its tenant that have to end before it runs, as handles or ids. They have
                to succeed, unless another condition is given: `(job, "ended")`, `(job, "failed")`. If a condition
                can no longer be met, the job ends as `upstream_failed`, or as `skipped` if that job had to fail.
            connection: a connection or session in the caller's own transaction, if store and data share a database.
                The job exists only if that transaction commits.

        Raises:
            UnknownTask: neither the app nor the store has a task or definition of that name.
            InvalidArguments, EncodeError, InvalidOption: nothing was stored. Also raised if an option has the name of
                a parameter that is not given by position.
            JobNotFound: it depends on a job that the store does not have; nothing was stored.
            JobConflict: the id belongs to a job with different content.
            DuplicateJob: the task is `unique`, and another job has the key.
            QuotaExceeded: its tenant or owner has exhausted a quota; the error says until when.
            TooLarge: the job exceeds the broker's message size.
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
        order_key: str = ...,
        idempotency_key: str = ...,
        meta: Mapping[str, str] = ...,
        expires: Duration | datetime | None = ...,
        timeout: Duration | None = ...,
        max_attempts: int | None = ...,
        retry: RetryOptions | None = ...,
        guarantee: Guarantee | None = ...,
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
        """Submit one job without blocking the event loop; see `submit`."""
        options_given = {name: kwargs.pop(name) for name in SubmitOptions.__annotations__.keys() & kwargs.keys()}
        options = {
            "eta" if name == "at" else name: value for name, value in options_given.items() if value is not None
        }
        if isinstance(task, str) and task not in self._tasks:
            named = await self.find_call(task, tenant=options.get("tenant"))
            if taken := named.open_names(len(args)) & options.keys():
                name = min(taken)
                raise InvalidArguments(
                    f"task {named.task}: {name}= is an option of submit and a parameter of the task: give the "
                    "parameter by position"
                )
            return (await self.submit_by_name(named, args, kwargs, options))[0]
        called = self._resolve(task, options)
        if options and (
            taken := called.open_names(len(args))
            & {name for name in options_given if options_given[name] is not None}
        ):
            name = min(taken)
            option = "eta" if name == "at" else name
            raise InvalidArguments(
                f"task {called.task_name}: {name}= is an option of submit and a parameter of the task: use "
                f"task.options({option}=...).submit(...) for the option, task.submit({name}=...) for the parameter"
            )
        sending = called.submission(*args, **kwargs)
        with self._producer.send_context(sending):
            answer = await self._submit(sending)
        return _build_handle(called, sending, answer)

    async def find_call(self, name: str, *, tenant: str | None = None) -> NamedCall:
        """Resolve a name to a task of the app, a registered task, or a definition of the tenant.

        Raises:
            UnknownTask: there is none of that name.
        """
        return await self._names.find(name, tenant=tenant or "")

    async def submit_by_name(
        self,
        name: str | NamedCall,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        derived_id: str | None = None,
    ) -> tuple[Job[Any], Submitted]:
        """Submit a task or definition by name, including tasks that this app does not have.

        Args:
            args, kwargs: plain JSON values, or arguments of the task.
            derived_id: id derived by `taskmq.model.keys`, instead of a chosen one.
        """
        named = name if isinstance(name, NamedCall) else await self.find_call(name, tenant=options.get("tenant"))
        sending = named.submission(args, kwargs, options)
        if derived_id is not None:
            set_derived_id(sending, derived_id)
        with self._producer.send_context(sending):
            answer = await self._submit(sending)
        return _build_handle(named, sending, answer), answer

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
        """Submit many jobs of one task in chunks of 500, each stored as a whole. They are durable when this returns.

        Args:
            task: see `submit`; use `task.options(...)` for options.
            calls: one sequence of positional arguments, or one mapping of keyword arguments, per job.
            tenant: tenant that owns the jobs; default: that of the task's options.
            depends_on: dependencies of each of the jobs.
            connection: see `submit`.

        Raises:
            InvalidArguments, EncodeError, InvalidOption, TooLarge: nothing was stored.
            StoreUnavailable: the chunks before the failed one were stored.
            PartlySent: other jobs have some of the `unique` keys, or a quota was exhausted; the rest was stored.
        """
        options_given = {"tenant": tenant, "depends_on": depends_on or None, "connection": connection}
        options = {name: value for name, value in options_given.items() if value is not None}
        if isinstance(task, str) and task not in self._tasks:
            named = await self.find_call(task, tenant=tenant)
            handle: Callable[[str], Job[R]] = named.handle
            sendings = list(named.submissions(calls, options))
        else:
            called = self._resolve(task, options)
            handle = called.handle
            if called.call_plan.job_id is not None:
                raise InvalidOption("job_id: an id is for one job, but several are submitted")
            sendings = list(called.submissions(calls))
        if not sendings:
            return []
        # All of them have the same options.
        submission = sendings[0].submission or Submission()
        connection = submission.connection
        upstream = await self._store.upstream(submission.depends_on, connection=connection)
        jobs: list[NewJob] = []
        for sending in sendings:
            _add_dependencies(sending, upstream)
            with self._producer.send_context(sending):
                jobs.append(self._new_job(sending))
        answers = await self._store.submissions.submit_all(jobs, connection=connection)
        failures: dict[int, SendError] = {}
        found: list[Job[R]] = []
        for index, (sending, answer) in enumerate(zip(sendings, answers, strict=True)):
            if answer.is_new:
                found.append(handle(sending.envelope.id))
                continue
            check_refusal(answer, sending.envelope.id)
            try:
                job = handle(await self._store.job_name(sending, answer, connection=connection))
                job.existing = answer.existing
                found.append(job)
            except (DuplicateJob, QuotaExceeded) as error:
                failures[index] = error
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
        options: Mapping[str, Any],
        *,
        version: int | None = None,
        tenant: str = "",
    ) -> Sending:
        options = {**options, "tenant": tenant} if tenant else options
        return (await self._names.find(name, tenant=tenant, version=version)).submission(args, kwargs, options)

    async def submit_sending(self, sending: Sending) -> None:
        await self._submit(sending)

    async def _submit(self, sending: Sending) -> Submitted:
        """Submit a call, in the caller's transaction if it has one, and set the job's name as the call's id."""
        submission = sending.submission or Submission()
        if submission.depends_on:
            _add_dependencies(
                sending, await self._store.upstream(submission.depends_on, connection=submission.connection)
            )
        answer = await self._store.submissions.submit(self._new_job(sending), connection=submission.connection)
        name = await self._store.job_name(sending, answer, connection=submission.connection)
        sending.envelope = replace(sending.envelope, id=name)
        if not answer.is_new:
            sending.submission = replace(sending.submission or submission, existing=answer.state)
        return answer

    def _new_job(self, sending: Sending) -> NewJob:
        queue = self._producer.queue(sending.queue)
        plan = self._tasks.plan_of(sending.envelope.task) if queue.placed else None
        return new_job(
            sending,
            queue,
            now=self._sessions.clock.now_ms(),
            resources=None if plan is None else plan.resources,
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

    def _resolve(self, task: "Call[..., R] | str", options: dict[str, Any]) -> Call[..., R]:
        if isinstance(task, str):
            task = cast("Call[..., R]", self._tasks[task])
        return task.with_options(options)


def _add_dependencies(sending: Sending, upstream: tuple[JobDependency, ...]) -> None:
    if upstream:
        submission = sending.submission or Submission()
        detail = replace(submission.detail or JobDetail(), depends_on=upstream)
        sending.submission = replace(submission, detail=detail, depends_on=())


def _build_handle(called: "Call[..., R] | NamedCall", sending: Sending, answer: Submitted) -> Job[R]:
    """Build the handle of a job that was submitted, or existed before."""
    job: Job[R] = called.handle(sending.envelope.id)
    job.existing = answer.existing
    return job
