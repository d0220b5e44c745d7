"""Calls: a task with options, ready to be sent or submitted with arguments.

A call makes the message; the producer of the task's app sends it.
"""

import math
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from datetime import datetime
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from msgspec import Raw

from taskmq.errors import InvalidArguments, InvalidOption, PartlySent
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import JSON, VERSION, Envelope, new_job_id
from taskmq.model.keys import tenant_key
from taskmq.model.units import Duration
from taskmq.options.task_options import CallPlan, plan_call
from taskmq.run.context import current_context
from taskmq.tasks.job_options import JOB_ONLY, NO_JOB_PLAN, JobPlan, plan_job

if TYPE_CHECKING:
    from taskmq.tasks.task import Task
    from taskmq.workflow.parts import Group, OpenStep, Step
    from taskmq.workflow.step_call import StepCall

__all__ = ["Arguments", "Call", "envelope_of"]

P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

Arguments = Sequence[Any] | Mapping[str, Any]
"""The arguments of one call of many: positional ones, or all by name."""


class _TakesFirst(Protocol[A_contra, Q, R_co]):
    """Who sends calls of a function with a first parameter, as the type checkers see it."""

    def send(self, first: A_contra, /, *args: Q.args, **kwargs: Q.kwargs) -> Job[R_co]: ...


class _TakesOne(Protocol[A_contra, R_co]):
    """The same for a function that can be called with that one alone."""

    def send(self, first: A_contra, /) -> Job[R_co]: ...


