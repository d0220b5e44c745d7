"""Runs in threads without a waiting coroutine: their ends, their slots, their time."""

import asyncio
import contextvars
import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Context, RetryPolicy
from taskmq.contracts.broker import Delivery
from taskmq.errors import TaskTimeout, WorkerLost
from taskmq.executors import ThreadExecutor
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import Outcome, Succeeded
from taskmq.model.states import JobState
from taskmq.model.telemetry.metrics import Count
from taskmq.run.context import current_context
from taskmq.run.execution import Execution
from taskmq.worker.attempt import Attempt
from taskmq.worker.run.crash_counter import CrashCounter
from taskmq.worker.run.poison import Quarantine
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run.thread_runs import ThreadRuns
from tests.unit.worker.gate import ids, send, working
from tests.unit.worker.services.test_cancellations import wait_until_reached
from tests.unit.worker.staged import FakeDelivery, open_staged, settle_loop

pytestmark = pytest.mark.real_time

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


class Yard:
    """Runs in threads, and a record of their reported ends."""

    def __init__(self) -> None:
        self.executor = ThreadExecutor()
        self.stats = WorkerStats()
        self.runs = ThreadRuns(
            self.executor,
            self.stats,
            time.monotonic,
            ended=self.tell,
            settled=self.settle,
        )
        self.count = Count("task", "work")
        self.ends: list[tuple[str, object, BaseException | None]] = []
        self.settled_ones: list[Delivery] = []

    def tell(self, attempt: Attempt, value: object, error: BaseException | None, /) -> None:
        self.wait_for_end(attempt, value, error)

    def wait_for_end(self, attempt: Attempt, value: object, error: BaseException | None, /) -> None:
        self.stats.forget(attempt)
        self.ends.append((attempt.job_id, value, error))

    def settle(self, delivery: Delivery, error: BaseException | None, /, *, now: float) -> None:
        assert error is None
        self.settled_ones.append(delivery)

    def begin(
        self, name: str, function: Callable[[], object], *, timeout: float | None = None, is_kept: bool = True
    ) -> Attempt:
        envelope = Envelope(task="task", id=name)
        context = Context(envelope, job_id=name, max_attempts=1, queue="work", redelivered=False)
        execution = Execution(context, function, (), {}, envelope, "application/json", timeout)
        attempt: Attempt = Attempt(FakeDelivery(b""), envelope, None, name, execution=execution)  # type: ignore[arg-type]
        self.runs.begin(
            attempt,
            execution,
            contextvars.copy_context(),
            count=None if is_kept else self.count,
            now=time.monotonic(),
        )
        return attempt

    async def close(self) -> None:
        self.runs.close()
        await self.executor.aclose()
        await wait_until_reached(lambda: self.executor.abandoned == 0)
        assert not self.runs.going
        assert not self.stats.running


async def test_a_run_without_a_stored_result_is_acked_and_counted_when_it_is_reported() -> None:
    yard = Yard()

    attempt = yard.begin("a", lambda: 1, is_kept=False)
    await wait_until_reached(lambda: not yard.runs.going)

    assert yard.ends == []
    assert yard.settled_ones == [attempt.delivery]
    assert yard.count.outcomes == {"succeeded": 1}
    assert yard.stats.ended == 1
    await yard.close()


async def test_a_value_or_error_of_a_function_is_reported_with_its_attempt() -> None:
    yard = Yard()
    error, stop = ValueError("no"), StopIteration("not an end")

    def fail(how: BaseException) -> Callable[[], object]:
        def function() -> None:
            raise how

        return function

    yard.begin("value", lambda: 42)
    yard.begin("error", fail(error), is_kept=False)
    yard.begin("stop", fail(stop))
    await wait_until_reached(lambda: not yard.runs.going)

    ends = {name: (value, raised) for name, value, raised in yard.ends}
    assert ends["value"] == (42, None)
    assert ends["error"] == (None, error)
    assert isinstance(ends["stop"][1], RuntimeError)
    await yard.close()


async def test_each_run_has_its_own_timeout_and_a_late_thread_is_ignored() -> None:
    yard = Yard()
    patience, release = threading.Event(), threading.Event()
    began = time.monotonic()
    over: dict[str, float] = {}
    ended = yard.wait_for_end

    def note(attempt: Attempt, value: object, error: BaseException | None, /) -> None:
        over[attempt.job_id] = time.monotonic() - began
        ended(attempt, value, error)

    yard.wait_for_end = note  # type: ignore[method-assign]
    yard.begin("patient", lambda: patience.wait(20), timeout=20.0)
    yard.begin("in time", lambda: "done", timeout=20.0)
    await wait_until_reached(lambda: "in time" in over)
    assert "patient" not in over
    patience.set()
    for name, seconds in (("long", 0.4), ("short", 0.1), ("late", 0.1)):
        yard.begin(name, lambda: release.wait(20), timeout=seconds)
    await wait_until_reached(lambda: not yard.runs.going)

    errors = {name: error for name, _, error in yard.ends}
    assert [errors.pop(name) for name in ("patient", "in time")] == [None, None]
    assert all(isinstance(error, TaskTimeout) for error in errors.values())
    assert over["short"] >= 0.1
    assert over["long"] >= 0.4
    assert yard.executor.abandoned == 3
    told = len(yard.ends)
    release.set()
    await yard.close()
    assert len(yard.ends) == told


