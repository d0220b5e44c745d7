"""The journal of a worker's runs, on `memory://` with a manual clock."""

import asyncio
import json
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from taskmq import Context, RunSuperseded, StateUnavailable, TaskMQ, UnsupportedFeature
from taskmq.contracts.stores import BegunRun, ProgressRecord
from taskmq.errors import TaskFailed
from taskmq.executors import CoroutineExecutor
from taskmq.model.outcome import Interrupted, Retried, Succeeded
from taskmq.model.states import JobState
from taskmq.testing import FakeClock
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt
from taskmq.worker.run.journal_service import JournalService
from taskmq.worker.run.processor import Processor
from taskmq.worker.run.stored_journals import StoredJournals
from taskmq.worker.settlement.reports import ReportSender
from taskmq_local import forget_memory
from tests.servers.waiting import until
from tests.unit.worker.bench import NOW, run
from tests.unit.worker.staged import FakeDelivery

pytestmark = pytest.mark.real_time


@pytest.fixture
def app() -> Iterator[TaskMQ]:
    yield TaskMQ("memory://recorder", clock=FakeClock(NOW))
    forget_memory("recorder")


class _Down:
    """Stores that do not answer while `is_down`."""

    def __init__(self, app: TaskMQ) -> None:
        self.is_down = True
        state = app.sessions.current().state
        assert state is not None
        self._progress, self._checkpoints = state.progress, state.checkpoints
        vars(state).update(progress=self, checkpoints=self)

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        self._check()
        await self._progress.report(record, ttl=ttl)

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        self._check()
        return await self._checkpoints.begin(job_id, attempt=attempt, ttl=ttl)

    async def find(self, job_id: str) -> ProgressRecord | None:
        return await self._progress.find(job_id)

    def _check(self) -> None:
        if self.is_down:
            raise StateUnavailable("down")


def open_journals(app: TaskMQ) -> JournalService:
    session = app.sessions.current()
    reports = ReportSender(session.broker, worker="w1", timeout=5, stopping=asyncio.Event())
    return JournalService(
        app, StoredJournals(session.broker, reports, worker="w1", clock=app.sessions.clock, large=None)
    )


def context(recorder: JournalService, *, attempt: int = 1, job_id: str = "job-7") -> Context:
    from taskmq.model.envelope import Envelope

    return Context(
        Envelope(task="t", attempt=attempt),
        job_id=job_id,
        max_attempts=5,
        queue="q",
        redelivered=False,
        _writer=recorder,
        started=NOW + attempt,
    )


async def find_progress(app: TaskMQ, job_id: str = "job-7") -> tuple[float, float | None, str] | None:
    progress = await app.job(job_id).aprogress()
    return None if progress is None else (progress.done, progress.total, progress.note)


async def test_a_run_without_journal_calls_starts_no_task_and_sends_no_query(app: TaskMQ) -> None:
    @app.task(name="t")
    async def t(ctx: Context) -> list[Any]:
        return [ctx.job_id, ctx.attempt, ctx.deadline, ctx.cancelled, ctx.journal is None]

    recorder = open_journals(app)
    processor = Processor(app, {"async": CoroutineExecutor()}, WorkerConfig(), journal_writer=recorder)
    attempt = processor.read(FakeDelivery(b'{"task":"t"}'))
    assert isinstance(attempt, Attempt)
    await processor.run(attempt)

    assert len(asyncio.all_tasks()) == 1
    assert attempt.execution is not None
    assert attempt.execution.context.journal is None
    await app.aclose()


async def test_the_first_progress_is_written_at_once_and_the_last_at_the_end(app: TaskMQ) -> None:
    recorder = open_journals(app)
    ctx = context(recorder)
    loop = asyncio.get_running_loop()

    ctx.progress(1, 10, "a")
    while await find_progress(app) is None:
        await asyncio.sleep(0)
    first = loop.time()
    for done in range(2, 5):
        ctx.progress(done, 10, "b")

    async def is_written() -> bool:
        return await find_progress(app) != (1, 10, "a")

    await until(is_written)
    assert loop.time() - first >= 0.4
    assert await find_progress(app) == (4, 10, "b")

    ctx.progress(10, 10)
    assert ctx.journal is not None
    await recorder.finish(ctx.journal, Succeeded(None))
    assert await find_progress(app) == (10, 10, "")
    await recorder.aclose()
    await app.aclose()


