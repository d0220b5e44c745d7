"""Fast path: plain runs that finish without waiting, which most runs do.

    delivery -> arguments -> the coroutine's first step -> it returned -> ack; of a stored job: report
             event started                              event succeeded

One call does all of it, without an asyncio task, an `Attempt` or another coroutine. It is the first segment of the
`pipeline`: a delivery that is not plain goes through all of it, because nothing has happened here. A plain run that
must wait, fails, or has a result for the state continues there.

A task is plain if no middleware, resource, guard, soft timeout or early acknowledgement is concerned. The `timeout`
of a coroutine starts at its first wait, because it could not be interrupted before. Plain functions in threads go to
`thread_runs`, which is as cheap. A message is plain if it was not redelivered, is due, does not expire and
overrides no option of its task's runs.
"""

import enum
from collections.abc import Callable, Collection, Coroutine
from contextvars import copy_context
from typing import Any, Final, Protocol

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Delivery
from taskmq.errors import MalformedMessage
from taskmq.middleware.chain import is_bare
from taskmq.model.envelope import JSON, MSGPACK, Envelope, Invitation, decode_envelope
from taskmq.model.outcome import Outcome, Parked
from taskmq.model.telemetry.metrics import Count
from taskmq.model.topology import is_jobs_queue, is_shard, logical_queue
from taskmq.run.context import Context, current_context
from taskmq.run.execution import DONE, Execution
from taskmq.run.forks import PROCESS, leave_fork
from taskmq.run.journal import JournalWriter
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt
from taskmq.worker.guards.base import Guards, is_marked
from taskmq.worker.run.processor import Processor, is_same
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run.task_pool import Continuation
from taskmq.worker.run.thread_runs import ThreadRuns


class FastPathResult(enum.Enum):
    """The fate of a delivery that was passed to `FastPath`."""

    DONE = enum.auto()
    """The delivery is settled."""
    BEGUN = enum.auto()
    """The run continues in a thread, and has a slot."""
    UNCLEAN = enum.auto()
    """The job is settled, and the run changed context variables."""


_DONE: Final = FastPathResult.DONE
_BEGUN: Final = FastPathResult.BEGUN
_UNCLEAN: Final = FastPathResult.UNCLEAN
_CONTENT_TYPES: Final = (JSON, MSGPACK)
# Decoded, with their content type.
_Arguments = tuple[tuple[Any, ...], dict[str, Any], str]


class EndedRun(msgspec.Struct, eq=False):
    """A run that ended and must be settled."""

    attempt: Attempt
    outcome: Outcome


class WaitingRun(msgspec.Struct, eq=False):
    """A run that made its first step and waits for something."""

    attempt: Attempt
    rest: Continuation


class _SettleStored(Protocol):
    def __call__(
        self,
        delivery: Delivery,
        envelope: Envelope,
        invitation: Invitation,
        task: Task[..., Any],
        value: object,
        *,
        started: int,
    ) -> bool: ...


FastPathStep = FastPathResult | EndedRun | WaitingRun | Envelope | Parked
"""Progress of a delivery. An envelope means that it is not plain, and nothing else has happened."""


class _Plain:
    """Values that are equal for all runs of one task from one queue."""

    __slots__ = (
        "call",
        "count",
        "decode",
        "is_threaded",
        "keeps_result",
        "max_attempts",
        "queue",
        "takes_stored",
        "task",
        "timeout",
        "with_context",
    )

    def __init__(self, task: Task[..., Any], queue: str, count: Count, *, keeps_result: bool) -> None:
        plan = task.plan
        self.task = task
        self.call: Callable[..., Coroutine[Any, Any, Any]] = task.call
        self.decode = task.signature.decoder
        self.with_context = task.signature.with_context if task.signature.takes_context else None
        self.max_attempts = plan.retry.max_attempts if plan.retry else 1
        self.timeout = plan.timeout
        self.is_threaded = plan.executor == "thread"
        self.keeps_result = keeps_result
        self.queue = logical_queue(queue)
        self.takes_stored = is_jobs_queue(queue)
        self.count = count