async def test_an_abandoned_run_ends_with_a_cancellation_and_sees_it() -> None:
    yard = Yard()
    release = threading.Event()

    attempt = yard.begin("a", lambda: release.wait(20), is_kept=False)
    (end,) = yard.runs.ends()
    yard.runs.give_up(attempt)
    yard.runs.give_up(attempt)

    assert end.done()
    assert [type(error) for _, _, error in yard.ends] == [asyncio.CancelledError]
    assert attempt.execution is not None
    assert attempt.execution.context.cancelled
    assert yard.executor.abandoned == 1
    release.set()
    await yard.close()
    assert len(yard.ends) == 1


async def test_log_lines_of_a_timed_out_run_name_its_job() -> None:
    yard = Yard()
    release = threading.Event()
    said: list[tuple[str, str]] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append((str(record.args[0]) if isinstance(record.args, tuple) else "", VARIABLE.get()))

    listener = Listener()
    logging.getLogger("taskmq.worker").addHandler(listener)
    try:
        for name in "ab":
            token = VARIABLE.set(name)
            yard.begin(name, lambda: release.wait(20), timeout=0.02)
            VARIABLE.reset(token)
        await wait_until_reached(lambda: not yard.runs.going)
    finally:
        logging.getLogger("taskmq.worker").removeHandler(listener)

    assert said == [("a", "a"), ("b", "b")]
    release.set()
    await yard.close()


async def test_nothing_starts_in_a_closed_executor() -> None:
    yard = Yard()
    await yard.executor.aclose()

    with pytest.raises(WorkerLost):
        yard.begin("a", lambda: 1)
    assert not yard.runs.going


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["return", "raise", "stand"]),
            st.sampled_from([None, 0.01, 0.03, 5.0]),
            st.booleans(),
            st.sampled_from(["let be", "give up", "give up later"]),
        ),
        max_size=20,
    )
)
async def test_each_run_ends_once_under_any_combination_of_events(
    plans: list[tuple[str, float | None, bool, str]],
) -> None:
    yard = Yard()
    release = threading.Event()
    ways: dict[str, Callable[[], object]] = {
        "return": lambda: "value",
        "raise": lambda: int("no number"),
        "stand": lambda: release.wait(20),
    }
    later: list[Attempt] = []
    for number, (way, timeout, is_kept, fate) in enumerate(plans):
        attempt = yard.begin(str(number), ways[way], timeout=timeout, is_kept=is_kept)
        if fate == "give up":
            yard.runs.give_up(attempt)
        elif fate == "give up later":
            later.append(attempt)
    await asyncio.sleep(0)
    for attempt in later:
        yard.runs.give_up(attempt)
    ends = yard.runs.ends()
    release.set()
    if ends:
        await asyncio.wait(ends)
    await yard.close()

    counted = Counter(name for name, _, _ in yard.ends)
    assert len(counted) + len(yard.settled_ones) == len(plans)
    assert all(times == 1 for times in counted.values())
    assert yard.count.outcomes.get("succeeded", 0) == len(yard.settled_ones)


async def test_an_ended_run_is_released() -> None:
    def attempts() -> int:
        # `isinstance` would ask lazy objects of other tests' libraries for their class, and these raise.
        return sum(type(each) is Attempt for each in gc.get_objects())

    yard = Yard()
    gc.collect()
    before = attempts()
    for number in range(50):
        yard.begin(str(number), lambda: None, timeout=20, is_kept=False)
    await wait_until_reached(lambda: not yard.runs.going)
    yard.settled_ones.clear()

    def is_gone() -> bool:
        gc.collect()
        return attempts() <= before

    await wait_until_reached(is_gone)
    await yard.close()


@pytest.mark.parametrize("result", [True, False])
async def test_no_more_threads_run_than_there_are_slots(result: bool) -> None:
    with open_staged() as app:
        lock, running, most, done = threading.Lock(), 0, 0, 0

        @app.task(name="plain", queue="work", result=result)
        def plain(label: str) -> None:
            nonlocal running, most, done
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.001)
            with lock:
                running -= 1
                done += 1

        async with working(app, concurrency=3):
            await send(app, *map(str, range(60)), task="plain")
            await wait_until_reached(lambda: done == 60)
            assert 1 <= most <= 3


