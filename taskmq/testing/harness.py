"""Harness for an app under test: on `memory://`, with the test's own clock, and a worker and a beat on demand.

Only the broker, the state and the clock are replaced: the production code encodes, confirms, delivers, decodes,
validates, retries and dead-letters calls.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from taskmq.app import TaskMQ
from taskmq.client.plugins import forget_memory, open_store
from taskmq.client.sessions import Patience
from taskmq.client.settings import Settings
from taskmq.contracts.broker import Broker, BrokerOptions
from taskmq.errors import QueueMissing, TaskFailed, UnsupportedFeature
from taskmq.middleware.chain import Middleware
from taskmq.model.outcome import ErrorRecord
from taskmq.model.topology import dead_letter_queue
from taskmq.model.units import Duration, parse_duration, parse_seconds, to_datetime, to_ms
from taskmq.operations.dead_letters.letter import DeadLetter, read_letter
from taskmq.tasks.task import Task
from taskmq.testing.fake_clock import FakeClock
from taskmq.testing.recorder import FailureCatcher, SendRecorder, SentJob, arguments_of
from taskmq.testing.store_run import FailedRun
from taskmq.testing.virtual_run import VirtualRun, virtual_run

T = TypeVar("T")

_LETTERS: Final = 10_000
_SHOWN: Final = 20
_ADVICE: Final = (
    "in a test, jobs run while drain() or advance() is called; call one of them before you ask for a result"
)


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that ended as a dead letter.

    Attributes:
        reason: see `taskmq.operations.dead_letters.DeadLetter`.
        error: the error that the task raised; `TaskFailed` if the task did not raise it.
    """

    job_id: str
    task: str
    reason: str
    attempts: int
    error: Exception


def override(
    app: TaskMQ, dependency: Callable[..., Any], replacement: Callable[..., Any]
) -> AbstractContextManager[None]:
    """Replace a dependency of this app's tasks by `replacement` inside the block.

    The replacement may have dependencies itself. If several overrides are active, the last one counts. Tasks that run
    in other processes do not see it.
    """
    return app.tasks.dependencies.override(dependency, replacement)


