"""The way from a delivery to its outcome: every path, and never an exception."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Context, Ignore, Reject, Retry, RetryPolicy, Snooze, TaskMQ
from taskmq.errors import InvalidArguments, InvalidOption, TaskTimeout
from taskmq.middleware.chain import Middleware, Proceed
from taskmq.model.envelope import MSGPACK
from taskmq.model.headers import UNKNOWN
from taskmq.model.outcome import STOPPED, Cancelled, Dead, Interrupted, Outcome, Parked, Retried, Snoozed, Succeeded
from taskmq.run.execution import Execution
from taskmq.worker import WorkerConfig
from taskmq.worker.attempt import Attempt
from tests.unit.worker.bench import NOW, add, bench, nothing, outcome_of, run
from tests.unit.worker.staged import FakeDelivery, settle_loop

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        (b"", "application/json", "not a task"),
        (b"\xff\xfe", "application/json", "not a task"),
        (b"{", "application/json", "not a task"),
        (b"[]", "application/json", "not a task"),
        (b"{}", "application/json", "task"),
        (b'{"task": 7}', "application/json", "task"),
        (b'{"task": "add", "attempt": "x"}', "application/json", "attempt"),
        (b'{"task": "add", "attempt": 0}', "application/json", "attempt"),
        (b'{"task": "add", "attempt": 4294967296}', "application/json", "attempt"),
        (b'{"task": "add", "eta": -1}', "application/json", "eta"),
        (b'{"task": "add", "v": 4}', "application/json", "version 4"),
        (b'{"task": "add"}', "text/plain", "text/plain"),
        (b'{"task": "add"}', "application/msgpack", "not a task"),
        (b"[" * 100_000, "application/json", "not a task"),
    ],
)
def test_an_invalid_body_is_parked_permanently_with_the_reason(body: bytes, content_type: str, words: str) -> None:
    outcome = outcome_of(add, body, content_type=content_type)

    assert isinstance(outcome, Parked)
    assert outcome.delay is None
    assert words in outcome.reason


@given(body=st.binary(max_size=200), content_type=st.none() | st.sampled_from(["application/json", MSGPACK, "", "x"]))
def test_no_body_makes_the_processor_raise(body: bytes, content_type: str | None) -> None:
    with bench(add) as it:
        read = it.processor.read(FakeDelivery(body, content_type=content_type))

        assert isinstance(read, Attempt | Parked)


@given(
    fields=st.dictionaries(
        st.sampled_from(["args", "kwargs", "attempt", "eta", "expires", "v", "meta", "id", "more"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
    )
)
async def test_any_field_values_of_a_message_lead_to_an_outcome(fields: dict[str, object]) -> None:
    with bench(add) as it:
        body = json.dumps({"task": "add", **fields}).encode()
        assert isinstance(await it.outcome(body), Succeeded | Dead | Parked | Snoozed | Cancelled)


def test_an_unknown_task_is_requeued_with_growing_delays_and_then_parked() -> None:
    with bench(nothing, config=WorkerConfig(unknown_attempts=3, unknown_delay=5)) as it:

        def parked_outcome(count: object) -> Parked:
            headers = {UNKNOWN: count} if count is not None else {}
            read = it.processor.read(FakeDelivery(b'{"task":"add"}', headers=headers))
            assert isinstance(read, Parked)
            return read

        delays = [parked_outcome(count).delay for count in (None, 1, 2, 3, 4)]
        last = parked_outcome(3)

        assert delays == [timedelta(seconds=5), timedelta(seconds=10), timedelta(seconds=20), None, None]
        assert "'add' is not registered" in parked_outcome(None).reason
        assert "4 tries" in last.reason
        assert parked_outcome("many").delay == timedelta(seconds=5)
        assert parked_outcome(-(2**63)).delay is not None


def test_the_simplest_message_from_another_language_runs() -> None:
    assert outcome_of(add, {"task": "add", "args": [7]}) == Succeeded(8)
    assert outcome_of(add, {"task": "add", "args": [7]}, content_type=None, message_id=None) == Succeeded(8)


def test_the_job_id_comes_from_the_body_or_the_message_or_is_new() -> None:
    with bench(add) as it:

        def job_id(body: bytes, message_id: str | None) -> str:
            read = it.processor.read(FakeDelivery(body, message_id=message_id))
            assert isinstance(read, Attempt)
            return read.job_id

        made = [job_id(b'{"task":"add"}', None) for _ in range(2)]

        assert job_id(b'{"task":"add","id":"a"}', "b") == "a"
        assert job_id(b'{"task":"add"}', "b") == "b"
        assert len(set(made)) == 2
        assert all(len(each) == 36 for each in made)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"args": ["x"]}, "int"),
        ({}, "'a' is missing"),
        ({"args": [1, 2, 3]}, "too many"),
        ({"kwargs": {"a": 1, "c": 2}}, "c"),
        ({"args": [1], "kwargs": {"a": 1}}, "twice"),
        ({"args": 5}, "array"),
        ({"kwargs": [1]}, "object"),
    ],
)
def test_mismatching_arguments_make_a_dead_letter_without_a_run(fields: dict[str, object], words: str) -> None:
    outcome = outcome_of(add, {"task": "add", **fields})

    assert isinstance(outcome, Dead)
    assert outcome.reason == "invalid_arguments"
    assert isinstance(outcome.error, InvalidArguments)
    assert words in str(outcome.error)


def test_an_unresolvable_annotation_fails_the_task_and_not_the_worker() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="broken", retry=None, result=False)
        async def broken(a: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821 - the point
            ...

    outcome = outcome_of(define, {"task": "broken", "args": [1]})

    assert isinstance(outcome, Dead)
    assert isinstance(outcome.error, InvalidOption)


class _Moody(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        raise LookupError("not today")


def test_an_error_while_decoding_a_type_does_not_reach_the_worker() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="moody")
        async def moody(value: _Moody) -> None: ...

    outcome = outcome_of(define, {"task": "moody", "args": [{"a": 1}]})

    assert isinstance(outcome, Dead | Retried)


def test_a_job_that_has_expired_is_cancelled_and_does_not_run() -> None:
    assert outcome_of(add, {"task": "add", "args": [1], "expires": NOW}) == Cancelled("expired before it started")
    assert outcome_of(add, {"task": "add", "args": [1], "expires": NOW + 1}) == Succeeded(2)


def test_a_message_long_before_its_time_returns_to_the_broker() -> None:
    outcome = outcome_of(add, {"task": "add", "args": [1], "eta": NOW + 126})

    assert outcome == Snoozed(timedelta(milliseconds=126))


async def test_a_message_shortly_before_its_time_is_held_until_then() -> None:
    with bench(add) as it:
        running = asyncio.create_task(it.outcome({"task": "add", "args": [1], "eta": NOW + 125}))
        await it.clock.wait_for_sleepers()
        it.clock.advance(0.124)
        await settle_loop()
        assert not running.done()

        it.clock.advance(0.001)

        assert await running == Succeeded(2)


async def test_a_held_job_may_expire() -> None:
    with bench(add) as it:
        body = {"task": "add", "args": [1], "eta": NOW + 100, "expires": NOW + 50}
        running = asyncio.create_task(it.outcome(body))
        await it.clock.wait_for_sleepers()
        it.clock.advance(0.1)

        assert isinstance(await running, Cancelled)


def test_a_message_that_is_due_runs() -> None:
    assert outcome_of(add, {"task": "add", "args": [1], "eta": NOW}) == Succeeded(2)


def _raising(error: BaseException, **options: Any) -> Callable[[TaskMQ], None]:
    def define(app: TaskMQ) -> None:
        async def on_the_loop() -> None:
            raise error

        def in_a_thread() -> None:
            raise error

        app.task(name="async", **options)(on_the_loop)
        app.task(name="thread", **options)(in_a_thread)

    return define


KINDS = pytest.mark.parametrize("kind", ["async", "thread"])
NO_JITTER = RetryPolicy(max_attempts=3, jitter=False)


@KINDS
def test_an_error_is_retried_until_the_attempts_are_used_up(kind: str) -> None:
    error = ValueError("no")
    define = _raising(error, retry=NO_JITTER)

    outcomes = [outcome_of(define, {"task": kind, "attempt": attempt}) for attempt in (1, 2, 3)]

    assert outcomes == [
        Retried(timedelta(seconds=1), error),
        Retried(timedelta(seconds=2), error),
        Dead("error", error),
    ]


@KINDS
def test_control_flow_exceptions_determine_the_outcome(kind: str) -> None:
    def outcome(error: BaseException) -> Outcome:
        return outcome_of(_raising(error, retry=NO_JITTER), {"task": kind})

    retry, reject = Retry(delay="7s"), Reject("not mine")

    assert outcome(retry) == Retried(timedelta(seconds=7), retry)
    assert outcome(Snooze("1h")) == Snoozed(timedelta(hours=1))
    assert outcome(reject) == Dead("rejected", reject)
    assert outcome(Ignore("gone")) == Cancelled("gone")


@KINDS
@pytest.mark.parametrize("with_timeout", [False, True])
@pytest.mark.parametrize(
    "kind_of_error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, BaseException]
)
def test_no_error_of_a_task_kills_the_worker(
    kind: str, with_timeout: bool, kind_of_error: type[BaseException]
) -> None:
    error = kind_of_error("from the task")
    define = _raising(error, **({"timeout": 10} if with_timeout else {}))

    outcome = outcome_of(define, {"task": kind})

    assert isinstance(outcome, Retried)
    assert isinstance(outcome.error, kind_of_error)


@KINDS
@pytest.mark.parametrize("kind_of_error", [StopIteration, StopAsyncIteration])
def test_an_internal_python_exception_is_a_failure_like_any_other(kind: str, kind_of_error: type[Exception]) -> None:
    outcome = outcome_of(_raising(kind_of_error(), retry=None), {"task": kind})

    assert isinstance(outcome, Dead)
    assert isinstance(outcome.error, kind_of_error | RuntimeError)


def test_a_task_that_cancels_itself_has_failed() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="suicidal")
        async def suicidal() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    outcome = outcome_of(define, {"task": "suicidal"})
    assert isinstance(outcome, Retried)
    assert isinstance(outcome.error, asyncio.CancelledError)


async def test_a_run_cancelled_by_an_interrupting_worker_is_not_an_attempt() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="long")
        async def long(context: Context) -> None:
            contexts.append(context)
            await asyncio.get_running_loop().create_future()

    contexts: list[Context] = []
    with bench(define) as it:
        running = asyncio.create_task(it.outcome({"task": "long"}))
        await settle_loop()
        it.processor.is_interrupting = True
        running.cancel()

        assert await running == Interrupted(STOPPED)
        assert contexts[0].cancelled


async def test_a_task_that_turns_its_interruption_into_a_result_has_a_result() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="long")
        async def long() -> str:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                return "half done"
            return "done"

    with bench(define) as it:
        running = asyncio.create_task(it.outcome({"task": "long"}))
        await settle_loop()
        it.processor.is_interrupting = True
        running.cancel()

        assert await running == Succeeded("half done")


def test_a_run_beyond_its_time_limit_fails_with_a_timeout() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="long", timeout=0.01, retry=None)
        async def long() -> None:
            await asyncio.get_running_loop().create_future()

    outcome = outcome_of(define, {"task": "long"})

    assert isinstance(outcome, Dead)
    assert outcome.reason == "timeout"
    assert isinstance(outcome.error, TaskTimeout)


class _Named(Middleware):
    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        self.calls.append(f"{self.name} in")
        try:
            return f"{self.name}({await proceed(execution)})"
        finally:
            self.calls.append(f"{self.name} out")


class _Raising(Middleware):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        raise self.error


class _Doubling(Middleware):
    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        execution.args = tuple(2 * arg for arg in execution.args)
        return await proceed(execution)


def _with_middleware(*middleware: Middleware) -> Outcome:
    seen: list[Outcome] = []

    async def main() -> None:
        with bench(add, middleware=middleware) as it:
            seen.append(await it.outcome({"task": "add", "args": [20, 1]}))

    run(main())
    return seen[0]


def test_the_first_middleware_is_the_outermost_and_its_return_value_is_the_result() -> None:
    calls: list[str] = []

    outcome = _with_middleware(_Named("a", calls), Middleware(), _Named("b", calls))

    assert calls == ["a in", "b in", "b out", "a out"]
    assert outcome == Succeeded("a(b(21))")


@pytest.mark.parametrize("error", [ValueError("m"), Reject("m"), SystemExit(3)], ids=repr)
def test_an_exception_of_a_middleware_counts_as_one_of_the_task(error: BaseException) -> None:
    calls: list[str] = []

    outcome = _with_middleware(_Named("a", calls), _Raising(error))

    assert isinstance(outcome, Retried | Dead)
    assert outcome.error is error
    assert calls == ["a in", "a out"]


def test_a_middleware_may_change_the_arguments() -> None:
    assert _with_middleware(_Doubling()) == Succeeded(42)
