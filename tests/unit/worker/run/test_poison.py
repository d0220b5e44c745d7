"""Jobs that kill their worker, and those that merely ran or waited beside one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from taskmq import RetryPolicy, TaskMQ
from taskmq.contracts.broker import BrokerOptions, Delivery
from taskmq.contracts.stores import StartStore
from taskmq.errors import BrokerUnavailable, InvalidOption, StateUnavailable, WorkerLost
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.model.outcome import STOPPED, Dead, Interrupted, Outcome, Retried, Succeeded
from taskmq.model.states import JobState
from taskmq.tasks.task import Task
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt
from taskmq.worker.run.crash_counter import CrashCounter, private_folder
from taskmq.worker.run.poison import Quarantine
from taskmq_local import open_memory_state
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, ids, play, send, working
from tests.unit.worker.staged import FakeDelivery, Fault, StagedApp, open_staged, settle_loop


async def redeliver(app: StagedApp, *labels: str) -> None:
    """Send redelivered jobs that never started."""
    await send(app, *labels)
    await app.messages("work")


def starts_of(app: StagedApp) -> StartStore:
    return open_memory_state(f"memory://{app._memory_name}", BrokerOptions(clock=app.fake_clock)).starts


async def crash(app: StagedApp, label: str, *, times: int) -> None:
    """Leave behind the data of a worker that ended while it ran a redelivered job."""
    for _ in range(times):
        await starts_of(app).begin(label, ttl=1000)


def calls(app: StagedApp) -> list[str]:
    """Return the calls to the state."""
    return [name for name in app.points.names if name in ("begin", "end", "put")]


@run_by(play)
async def test_a_first_delivery_costs_the_state_nothing(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a", "b")
    gate.open.set()
    async with working(app):
        assert gate.finished == ["a", "b"]
    assert calls(app) == ["put", "put"]


@run_by(play)
async def test_a_redelivered_job_is_counted_while_it_runs_and_not_after_its_settlement(
    app: StagedApp, gate: Gate, /
) -> None:
    await redeliver(app, "a")
    async with working(app):
        assert gate.started == ["a"]
        assert calls(app) == ["begin"]
        gate.open.set()
        await settle_loop()
        assert calls(app) == ["begin", "end", "put"]
    assert await starts_of(app).begin("a", ttl=1) == 1


@run_by(play)
async def test_a_job_with_exhausted_starts_is_dead_and_reports_their_number(app: StagedApp, gate: Gate, /) -> None:
    await redeliver(app, "a")
    await crash(app, "a", times=2)
    async with working(app):
        assert gate.started == []

    (letter,) = await app.messages("work.dlq")
    assert letter.headers["x-taskmq-reason"] == "worker_lost"
    assert letter.headers["x-taskmq-error-type"] == "taskmq.errors.WorkerLost"
    assert letter.headers["x-taskmq-starts"] == 3
    assert letter.headers["x-taskmq-worker"] == "w1"
    assert "was started 3 times" in str(letter.headers["x-taskmq-error"])
    record = await app.record("a")
    assert record is not None
    assert record.state is JobState.FAILED
    # After a replay of the letter it has all its starts again.
    assert await starts_of(app).begin("a", ttl=1) == 1


@run_by(play)
async def test_a_dead_job_with_a_lost_acknowledgement_is_not_started_again(app: StagedApp, gate: Gate, /) -> None:
    await redeliver(app, "a", "a")
    await crash(app, "a", times=2)
    async with working(app, concurrency=1):
        assert gate.started == []
        assert len(await app.messages("work.dlq")) == 2

        await asyncio.sleep(6)
        assert await starts_of(app).begin("a", ttl=1) == 1


@run_by(play)
async def test_an_unpublishable_dead_letter_leaves_the_count_unchanged(app: StagedApp, gate: Gate, /) -> None:
    await redeliver(app, "a")
    await crash(app, "a", times=2)
    app.flaky.fail_publishes(100, BrokerUnavailable("staged"))
    async with working(app) as (worker, running):
        worker.requeue_now()
        await asyncio.wait((running,))
    assert gate.started == []
    assert await starts_of(app).begin("a", ttl=1) > 3


def test_the_limit_of_starts_can_be_set_and_disabled() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        gate.open.set()
        await redeliver(app, "a")
        await crash(app, "a", times=4)
        async with working(app, max_crashes=0):
            assert gate.finished == ["a"]

    play(test)

    async def higher(app: StagedApp, gate: Gate) -> None:
        gate.open.set()
        await redeliver(app, "a", "b")
        await crash(app, "a", times=4)
        await crash(app, "b", times=3)
        async with working(app, max_crashes=5):
            await asyncio.sleep(0.1)
            assert gate.started == ["b"]
        assert ids(await app.messages("work.dlq")) == ["a"]

    play(higher)


@pytest.mark.parametrize("count", [1, -1])
def test_a_limit_of_one_start_is_refused(count: int) -> None:
    with open_staged() as app:
        Gate().define(app)
        with pytest.raises(InvalidOption, match="at least 2, or 0"):
            Worker(app, WorkerConfig(max_crashes=count))


@run_by(play)
async def test_the_last_start_waits_for_other_runs_and_runs_alone(app: StagedApp, gate: Gate, /) -> None:
    await crash(app, "suspect", times=1)
    await redeliver(app, "runs", "suspect", "behind")
    async with working(app):
        await send(app, "fresh")
        await settle_loop()
        assert gate.started == ["runs"]

        await open_gate(gate)
        # Ended runs are settled first: the suspect may leave no time for it.
        assert gate.started == ["runs"]
        await asyncio.sleep(0.1)
        assert gate.started == ["runs", "suspect"]
        await open_gate(gate)
        assert sorted(gate.started[2:]) == ["behind", "fresh"]


async def open_gate(gate: Gate) -> None:
    """Open the gate for the present waiters."""
    gate.open.set()
    gate.open.clear()
    await settle_loop()


@run_by(play)
async def test_jobs_behind_a_suspect_have_not_started_and_are_not_charged_for_its_crash(
    app: StagedApp, gate: Gate, /
) -> None:
    labels = [f"beside {number}" for number in range(6)]
    await crash(app, "suspect", times=1)
    await redeliver(app, "suspect", *labels)
    async with working(app, concurrency=4):
        assert gate.started == ["suspect"]
        # If the process were killed now:
        for label in labels:
            assert await starts_of(app).begin(label, ttl=1) == 1
            await starts_of(app).end(label)
        gate.open.set()
        await settle_loop()
        assert sorted(gate.finished) == sorted([*labels, "suspect"])


@run_by(play)
async def test_isolation_has_a_limit_so_that_a_long_task_does_not_stop_all_others(
    app: StagedApp, gate: Gate, /
) -> None:
    await crash(app, "suspect", times=1)
    await redeliver(app, "long", "suspect")
    async with working(app):
        assert gate.started == ["long"]
        await asyncio.sleep(31)
        assert gate.started == ["long", "suspect"]
        await send(app, "later")
        await settle_loop()
        assert gate.started == ["long", "suspect"]
        await asyncio.sleep(31)
        assert gate.started == ["long", "suspect", "later"]
        await open_gate(gate)
        assert len(gate.finished) == 3


@run_by(play)
async def test_an_interrupted_suspect_is_requeued_without_a_counted_crash(app: StagedApp, gate: Gate, /) -> None:
    await crash(app, "suspect", times=1)
    await redeliver(app, "suspect", "behind", "more")
    async with working(app) as (worker, running):
        assert gate.started == ["suspect"]
        worker.requeue_now()
        await asyncio.wait((running,))
    assert sorted(str(name) for name in ids(await app.messages("work"))) == ["behind", "more", "suspect"]
    for label in ("suspect", "behind", "more"):
        assert await starts_of(app).begin(label, ttl=1) == 1


async def test_a_task_that_ignores_its_cancellation_is_not_charged_for_the_stop() -> None:
    with open_staged() as app:
        freed = asyncio.Event()

        @app.task(name="stubborn", queue="work")
        async def stubborn(label: str) -> None:
            while not freed.is_set():
                try:
                    await freed.wait()
                except asyncio.CancelledError:
                    continue

        await send(app, "a", task="stubborn")
        await app.messages("work")
        async with working(app) as (worker, running):
            worker.requeue_now()
            await asyncio.wait((running,))
            assert worker.left_behind == 1
        assert await starts_of(app).begin("a", ttl=1) == 1
        freed.set()
        await settle_loop()


@run_by(play)
async def test_without_an_answer_of_the_state_jobs_run_uncounted_with_one_warning(
    app: StagedApp, gate: Gate, /, caplog: pytest.LogCaptureFixture
) -> None:
    await redeliver(app, "a", "b", "c")
    app.points.plan = [Fault.NONE] * 2
    app.points.rest = Fault.REFUSED
    with caplog.at_level(logging.WARNING, "taskmq.worker"):
        async with working(app):
            assert gate.started == ["a", "b", "c"]
            gate.open.set()
            await settle_loop()
            app.points.rest = Fault.NONE
            await asyncio.sleep(10)
            assert gate.finished == ["a", "b", "c"]
    assert caplog.text.count("counting starts of jobs failed") == 1


@run_by(play)
async def test_a_hanging_state_delays_only_redelivered_jobs(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    await redeliver(app, "a")
    app.points.plan = [Fault.NONE, Fault.NONE, Fault.HANGS]
    async with working(app):
        await send(app, "fresh")
        await settle_loop()
        assert gate.started == ["fresh"]
        await asyncio.sleep(6)
        assert gate.started == ["fresh", "a"]


@run_by(play, ack="early")
async def test_a_task_with_early_acknowledgement_is_not_counted(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    await crash(app, "a", times=9)
    await redeliver(app, "a")
    async with working(app):
        assert gate.finished == ["a"]


class Revoked(FakeDelivery):
    revoked = False


class Stage:
    """A quarantine with a run controlled by the test."""

    def __init__(self, app: TaskMQ, run: Callable[[Attempt], Awaitable[Outcome]], **options: Any) -> None:
        self.running: dict[asyncio.Task[None], Delivery] = {}
        self.store = app.sessions.current().state.starts  # type: ignore[union-attr]
        self.quarantine = Quarantine(run, CrashCounter(app), most=3, running=self.running, resume=lambda: None)
        self._task: Task[..., Any] = app.task(name="job", **options)(_do_nothing)

    def attempt(self, *, redelivered: bool = False, delivery: Delivery | None = None) -> Attempt:
        body = b'{"task":"job","id":"job-1"}'
        delivery = delivery or FakeDelivery(body, redelivered=redelivered)
        envelope: Envelope = decode_envelope(body, "application/json")
        return Attempt(delivery, envelope, self._task, "job-1")


async def _do_nothing() -> None: ...


def _plain() -> None: ...


@pytest.mark.parametrize("retry", [None, RetryPolicy(max_attempts=10)])
async def test_a_process_that_dies_under_its_task_is_a_start_whatever_the_retry_policy(
    retry: RetryPolicy | None,
) -> None:
    runs: list[Attempt] = []

    async def dies(attempt: Attempt) -> Outcome:
        runs.append(attempt)
        lost = WorkerLost("the task's process ended: killed by SIGKILL")
        return Retried(policy.delay(1, fraction=0), lost) if (policy := retry) else Dead("worker_lost", lost)

    with open_staged() as app:
        stage = process_stage(app, dies)
        outcome = await stage.quarantine.run(stage.attempt())
        assert isinstance(outcome, Dead)
        assert outcome.reason == "worker_lost"
        assert isinstance(outcome.error, WorkerLost)
        assert outcome.error.starts == len(runs) == 3
        await stage.quarantine.aclose()


async def test_deaths_of_processes_and_of_workers_are_counted_together() -> None:
    runs: list[Attempt] = []

    async def dies(attempt: Attempt) -> Outcome:
        runs.append(attempt)
        return Dead("worker_lost", WorkerLost("gone"))

    with open_staged() as app:
        stage = process_stage(app, dies)
        # The first start ended with the worker.
        outcome = await stage.quarantine.run(stage.attempt(redelivered=True))
        assert isinstance(outcome, Dead)
        assert len(runs) == 2


async def test_a_dying_process_has_three_starts_even_without_the_state() -> None:
    runs: list[Attempt] = []

    async def dies(attempt: Attempt) -> Outcome:
        runs.append(attempt)
        return Dead("worker_lost", WorkerLost("gone"))

    with open_staged() as app:
        stage = process_stage(app, dies)
        app.points.rest = Fault.REFUSED
        await stage.quarantine.run(stage.attempt())
        assert len(runs) == 3


async def test_a_process_that_dies_once_costs_its_task_no_attempt() -> None:
    outcomes: list[Outcome] = [Dead("worker_lost", WorkerLost("gone")), Succeeded(7)]

    async def recovers(attempt: Attempt) -> Outcome:
        assert attempt.envelope.attempt == 1
        return outcomes.pop(0)

    with open_staged() as app:
        stage = process_stage(app, recovers)
        assert await stage.quarantine.run(stage.attempt()) == Succeeded(7)
        assert await stage.store.begin("job-1", ttl=1) == 1


async def test_processes_ended_by_a_stopping_worker_are_not_deaths() -> None:
    with open_staged() as app:

        async def dies(attempt: Attempt) -> Outcome:
            stage.quarantine.is_stopping = True
            return Dead("worker_lost", WorkerLost("gone"))

        stage = process_stage(app, dies)
        assert await stage.quarantine.run(stage.attempt()) == Interrupted(STOPPED)


async def test_a_redelivery_is_not_counted_while_its_first_delivery_runs_here() -> None:
    with open_staged() as app:
        freed = asyncio.Event()

        async def waits(attempt: Attempt) -> Outcome:
            await freed.wait()
            return Succeeded(None)

        stage = Stage(app, waits)
        first = stage.attempt()
        tasks = [asyncio.ensure_future(stage.quarantine.run(first))]
        stage.running[tasks[0]] = first.delivery  # type: ignore[index]
        for _ in range(5):
            again = stage.attempt(redelivered=True)
            task = asyncio.ensure_future(stage.quarantine.run(again))
            stage.running[task] = again.delivery  # type: ignore[index]
            tasks.append(task)
        await settle_loop()
        assert app.points.names == []
        freed.set()
        assert await asyncio.gather(*tasks) == [Succeeded(None)] * 6


async def test_the_crash_count_of_a_void_delivery_is_undone() -> None:
    with open_staged() as app:
        freed = asyncio.Event()

        async def waits(attempt: Attempt) -> Outcome:
            await freed.wait()
            return Succeeded(None)

        stage = Stage(app, waits)
        delivery = Revoked(b"", redelivered=True)
        running = asyncio.ensure_future(stage.quarantine.run(stage.attempt(delivery=delivery)))
        await asyncio.sleep(5)
        assert app.points.names == ["begin"]
        delivery.revoked = True
        await asyncio.sleep(1)
        assert app.points.names == ["begin", "end"]
        # This worker must not end the count of another one.
        assert await stage.store.begin("job-1", ttl=1000) == 1
        freed.set()
        await running
        assert await stage.store.begin("job-1", ttl=1000) == 2
        await stage.quarantine.aclose()


def process_stage(app: TaskMQ, run: Callable[[Attempt], Awaitable[Outcome]]) -> Stage:
    stage = Stage(app, run)
    stage._task = app.task(name="plain", executor="process")(_plain)
    return stage


# Counts of an app without a state


def test_an_app_without_a_state_counts_in_a_folder_private_to_its_user(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def main() -> None:
        app = TaskMQ("amqp://localhost:1/shop", name="test")
        first, second = CrashCounter(app), CrashCounter(app)
        assert [await one.begin("a") for one in (first, second)] == [1, 2]
        await second.end("a")
        assert await first.begin("a") == 1
        await first.aclose()
        await second.aclose()
        await app.aclose()

    asyncio.run(main())
    (own,) = tmp_path.iterdir()
    assert own.stat().st_mode & 0o777 == 0o700
    (folder,) = own.iterdir()
    assert folder == private_folder("amqp://guest@localhost:1/shop")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_accessible_to_others_is_not_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    private_folder("amqp://localhost/").parent.chmod(0o777)
    with pytest.raises(StateUnavailable, match="only this user can enter"):
        private_folder("amqp://localhost/")