async def test_progress_ignores_an_outage_of_the_state_and_it_is_logged_once(
    app: TaskMQ, caplog: pytest.LogCaptureFixture
) -> None:
    down = _Down(app)
    recorder = open_journals(app)
    ctx = context(recorder)
    for done in range(3):
        ctx.progress(done)
        assert ctx.journal is not None
        await recorder.finish(ctx.journal, Succeeded(None))
    assert [record.message for record in caplog.records] == ["saving progress and heartbeats of tasks failed: down"]

    ctx.progress(4)
    await asyncio.sleep(0)
    down.is_down = False

    async def is_written() -> bool:
        return await find_progress(app) == (4, None, "")

    # Without a new update, the pending one is still written.
    await until(is_written)
    await recorder.aclose()
    await app.aclose()


async def test_steps_and_the_token_need_a_state_that_answers(app: TaskMQ) -> None:
    down = _Down(app)
    recorder = open_journals(app)
    ctx = context(recorder)
    calls: list[int] = []

    async def work() -> int:
        calls.append(1)
        return 1

    for _ in range(2):
        with pytest.raises(StateUnavailable):
            await ctx.astep("work", work)
    assert calls == []

    down.is_down = False
    await ctx.resume()
    assert ctx.fencing_token == NOW
    await recorder.aclose()
    await app.aclose()


async def test_a_heartbeat_is_available_to_the_next_run_of_the_job(app: TaskMQ) -> None:
    recorder = open_journals(app)
    first = context(recorder)
    first.heartbeat({"row": 5})
    assert first.journal is not None
    await recorder.finish(first.journal, Succeeded(None))

    second = context(recorder, attempt=2)
    await second.resume()

    assert second.last_heartbeat == {"row": 5}
    assert second.fencing_token > first.fencing_token
    await recorder.aclose()
    await app.aclose()


async def test_concurrent_requests_begin_one_run(app: TaskMQ) -> None:
    recorder = open_journals(app)
    ctx = context(recorder)

    tokens = await asyncio.gather(
        *(asyncio.to_thread(lambda: ctx.fencing_token) for _ in range(5)), ctx.resume(), ctx.resume()
    )

    assert set(tokens) == {NOW, None}
    await recorder.aclose()
    await app.aclose()


async def test_a_caller_that_gives_up_waiting_for_the_begin_leaves_it_to_the_others(app: TaskMQ) -> None:
    down = _Down(app)
    recorder = open_journals(app)
    ctx = context(recorder)
    waiting = asyncio.create_task(ctx.resume())
    await asyncio.sleep(0)
    waiting.cancel()
    # Its failure has no waiter: the loop must not complain about it.
    await asyncio.wait((waiting,))
    await asyncio.sleep(0.01)
    down.is_down = False
    await ctx.resume()

    assert ctx.last_checkpoint is None
    await recorder.aclose()
    await app.aclose()


async def test_an_abandoned_run_saves_nothing_and_learns_that_no_caller_waits(app: TaskMQ) -> None:
    recorder, other = open_journals(app), open_journals(app)
    old, new = context(recorder), context(other)
    await old.acheckpoint(1)
    await new.acheckpoint(2)
    assert not old.cancelled

    with pytest.raises(RunSuperseded, match="job job-7: another run has begun since attempt 1 did"):
        await old.acheckpoint(3)

    assert old.cancelled
    assert not new.cancelled
    await context(other, attempt=3).resume()
    late = context(recorder, attempt=2)
    with pytest.raises(RunSuperseded):
        await late.resume()
    late.heartbeat("late")
    assert late.journal is not None
    await recorder.finish(late.journal, Succeeded(None))
    for each in (recorder, other):
        await each.aclose()
    await app.aclose()


async def test_a_blocking_call_on_the_loop_of_the_worker_is_refused_and_names_its_twin(app: TaskMQ) -> None:
    recorder = open_journals(app)
    ctx = context(recorder)

    with pytest.raises(UnsupportedFeature, match=r"await context\.astep"):
        ctx.step("work", int)
    with pytest.raises(UnsupportedFeature, match="resume"):
        _ = ctx.last_checkpoint

    assert await asyncio.to_thread(ctx.step, "work", int) == 0
    await recorder.aclose()
    await app.aclose()