class Harness:
    """Runs an app in a test. Use it as a context manager; on exit, the app is as before.

    Code without an event loop uses `drain` and `advance`, which run the tasks' coroutines on the harness's loop;
    coroutines use `adrain` and `aadvance`, which run them on the test's loop. Functions run in threads, even those
    with `executor="process"`.

    Args:
        start: the initial time; default: now.
        timeout: real time for one call of `drain` or `advance`, and for waiting for a result without a timeout.
        store: whether the app has a job store. Default: if its code, its settings or a task with `lane="store"`
            require one.

    Attributes:
        app: the app.
        clock: the app's time, which moves only in `drain` and `advance`.
        failed: the dead-lettered jobs.
    """

    __test__ = False

    def __init__(
        self,
        app: TaskMQ,
        *,
        start: datetime | None = None,
        timeout: Duration = "10s",
        store: bool | None = None,
    ) -> None:
        self.app = app
        self.clock = FakeClock(round((start or datetime.now(UTC)).timestamp() * 1000))
        self.failed: list[FailedJob] = []
        self._timeout = parse_seconds(timeout, what="timeout")
        self._has_store = store
        self._recorder = SendRecorder(app)
        self._catcher = FailureCatcher()
        self._stored: list[FailedRun] = []
        self._letters: set[tuple[str, int | None]] = set()
        self._opened = ExitStack()
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        # Imports included modules, since the test may call their tasks first.
        len(self.app.tasks)
        # A fresh name, so that nothing of an earlier test is left.
        middleware = (self._catcher, self._recorder)
        self._opened.enter_context(self._on(f"memory://{uuid4()}", middleware))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._runner is not None:
                self._runner.run(self.app.aclose())
                self._runner.close()
        finally:
            self._opened.close()

    @contextmanager
    def _on(self, url: str, middleware: Sequence[Middleware]) -> Generator[None, None, None]:
        """Let the app use another broker, with its own state, the test's clock and additional middleware."""
        sessions, producer = self.app.sessions, self.app.producer
        before = producer.middleware
        producer.use_middleware((*before, *middleware))
        origin = {"url": "the test", "state": "the test"}
        store = sessions.job_store
        has_store = self._has_store if self._has_store is not None else self._needs_store()
        # An earlier harness on the same app has its own.
        sessions.job_store = None
        of = (sessions.store_url or "").partition(":")[0].partition("+")[0]
        place = f"sqlite://:memory:{uuid4().hex}?of={of}" if has_store else None
        # It lives as long as a store is open on it, while the test's loops come and go.
        kept = None if place is None else open_store(place, BrokerOptions(clock=self.clock))
        settings = Settings(url=url, state=url, store=place, origin=origin)
        real = sessions.exchange(settings, self.clock, {})
        sessions.patience = Patience(self._timeout, _ADVICE)
        try:
            yield
        finally:
            try:
                sessions.close()
            finally:
                sessions.exchange(*real)
                sessions.job_store = store
                sessions.patience = None
                del kept
                producer.use_middleware(before)
                forget_memory(url)

    def _needs_store(self) -> bool:
        sessions = self.app.sessions
        is_said = sessions.job_store is not None or sessions.store_url is not None
        return is_said or any(task.call_plan.lane == "store" for task in self.app.tasks.values())

    @property
    def now(self) -> datetime:
        """Current time of the app under test, which moves only in `drain` and `advance`."""
        return to_datetime(self.clock.now_ms())

    @property
    def sent(self) -> list[SentJob]:
        """Confirmed calls, including those sent by tasks and schedules, in order; without retries."""
        return self._recorder.sent

    def sent_to(self, task: Task[..., Any] | str) -> list[SentJob]:
        """Return the confirmed calls of one task, in order."""
        name = task if isinstance(task, str) else task.name
        return [one for one in self.sent if one.task == name]

    def assert_sent(self, task: Task[..., Any] | str, *args: Any, **kwargs: Any) -> SentJob:
        """Return the last call of the task with these arguments, or any if none are given; fail if there is none.

        Raises:
            AssertionError: there was none; the message lists what was sent.
            InvalidArguments: no call could ever have these arguments.
        """
        __tracebackhide__ = True
        found = self._calls(task, args, kwargs)
        if not found:
            raise AssertionError(f"{self._format_call(task, args, kwargs)} was not sent; {self._story(task)}")
        return found[-1]

    def assert_not_sent(self, task: Task[..., Any] | str, *args: Any, **kwargs: Any) -> None:
        """Fail if a call of the task with these arguments, or any if none are given, was sent.

        Raises:
            AssertionError: there was one.
        """
        __tracebackhide__ = True
        if found := self._calls(task, args, kwargs):
            raise AssertionError(f"{found[-1]} was sent; {self._story(task)}")

    def _calls(self, task: Task[..., Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[SentJob]:
        found = self.sent_to(task)
        if not args and not kwargs:
            return found
        wanted = arguments_of(self._task(task), args, kwargs, self.app.producer.content_type)
        return [one for one in found if one.arguments == wanted]

    def _task(self, task: Task[..., Any] | str) -> Task[..., Any]:
        if not isinstance(task, str):
            return task
        if (found := self.app.tasks.get(task)) is None:
            raise AssertionError(f"the app has no task {task!r}; it has {', '.join(sorted(self.app.tasks))}")
        return found

    def _format_call(self, task: Task[..., Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        values = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
        return f"{task if isinstance(task, str) else task.name}({values})"

    def _story(self, task: Task[..., Any] | str) -> str:
        calls = self.sent_to(task) or self.sent
        if not calls:
            return "nothing was"
        lines = "".join(f"\n  {one}" for one in calls[-_SHOWN:])
        return f"what was, the last {_SHOWN} of {len(calls)}:{lines}" if len(calls) > _SHOWN else f"what was:{lines}"

    def drain(self, *, raise_errors: bool = True) -> None:
        """Run all jobs until none is left, including those they send, retries and delayed ones.

        Time jumps ahead to each of them. Schedules are not emitted.

        Raises:
            Exception: the first error of a task whose job was dead-lettered, if `raise_errors`.
            AssertionError: some jobs do not end.
        """
        __tracebackhide__ = True
        self._tell(self._run(self._drain), raise_errors=raise_errors)

    async def adrain(self, *, raise_errors: bool = True) -> None:
        """Do what `drain` does, without blocking the event loop."""
        __tracebackhide__ = True
        self._tell(await self._run_within_timeout(self._drain), raise_errors=raise_errors)

    def advance(self, step: Duration, *, raise_errors: bool = True) -> None:
        """Let time pass with a worker and a beat running; everything happens when it becomes due.

        Raises:
            Exception, AssertionError: as `drain` does.
        """
        __tracebackhide__ = True
        until = self._until(step)
        self._tell(self._run(lambda: self._advance(until)), raise_errors=raise_errors)

    async def aadvance(self, step: Duration, *, raise_errors: bool = True) -> None:
        """Do what `advance` does, without blocking the event loop."""
        __tracebackhide__ = True
        until = self._until(step)
        self._tell(await self._run_within_timeout(lambda: self._advance(until)), raise_errors=raise_errors)

    def _until(self, step: Duration) -> int:
        return self.clock.now_ms() + to_ms(parse_duration(step, what="step"))

    async def _drain(self) -> list[FailedJob]:
        async with self._virtual_run(with_beat=False) as virtual:
            while await virtual.waiting() and (instant := await virtual.next_instant()) is not None:
                virtual.move_to(instant)
        return await self._new_failures()

    async def _advance(self, until: int) -> list[FailedJob]:
        async with self._virtual_run(with_beat=True) as virtual:
            await virtual.rest()
            while (instant := await virtual.next_instant()) is not None and instant <= until:
                virtual.move_to(instant)
                await virtual.rest()
            virtual.move_to(until)
            await virtual.rest()
        return await self._new_failures()

    def _virtual_run(self, *, with_beat: bool) -> AbstractAsyncContextManager[VirtualRun]:
        queues = dict.fromkeys(one.queue for one in self.sent)
        return virtual_run(
            self.app,
            self.clock,
            queues=queues,
            activity=lambda: len(self.sent),
            failed=self._stored,
            with_beat=with_beat,
        )

    def _run(self, make: Callable[[], Coroutine[Any, Any, list[FailedJob]]]) -> list[FailedJob]:
        __tracebackhide__ = True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UnsupportedFeature(
                "drain() and advance() inside a running event loop: await adrain() or aadvance()"
            )
        if self._runner is None:
            # Not the thread's default loop, which is the test's.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        return self._runner.run(self._run_within_timeout(make))

    async def _run_within_timeout(self, make: Callable[[], Coroutine[Any, Any, list[FailedJob]]]) -> list[FailedJob]:
        __tracebackhide__ = True
        try:
            async with asyncio.timeout(self._timeout):
                return await make()
        except TimeoutError:
            raise AssertionError(
                f"after {self._timeout:g} s of real time there is still work, at {self.now.isoformat()} of the app's "
                "time: a task that hangs, that is snoozed or sends itself for ever, or a schedule that is due very "
                "often; see Harness(timeout=), or taskmq_timeout in pytest's settings"
            ) from None

    async def _new_failures(self) -> list[FailedJob]:
        broker = self.app.sessions.current().broker
        queues = dict.fromkeys([*(queue.name for queue in self.app.tasks.queues), *(one.queue for one in self.sent)])
        found: list[DeadLetter] = []
        for queue in queues:
            found += await _letters(broker, dead_letter_queue(queue))
        new = [letter for letter in found if (letter.job_id, letter.died) not in self._letters]
        self._letters.update((letter.job_id, letter.died) for letter in new)
        failures = [self._failure(letter) for letter in sorted(new, key=lambda letter: letter.died or 0)]
        failures += [self._failure_in_store(failed) for failed in self._stored]
        self._stored.clear()
        self.failed += failures
        return failures

    def _failure(self, letter: DeadLetter) -> FailedJob:
        told = ErrorRecord(
            type_name=letter.error_type,
            message=letter.error.removeprefix(f"{letter.error_type}: "),
            traceback=letter.traceback,
        )
        error = self._error(letter.job_id, told, attempts=letter.attempt)
        return FailedJob(letter.job_id, letter.task, letter.reason, letter.attempt, error)

    def _failure_in_store(self, failed: FailedRun) -> FailedJob:
        error = self._error(failed.job_id, failed.error, attempts=failed.attempts)
        return FailedJob(failed.job_id, failed.task, "error", failed.attempts, error)

    def _error(self, job_id: str, told: ErrorRecord, *, attempts: int) -> Exception:
        """Return the error that the task raised, else the reported one."""
        error = self._catcher.errors.get(job_id)
        if error is not None and type(error).__qualname__ == told.type_name.rpartition(".")[2]:
            return error
        return TaskFailed(
            job_id,
            type_name=told.type_name,
            message=told.message,
            traceback=told.traceback,
            attempts=attempts,
        )

    def _tell(self, failures: list[FailedJob], *, raise_errors: bool) -> None:
        __tracebackhide__ = True
        if not failures or not raise_errors:
            return
        first, *others = failures
        if others:
            tasks = ", ".join(sorted({other.task for other in others}))
            first.error.add_note(f"{len(others)} more jobs are dead, see Harness.failed: {tasks}")
        raise first.error.with_traceback(_of_the_task(first.error.__traceback__))


async def _letters(broker: Broker, queue: str) -> list[DeadLetter]:
    try:
        async with broker.browse(queue) as look:
            return [read_letter(delivery) for delivery in await look.take(_LETTERS)]
    except QueueMissing:
        return []


def _of_the_task(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with code outside of taskmq."""
    part = traceback
    while part is not None and str(part.tb_frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        part = part.tb_next
    return part or traceback


_OURS: Final = {"taskmq", "asyncio", "concurrent", "threading", "contextlib"}