async def test_a_run_beyond_its_time_leaves_its_slot_to_the_next_one() -> None:
    with open_staged() as app:
        release, ran = threading.Event(), threading.Event()

        @app.task(name="stuck", queue="work", timeout=0.05, retry=None)
        def stuck(label: str) -> None:
            release.wait(20)

        @app.task(name="next", queue="work")
        def following(label: str) -> None:
            ran.set()

        async with working(app, concurrency=1) as (worker, _):
            await send(app, "a", task="stuck")
            await send(app, "b", task="next")
            await wait_until_reached(ran.is_set)

            record = await app.jobs.find_result("a")
            assert record is not None
            assert record.state is JobState.FAILED
            assert worker.status().abandoned == 1
            release.set()
            await wait_until_reached(lambda: worker.status().abandoned == 0)


async def test_a_draining_worker_waits_for_its_threads_and_settles_their_runs() -> None:
    with open_staged() as app:
        begun, release = threading.Event(), threading.Event()

        @app.task(name="plain", queue="work")
        def plain(label: str) -> str:
            begun.set()
            release.wait(20)
            return label

        async with working(app) as (worker, running):
            await send(app, "a", task="plain")
            await wait_until_reached(begun.is_set)
            worker.drain()
            await asyncio.sleep(0.05)
            assert not running.done()
            release.set()
            await running

            assert worker.stats.count_of("plain", "work").outcomes == {"succeeded": 1}
            assert ids(await app.messages("work")) == []


async def test_a_worker_stopped_at_once_requeues_runs_in_threads() -> None:
    with open_staged() as app:
        begun, release = threading.Event(), threading.Event()
        contexts: list[Context] = []

        @app.task(name="plain", queue="work", result=False)
        def plain(context: Context, label: str) -> None:
            contexts.append(context)
            begun.set()
            release.wait(20)

        async with working(app) as (worker, running):
            await send(app, "a", task="plain")
            await wait_until_reached(begun.is_set)
            worker.requeue_now()
            await running

            assert worker.left_behind == 0
            assert contexts[0].cancelled
            assert ids(await app.messages("work")) == ["a"]
        release.set()


async def test_runs_in_threads_have_their_own_variables_and_know_their_job(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "taskmq.worker"), open_staged() as app:
        seen: list[tuple[str, str, str]] = []
        ended = threading.Event()

        @app.task(name="plain", queue="work", retry=None)
        def plain(label: str) -> None:
            context = current_context.get()
            assert context is not None
            seen.append((label, VARIABLE.get(), context.job_id))
            VARIABLE.set(label)
            if label == "last":
                ended.set()
                raise ValueError("on purpose")

        async with working(app, concurrency=1):
            await send(app, *"abc", "last", task="plain")
            await wait_until_reached(ended.is_set)

            async def is_dead() -> bool:
                record = await app.jobs.find_result("last")
                return record is not None and record.state is JobState.FAILED

            await wait_until_reached(is_dead)
        assert seen == [(label, "unset", label) for label in (*"abc", "last")]
    assert "job last of task plain" in caplog.text


async def test_a_failure_in_a_thread_is_retried_like_any_other() -> None:
    with open_staged() as app:
        attempts: list[int] = []

        @app.task(name="plain", queue="work", retry=RetryPolicy(max_attempts=2, base=0))
        def plain(context: Context, label: str) -> int:
            attempts.append(context.attempt)
            if context.attempt == 1:
                raise ValueError("on purpose")
            return context.attempt

        async with working(app):
            await send(app, "a", task="plain")

            async def has_succeeded() -> bool:
                record = await app.jobs.find_result("a")
                return record is not None and record.state is JobState.SUCCEEDED

            await wait_until_reached(has_succeeded)
        assert attempts == [1, 2]


async def test_a_job_that_must_run_alone_waits_for_runs_in_threads() -> None:
    with open_staged() as app:
        task = app.task(name="suspect", queue="work")(_do_nothing)
        state = app.sessions.current().state
        assert state is not None
        await state.starts.begin("suspect-1", ttl=1000)
        yard, release, began = Yard(), threading.Event(), asyncio.Event()

        async def run(_: Attempt) -> Outcome:
            began.set()
            return Succeeded(None)

        quarantine = Quarantine(run, CrashCounter(app), most=3, running={}, threads=yard.runs, resume=lambda: None)
        envelope = Envelope(task="suspect", id="suspect-1")
        suspect = Attempt(FakeDelivery(b"", redelivered=True, message_id="suspect-1"), envelope, task, "suspect-1")

        yard.begin("beside", lambda: release.wait(20))
        running = asyncio.create_task(quarantine.run(suspect))
        await wait_until_reached(lambda: bool(yard.runs.going) and quarantine.is_closed)
        await settle_loop()
        assert not began.is_set()
        release.set()
        await running
        assert began.is_set()
        assert not yard.runs.going
        await quarantine.aclose()
        await yard.close()


async def _do_nothing() -> None: ...