async def test_without_a_state_steps_are_refused_and_progress_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    app = TaskMQ("amqp://nowhere")
    recorder = open_journals(app)
    ctx = context(recorder)
    ctx.progress(1)
    assert ctx.journal is not None
    await recorder.finish(ctx.journal, Succeeded(None))

    with pytest.raises(UnsupportedFeature, match="progress, steps and checkpoints need a state"):
        await ctx.resume()
    with pytest.raises(UnsupportedFeature, match="progress needs a state"):
        await app.job("a").aprogress()
    await recorder.aclose()
    assert "need a state" in caplog.text


def test_a_thread_that_outlives_its_worker_is_reported_and_its_progress_is_dropped(app: TaskMQ) -> None:
    kept: list[Context] = []

    async def main() -> None:
        kept.append(context(open_journals(app)))
        await app.aclose()

    asyncio.run(main())
    errors: list[Exception] = []

    def late() -> None:
        kept[0].progress(1)
        try:
            kept[0].step("work", int)
        except StateUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=late)
    thread.start()
    thread.join()

    assert "the worker has stopped" in str(errors[0])


# After the end of the run


def _play(app: TaskMQ, body: Any) -> None:
    async def main() -> None:
        worker = Worker(app, WorkerConfig(name="w"))
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        try:
            await body()
        finally:
            worker.drain()
            await running

    run(main())


def test_saved_steps_are_deleted_after_a_success_and_kept_for_a_dead_job(app: TaskMQ) -> None:
    seen: list[object] = []
    tokens: list[int] = []

    @app.task(name="t", retry=None)
    async def t(ctx: Context, *, fails: bool) -> None:
        await ctx.resume()
        seen.append(ctx.last_checkpoint)
        tokens.append(ctx.fencing_token)
        await ctx.acheckpoint("here")
        if fails:
            raise ValueError("no")

    async def body() -> None:
        job = await t.options(job_id="job-1").asend(fails=True)
        with pytest.raises(TaskFailed):
            await job.aresult(timeout=5)
        # As after the replay of a dead letter.
        await t.options(job_id="job-1").asend(fails=False)

        async def has_succeeded() -> bool:
            return await job.astate() is JobState.SUCCEEDED

        await until(has_succeeded)

    async def look() -> None:
        state = app.sessions.current().state
        assert state is not None
        begun = await state.checkpoints.begin("job-1", attempt=1, ttl=60)
        await app.aclose()
        assert begun is not None
        assert begun.values == {}
        # Those of the key equal to its id.
        assert tokens[1] > tokens[0]

    _play(app, body)
    run(look())

    assert seen == [None, "here"]


async def test_a_superseded_run_retries_only_if_it_still_has_the_message(
    app: TaskMQ,
) -> None:
    @app.task(name="t")
    async def t() -> None:
        raise RunSuperseded("another run")

    class Revoked(FakeDelivery):
        revoked = True

    from taskmq.executors import CoroutineExecutor

    processor = Processor(app, {"async": CoroutineExecutor()}, WorkerConfig())
    outcomes = []
    for kind in (FakeDelivery, Revoked):
        attempt = processor.read(kind(json.dumps({"task": "t"}).encode()))
        assert isinstance(attempt, Attempt)
        outcomes.append(await processor.run(attempt))

    assert isinstance(outcomes[0], Retried)
    assert outcomes[1] == Interrupted()


async def test_a_superseded_run_of_a_stored_job_drops_its_message_without_an_outcome(app: TaskMQ) -> None:
    @app.task(name="t")
    async def t() -> None:
        raise RunSuperseded("another run")

    from taskmq.executors import CoroutineExecutor

    processor = Processor(app, {"async": CoroutineExecutor()}, WorkerConfig())
    store = {"id": "1", "token": 7, "reports": "taskmq.reports.shop.0"}
    delivery = FakeDelivery(json.dumps({"task": "t", "store": store}).encode(), queue="work.jobs")
    attempt = processor.read(delivery)
    assert isinstance(attempt, Attempt)

    # The other run has the same token: a report of this one would end it.
    assert await processor.run(attempt) == Interrupted()
    assert delivery.settled == "acked"


def test_a_fork_of_a_thread_task_cannot_save(app: TaskMQ) -> None:
    def save_in_a_fork(ctx: Context) -> str:
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 and later warn about forks beside threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                ctx.checkpoint(1)
            except UnsupportedFeature as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answers:
            words = answers.read().decode()
        os.waitpid(child, 0)
        return words

    async def main() -> None:
        words = await asyncio.to_thread(save_in_a_fork, context(open_journals(app)))

        assert words.startswith("a fork of the worker can save nothing")
        await app.aclose()

    run(main())