class Call(Generic[P, R_co]):
    """A task with options for its calls."""

    def __init__(self, task: "Task[P, R_co]", plan: CallPlan, job_plan: JobPlan | None = None) -> None:
        self._task = task
        self._plan = plan
        self._job_plan = job_plan

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Send one call; returns when the broker has confirmed it.

        Raises:
            InvalidArguments, EncodeError: the arguments do not fit; nothing was sent.
            SendError: one of its kinds, within the app's send timeout; `DuplicateJob` where the job is to be unique.
            StoreUnavailable, JobConflict: of a call that goes to the store, as `app.jobs.submit` says.
        """
        sending = self._sending(args, kwargs)
        self._task.services.producer.send_sync(sending)
        return self._job(sending.envelope.id)

    async def asend(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Do what `send` does, without blocking the event loop."""
        sending = self._sending(args, kwargs)
        task = self._task
        services = task.services
        await services.producer.start_send(sending)
        keeps_result = task.plan.result is not False
        return Job(
            sending.envelope.id, task=task.name, jobs=services.jobs, returns=task.returns, keeps_result=keeps_result
        )

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Keep one call in the job store, as `app.jobs.submit` does; durable when this returns.

        With `connection=` it is durable once that transaction commits. Whether the task's lane is the store or the
        broker makes no difference here.

        Raises:
            InvalidArguments, EncodeError, InvalidOption: nothing was kept.
            StoreUnavailable, JobConflict, DuplicateJob, QuotaExceeded, TooLarge: as `app.jobs.submit` says.
        """
        call = self.asubmit(*args, **kwargs)
        return self._task.services.producer.sessions.run_sync(call, instead="asubmit")

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Do what `submit` does, without blocking the event loop."""
        sending = self._sending(args, kwargs, is_submitted=True)
        await self._task.services.producer.send_async(sending)
        return self._job(sending.envelope.id)

    def send_many(self, calls: Iterable[Arguments]) -> list[Job[R_co]]:
        """Send many calls, pipelined; returns when all are confirmed.

        Args:
            calls: one sequence of positional arguments per call, or one mapping of all arguments by name; taken
                lazily, in chunks. Memory is needed for a chunk, and for the handles that are returned.

        Raises:
            InvalidArguments, EncodeError: a call does not fit; chunks before it were sent.
            PartlySent: some were not confirmed; it says which, and the ids of the others.
        """
        jobs: list[Job[R_co]] = []
        try:
            jobs.extend(self._jobs_of(self._stream(calls, linger=math.inf)))
        except PartlySent as error:
            error.job_ids = [job.id for job in jobs]
            raise
        return jobs

    async def asend_many(self, calls: Iterable[Arguments] | AsyncIterable[Arguments]) -> list[Job[R_co]]:
        """Do what `send_many` does, without blocking the event loop; `calls` may be asynchronous."""
        jobs: list[Job[R_co]] = []
        try:
            async with aclosing(self._achunks(calls)) as chunks:
                async for job_ids in chunks:
                    jobs += self._jobs_of(job_ids)
        except PartlySent as error:
            error.job_ids = [job.id for job in jobs]
            raise
        return jobs

    def send_stream(self, calls: Iterable[Arguments]) -> Iterator[Job[R_co]]:
        """Send calls without end, and give the handle of each once it is confirmed; nothing is kept of it here.

        A call is on its way when a thousand have come, or a tenth of a second has passed, and the next one comes.
        One who stops iterating has sent more than was given: up to two chunks.

        Raises as `send_many` does.
        """
        # A separate generator: mistakes are raised at the call, not at the first step.
        return map(self._job, self._stream(calls))

    def asend_stream(self, calls: Iterable[Arguments] | AsyncIterable[Arguments]) -> AsyncGenerator[Job[R_co], None]:
        """Do what `send_stream` does, without blocking the event loop; `calls` may be asynchronous."""
        return self._jobs(self._astream(calls))

    def sending(self, *args: P.args, **kwargs: P.kwargs) -> Sending:
        """What `send` hands over: for who sends many of one kind, with other ids and times."""
        return self._sending(args, kwargs)

    def submission(self, *args: P.args, **kwargs: P.kwargs) -> Sending:
        """Build the message of a job of the store: in JSON, recognised by its id alone.

        Raises:
            InvalidArguments, EncodeError: the arguments do not fit.
        """
        return self._sending(args, kwargs, is_submitted=True)

    def submissions(self, calls: Iterable[Arguments]) -> Iterator[Sending]:
        """`submission` of many calls."""
        for call in calls:
            args, kwargs = self._arguments_of(call)
            yield self._sending(args, kwargs, is_submitted=True)

    def with_options(self, options: Mapping[str, Any]) -> "Call[P, R_co]":
        """The same call with these options over its own.

        Raises:
            InvalidOption: an option is unknown or has a value that it cannot have.
        """
        if not options:
            return self
        of_job = {name: value for name, value in options.items() if name in JOB_ONLY}
        of_call = {name: value for name, value in options.items() if name not in JOB_ONLY}
        plan = plan_call(self._plan, of_call, task=self._task.name, others=JOB_ONLY)
        if not of_job:
            return Call(self._task, plan, self._job_plan)
        try:
            return Call(self._task, plan, plan_job(self._job_plan or NO_JOB_PLAN, of_job))
        except InvalidOption as error:
            raise InvalidOption(f"task {self._task.name}: {error}") from None

    @property
    def task_name(self) -> str:
        """The name under which messages call the task."""
        return self._task.name

    def open_names(self, count: int) -> frozenset[str]:
        """The parameters that can be given by name beside so many positional arguments."""
        positional, named, _, _ = self._task.signature.parameters
        return frozenset(each.name for each in (*positional[count:], *named) if each.by_name)

    def handle(self, job_id: str) -> Job[R_co]:
        """The handle of a job of the task."""
        return self._job(job_id)

    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> "Step[R_co]": ...  # type: ignore[overload-overlap]
    @overload
    def s(self: "_TakesFirst[A, Q, R]", *args: Q.args, **kwargs: Q.kwargs) -> "OpenStep[A, R]": ...
    def s(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call a step of a workflow: the step before it gives its first argument.

        With all its arguments it can stand at the beginning, too, or be sent on its own.
        """
        from taskmq.workflow.parts import OpenStep, Step

        call = self._step_call(args, kwargs, is_fed=True)
        is_whole = self._task.signature.accepts(len(args), kwargs)
        return Step[Any](call) if is_whole else OpenStep[Any, Any](call)

    def si(self, *args: P.args, **kwargs: P.kwargs) -> "Step[R_co]":
        """Make the call a step of a workflow that has all its arguments: it only waits for the step before it."""
        from taskmq.workflow.parts import Step

        return Step(self._step_call(args, kwargs, is_fed=False))

    def map(self: "_TakesOne[A, R]", items: Iterable[A]) -> "Group[R]":
        """A call for each item, beside each other; as a workflow, its value is the list of theirs."""
        return cast("Call[..., R]", self).starmap((item,) for item in items)

    def starmap(self: "Call[..., R]", calls: Iterable[Sequence[Any]]) -> "Group[R]":
        """A call for each sequence of arguments, beside each other."""
        from taskmq.workflow.parts import Group, Step

        members = tuple(Step[R](self._step_call(tuple(call), {}, is_fed=False)) for call in calls)
        return Group(members, task=self._task)

    def chunks(self: "Call[Concatenate[Any, ...], R]", items: Iterable[Any], size: int) -> "Group[R]":
        """A call for each `size` items, of a task that takes a list of them."""
        if size < 1:
            raise InvalidOption(f"task {self._task.name}: chunks of {size}: at least 1")
        rest = iter(items)
        return self.starmap((piece,) for piece in iter(lambda: list(islice(rest, size)), []))

    def _step_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_fed: bool) -> "StepCall":
        from taskmq.workflow.step_call import StepCall

        if self._plan.lane == "store":
            raise InvalidOption(
                f"task {self._task.name}: steps of workflows go to the broker, and its calls to the store: "
                'task.options(lane="broker")'
            )
        if self._job_plan is not None:
            raise self._refuse_job_plan()
        plan = None if self._task is self else self._plan
        return StepCall(self._task, plan, args, kwargs, {}, is_fed=is_fed)

    @property
    def _goes_one_by_one(self) -> bool:
        return self._task.plan.unique is not None or self._plan.lane == "store"

    @property
    def call_plan(self) -> CallPlan:
        """The options of its calls, checked."""
        return self._plan

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Celery's word for `send`."""
        return self.send(*args, **kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: Duration | None = None,
        eta: datetime | None = None,
        expires: Duration | datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        task_id: str | None = None,
    ) -> Job[R_co]:
        """Celery's word for `options(...).send(...)`."""
        given = {
            "delay": countdown,
            "eta": eta,
            "expires": expires,
            "priority": priority,
            "queue": queue,
            "job_id": task_id,
        }
        call = self.with_options({key: value for key, value in given.items() if value is not None})
        return cast("Call[..., R_co]", call).send(*args, **(kwargs or {}))

    def _stream(self, calls: Iterable[Arguments], *, linger: float | None = None) -> Iterator[str]:
        sendings, producer = self._sendings(calls), self._task.services.producer
        if self._goes_one_by_one:
            return producer.stream_one_by_one_sync(sendings)
        return producer.stream_sync(sendings) if linger is None else producer.stream_sync(sendings, linger=linger)

    def _astream(
        self, calls: Iterable[Arguments] | AsyncIterable[Arguments], *, linger: float | None = None
    ) -> AsyncGenerator[str, None]:
        sendings, producer = self._any_sendings(calls), self._task.services.producer
        if self._goes_one_by_one:
            return producer.stream_one_by_one_async(sendings)
        return producer.stream_async(sendings) if linger is None else producer.stream_async(sendings, linger=linger)

    def _achunks(self, calls: Iterable[Arguments] | AsyncIterable[Arguments]) -> AsyncGenerator[list[str], None]:
        if self._goes_one_by_one:
            return _one_by_one(self._astream(calls))
        return self._task.services.producer.chunks_async(self._any_sendings(calls))

    def _sendings(self, calls: Iterable[Arguments]) -> Iterator[Sending]:
        self._check_many()
        return map(self._sending_of, calls)

    def _any_sendings(
        self, calls: Iterable[Arguments] | AsyncIterable[Arguments]
    ) -> Iterator[Sending] | AsyncIterator[Sending]:
        return self._asendings(calls) if isinstance(calls, AsyncIterable) else self._sendings(calls)

    def _asendings(self, calls: AsyncIterable[Arguments]) -> AsyncIterator[Sending]:
        self._check_many()
        return (self._sending_of(call) async for call in calls)

    async def _jobs(self, job_ids: AsyncGenerator[str, None]) -> AsyncGenerator[Job[R_co], None]:
        async with aclosing(job_ids):
            async for job_id in job_ids:
                yield self._job(job_id)

    def _check_many(self) -> None:
        if self._plan.job_id is not None:
            raise InvalidOption(f"task {self._task.name}: job_id is for one call, not for many")

    def _sending_of(self, call: Arguments) -> Sending:
        return self._sending(*self._arguments_of(call))

    def _arguments_of(self, call: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if isinstance(call, tuple):
            return call, {}
        if isinstance(call, Mapping):
            return (), dict(call)
        if isinstance(call, str | bytes):
            raise InvalidArguments(
                f"task {self._task.name}: a {type(call).__name__} is no call: a sequence of positional arguments, "
                "such as (1, 2), or a mapping of all arguments by name"
            )
        return tuple(call), {}

    def _sending(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_submitted: bool = False,
    ) -> Sending:
        plan, task = self._plan, self._task
        producer = task.services.producer
        submission = None
        is_stored = is_submitted or plan.lane == "store"
        content_type = JSON if is_stored else producer.content_type
        raw_args, raw_kwargs = task.signature.encode(args, kwargs, content_type)
        if is_stored:
            asked = (plan.delay, plan.eta, plan.expires, plan.expires_at)
            raws = raw_args, raw_kwargs
            compared = None if plan.job_id is None else task.signature.canonical(args, kwargs, raws)
            job = self._job_plan or NO_JOB_PLAN
            submission = Submission(
                job_id=plan.job_id,
                asked=asked,
                compared=compared,
                detail=job.detail,
                held=job.held,
                depends_on=job.depends_on,
                connection=job.connection,
            )
        elif self._job_plan is not None:
            raise self._refuse_job_plan()
        order_key = plan.order_key
        if order_key is None and task.order_key is not None:
            order_key = task.order_key.of(args, kwargs)
        key = plan.idempotency_key
        if key is None and task.idempotency_key is not None:
            key = task.idempotency_key.of(args, kwargs)
        if key is None and plan.job_id is not None and submission is None and producer.sessions.state_url is not None:
            # Sent twice, it is one job.
            key = tenant_key(plan.tenant, plan.job_id)
        now = producer.sessions.clock.now_ms()
        envelope = envelope_of(plan, task.name, raw_args, raw_kwargs, key, order_key, now)
        headers = dict(plan.headers) if plan.headers else {}
        unique = None if task.plan.unique is None else task.unique_call(args, kwargs, tenant=plan.tenant)
        return Sending(envelope, plan.queue, content_type, headers, unique, submission)

    def _refuse_job_plan(self) -> InvalidOption:
        return InvalidOption(
            f"task {self._task.name}: {', '.join(sorted(JOB_ONLY))} are options of jobs of the store, and this call "
            'goes to the broker: call .submit(...) in place of .send(...), or give it lane="store"'
        )

    def _jobs_of(self, job_ids: Iterable[str]) -> Iterator[Job[R_co]]:
        task = self._task
        name, jobs, returns, keeps_result = task.name, task.services.jobs, task.returns, task.plan.result is not False
        for job_id in job_ids:
            yield Job(job_id, task=name, jobs=jobs, returns=returns, keeps_result=keeps_result)

    def _job(self, job_id: str) -> Job[R_co]:
        task = self._task
        keeps_result = task.plan.result is not False
        return Job(job_id, task=task.name, jobs=task.services.jobs, returns=task.returns, keeps_result=keeps_result)


def envelope_of(  # noqa: PLR0917 - called for every message, and keywords cost
    plan: CallPlan, task: str, args: Raw, kwargs: Raw, key: str | None, order_key: str | None, now: int
) -> Envelope:
    """The envelope of a call; where a task runs here, that is its parent.

    Args:
        key: the idempotency key.
        now: ms since the epoch.
    """
    parent = current_context.get()
    return Envelope(
        v=VERSION,
        id=tenant_key(plan.tenant, plan.job_id) if plan.job_id else new_job_id(now, os.urandom(10)),
        task=task,
        args=args,
        kwargs=kwargs,
        enqueued=now,
        eta=plan.eta if plan.delay is None else now + plan.delay,
        expires=plan.expires_at if plan.expires is None else now + plan.expires,
        root=parent.root if parent else None,
        parent=parent.job_id if parent else None,
        key=key,
        order_key=order_key,
        tenant=plan.tenant,
        priority=plan.priority,
        meta=plan.meta,
    )


async def _one_by_one(job_ids: AsyncGenerator[str, None]) -> AsyncGenerator[list[str], None]:
    async with aclosing(job_ids):
        async for job_id in job_ids:
            yield [job_id]