class FastPath:
    """The fast path of one worker.

    Args:
        stats: counts every run, and has the observers.
        keeps_results: whether the app has a state for results.
        cancelled: returns why a job was cancelled; None if jobs cannot be cancelled.
        recalled: jobs to return without a run.
        journal_writer: receives what the tasks' contexts write.
        processor: determines the outcome of an error.
        guards: a task that concerns some of them is not plain.
        run_begins: called for each run of a stored job that continues in a thread.
        settle_stored: settles a success of a stored job; returns False if that would have to wait.
        threads: executes plain functions; None if there are none.

    Attributes:
        ended: when the last run ended, by the monotonic clock.
    """

    def __init__(
        self,
        app: TaskMQ,
        stats: WorkerStats,
        *,
        keeps_results: bool,
        cancelled: Callable[[str], str | None] | None,
        recalled: Collection[object],
        journal_writer: JournalWriter,
        processor: Processor,
        guards: Guards,
        run_begins: Callable[[Attempt, Invitation], None],
        settle_stored: "_SettleStored",
        threads: ThreadRuns | None = None,
    ) -> None:
        self._tasks = app.tasks.by_name
        self._now_ms = app.sessions.clock.now_ms
        self._monotonic = app.sessions.clock.monotonic
        self._is_bare = is_bare(app.producer.middleware)
        self._stats = stats
        self._keeps_results = keeps_results
        self._cancelled = cancelled
        self._recalled = recalled
        self._journal_writer = journal_writer
        self._processor = processor
        self._guards = guards
        self._run_begins = run_begins
        self._settle_stored = settle_stored
        self._threads = threads
        self._plain: dict[tuple[str, str], _Plain | None] = {}
        self.ended = 0.0

    def run(self, delivery: Delivery, *, now: float) -> FastPathStep:
        """Run the delivery as far as possible without waiting.

        Args:
            now: by the monotonic clock.
        """
        content_type = delivery.content_type
        try:
            envelope = decode_envelope(delivery.body, content_type)
        except MalformedMessage as error:
            return Parked(str(error))
        plain = self._plain_for(delivery, envelope)
        if plain is None or content_type not in _CONTENT_TYPES:
            return envelope
        try:
            args, kwargs = plain.decode(envelope.args, envelope.kwargs, content_type)
        except BaseException:  # noqa: BLE001 - the long way meets it again, and knows what it means
            return envelope
        started = self._now_ms()
        context = Context(
            envelope,
            job_id=envelope.id,
            max_attempts=envelope.earlier + plain.max_attempts,
            queue=plain.queue,
            redelivered=False,
            _deadline=None if plain.timeout is None else started / 1000 + plain.timeout,
            _writer=self._journal_writer,
            started=started,
        )
        if plain.with_context is not None:
            args, kwargs = plain.with_context((args, kwargs), context)
        current_context.set(context)
        stats = self._stats
        if (tell := stats.on_start) is not None:
            tell(delivery, envelope, envelope.id, started)
        if plain.is_threaded:
            attempt = self._attempt(delivery, envelope, plain, context, (args, kwargs, content_type))
            return self._begin_in_thread(attempt, plain, now)
        before = copy_context()
        stats.current = envelope
        try:
            coroutine = plain.call(*args, **kwargs)
            waits_for = coroutine.send(None)
        except StopIteration as stop:
            if PROCESS.is_fork:
                leave_fork(None)
            stats.current = None
            is_clean = is_same(before)
            self.ended = ended = self._monotonic()
            if (
                context.journal is None
                and type(stop.value) in DONE
                and self._is_settled(plain, delivery, envelope, stop.value, started=started, seconds=ended - now)
            ):
                context.is_settled = True
                return _DONE if is_clean else _UNCLEAN
            attempt = self._attempt(delivery, envelope, plain, context, (args, kwargs, content_type))
            attempt.is_clean = is_clean
            stats.running[attempt] = now
            return EndedRun(attempt, self._processor.outcome_of_value(attempt, stop.value))
        except BaseException as error:  # noqa: BLE001 - one of the three borders: whatever a task raises is an outcome
            stats.current = None
            attempt = self._attempt(delivery, envelope, plain, context, (args, kwargs, content_type))
            attempt.is_clean = is_same(before)
            stats.running[attempt] = now
            return EndedRun(attempt, self._processor.outcome_of_failure(attempt, error))
        stats.current = None
        attempt = self._attempt(delivery, envelope, plain, context, (args, kwargs, content_type))
        stats.running[attempt] = now
        return WaitingRun(attempt, Continuation(coroutine, waits_for))

    def _is_settled(
        self, plain: _Plain, delivery: Delivery, envelope: Envelope, value: object, *, started: int, seconds: float
    ) -> bool:
        """Count and settle a success; return False and do nothing if that would have to wait."""
        if (invitation := envelope.store) is not None:
            if not self._settle_stored(delivery, envelope, invitation, plain.task, value, started=started):
                return False
            self._stats.count_success(plain.count, delivery, envelope, seconds, started=started)
            return True
        if plain.keeps_result:
            return False
        self._stats.count_success(plain.count, delivery, envelope, seconds, started=started)
        delivery.ack()
        return True

    def _plain_for(self, delivery: Delivery, envelope: Envelope) -> _Plain | None:
        """Return the values of the message's task; None if the two are not plain."""
        key = (envelope.task, delivery.queue)
        try:
            plain = self._plain[key]
        except KeyError:
            plain = self._prepare(key)
        if (
            plain is None
            or not envelope.id
            or envelope.eta is not None
            or envelope.expires is not None
            or envelope.run is not None
            or is_marked(envelope)
            or delivery.redelivered
            or (self._cancelled is not None and self._cancelled(envelope.id) is not None)
            or (
                envelope.store is not None
                and (self._recalled or envelope.store.crashes is not None or not plain.takes_stored)
            )
        ):
            return None
        return plain

    def _begin_in_thread(self, attempt: Attempt, plain: _Plain, now: float) -> FastPathStep:
        """Have a thread execute a plain function."""
        invitation = attempt.envelope.store
        assert self._threads is not None
        assert attempt.execution is not None
        count = None if plain.keeps_result or invitation is not None else plain.count
        try:
            # Its own variables: no other run sees the function's changes.
            self._threads.begin(attempt, attempt.execution, copy_context(), count=count, now=now)
        except BaseException as error:  # noqa: BLE001 - what keeps a run from beginning is an outcome, too
            return EndedRun(attempt, self._processor.outcome_of_failure(attempt, error))
        # The pool task continues with other deliveries while the thread runs.
        current_context.set(None)
        if invitation is not None:
            self._run_begins(attempt, invitation)
        return _BEGUN

    def _attempt(
        self, delivery: Delivery, envelope: Envelope, plain: _Plain, context: Context, arguments: _Arguments
    ) -> Attempt:
        """Return the attempt of a run that continues or must be settled."""
        args, kwargs, content_type = arguments
        execution = Execution(context, plain.call, args, kwargs, envelope, content_type, plain.timeout)
        return Attempt(delivery, envelope, plain.task, context.job_id, started=context.started, execution=execution)

    def _prepare(self, key: tuple[str, str]) -> _Plain | None:
        name, queue = key
        task = self._tasks.get(name)
        if task is None:
            # Not cached: clients may send any name.
            return None
        plan = task.plan
        plain: _Plain | None = None
        if (
            self._is_bare
            and (plan.executor == "async" or (plan.executor == "thread" and self._threads is not None))
            and plan.ack == "late"
            and plan.needs is None
            and plan.soft_timeout is None
            and not self._guards.concern_task(task)
            and not is_shard(queue)
        ):
            keeps_result = self._keeps_results and plan.result is not False
            plain = _Plain(task, queue, self._stats.count_of(name, queue), keeps_result=keeps_result)
        self._plain[key] = plain
        return plain
