"""Large results of stored jobs: reports and the store contain only references."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from taskmq import Context, Job, RetryPolicy, RunFailed, TaskMQ, Workflow, WorkQueue, chain, dag, group
from taskmq.contracts.jobs import MOST_VALUE_BYTES
from taskmq.errors import InvalidArguments, ResultDamaged, ResultExpired, UnsupportedFeature
from taskmq.model.envelope import JSON
from taskmq.model.history.journals import LARGEST_SAVED
from taskmq.model.states import JobState
from taskmq.model.values.light_values import REFERENCE
from taskmq.scheduler import Scheduler
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.worker import Worker, WorkerConfig
from tests.servers.waiting import until
from tests.unit.app_kit import new_url

_PATIENCE = 30.0
_BIG = "☂" * 100_000


async def make(attempt: int, size: int) -> str:
    return str(attempt) * size


def _app(
    url: str, root: Path, *, has_place: bool = True, place: str = "place", args_inline: str | None = None
) -> TaskMQ:
    app = TaskMQ(
        url,
        name="shop",
        store=f"sqlite:///{root}/jobs.db",
        results_at=f"file://{root}/{place}" if has_place else None,
        result_inline="1K",
        args_inline=args_inline,
        queues=[WorkQueue("work"), WorkQueue("ordered", ordered=2)],
    )

    @app.task(name="echo", queue="work")
    async def echo(text: str, times: int) -> str:
        return text * times

    @app.task(name="length", queue="work")
    async def length(text: str) -> int:
        return len(text)

    @app.task(name="total", queue="work")
    async def total(sizes: list[int]) -> int:
        return sum(sizes)

    @app.task(name="lengths", queue="work")
    async def lengths(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    @app.task(name="three", queue="work")
    async def three(texts: list[str]) -> int:
        return sum(map(len, texts))

    @app.task(name="lose", queue="work")
    async def lose() -> None:
        shutil.rmtree(root / place)

    @app.task(name="idempotency_key", queue="work", idempotency_key="text")
    async def with_key(text: str) -> None: ...

    @app.task(name="order_key", queue="ordered", order_key="text")
    async def with_order(text: str) -> None: ...

    @app.workflow
    def twenty(times: int) -> Workflow[int]:
        return group(echo.s("x", times) | length.s() for _ in range(20)) | total.s()

    @app.task(name="in_steps", queue="work", retry=RetryPolicy(max_attempts=2, base=0.01, jitter=False))
    async def in_steps(context: Context, size: int) -> str:
        value = await context.astep("large", make, context.attempt, size)
        if context.attempt == 1:
            raise ValueError("again")
        return value

    @app.task(name="ask", queue="work")
    async def ask(context: Context) -> int | str:
        await context.resume()
        number = len(context.last_checkpoint or "") // 2_000
        await context.acheckpoint("x" * 2_000 * (number + 1))
        return await context.await_for("answer", str if number else int)

    @app.task(name="charge", queue="work", idempotency_key="{order}")
    async def charge(order: int, size: int) -> str:
        return "c" * size

    return app


@asynccontextmanager
async def _working(app: TaskMQ, result_wait: float) -> AsyncGenerator[Worker, None]:
    scheduler, worker = Scheduler(app), Worker(app, WorkerConfig(name="w1", result_wait=result_wait))
    running = [asyncio.create_task(each.run()) for each in (scheduler, worker)]
    await asyncio.wait_for(worker.is_ready.wait(), _PATIENCE)
    try:
        yield worker
    finally:
        scheduler.stop()
        worker.drain()
        await asyncio.wait_for(asyncio.gather(*running), _PATIENCE)
        await app.aclose()


def _play(
    test: Callable[[TaskMQ, Worker], Coroutine[Any, Any, None]],
    root: Path,
    *,
    place: str = "place",
    args_inline: str | None = None,
    result_wait: float = 900.0,
) -> None:
    async def main() -> None:
        app = _app(new_url(), root, place=place, args_inline=args_inline)
        async with _working(app, result_wait) as worker:
            await test(app, worker)

    asyncio.run(main())


def test_the_store_keeps_a_reference_and_callers_get_the_value(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        job: Job[Any] = await app.jobs.asubmit("echo", "☂", 100_000)
        small: Job[Any] = await app.jobs.asubmit("echo", "☂", 3)

        assert await job.aresult(_PATIENCE) == _BIG
        assert await small.aresult(_PATIENCE) == "☂☂☂"
        record = await app.jobs.aget(job.id)
        assert (record.state, record.content_type) == (JobState.SUCCEEDED, REFERENCE)
        assert len(record.result) < 300
        assert (await app.jobs.aget(small.id)).content_type == "application/json"

        # Another process, without a state.
        other = _app(app.sessions.url, tmp_path)
        assert await other.job(job.id).aresult(_PATIENCE) == _BIG
        await other.aclose()

    _play(test, tmp_path)


def test_the_next_attempt_gets_a_saved_step_of_any_size(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        job: Job[Any] = await app.jobs.asubmit("in_steps", LARGEST_SAVED)

        assert await job.aresult(_PATIENCE) == "1" * LARGEST_SAVED
        assert (await app.jobs.aget(job.id)).attempt == 2

    _play(test, tmp_path)


def test_a_signal_behind_a_large_checkpoint_has_to_fit_the_form_of_its_wait(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        job: Job[Any] = await app.jobs.asubmit("ask")

        async def waits(number: int) -> bool:
            values = (await app.sessions.store().journals.values([job.id])).get(job.id)
            is_saved = values is not None and f"wait {number} answer" in values.values
            return is_saved and (await app.jobs.aget(job.id)).state is JobState.SCHEDULED

        await until(lambda: waits(1))
        await app.jobs.aretry(job.id)
        await until(lambda: waits(2))
        with pytest.raises(InvalidArguments, match="signal 'answer' does not fit its form"):
            await app.jobs.asignal(job.id, "answer", 5)
        blind = _app(app.sessions.url, tmp_path, has_place=False)
        # Only the task can check it.
        await blind.jobs.asignal(job.id, "answer", "yes")
        await blind.aclose()
        assert await job.aresult(_PATIENCE) == "yes"

    _play(test, tmp_path)


def test_a_caller_without_the_file_store_is_told_so_and_a_lost_value_has_expired(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        job: Job[Any] = await app.jobs.asubmit("echo", "x", 5_000)
        await job.aresult(_PATIENCE)

        blind = _app(app.sessions.url, tmp_path, has_place=False)
        with pytest.raises(UnsupportedFeature, match="needs its worker's results_at="):
            await blind.job(job.id).aresult(_PATIENCE)
        await blind.aclose()
        shutil.rmtree(tmp_path / "place")
        with pytest.raises(ResultExpired):
            await job.aresult(_PATIENCE)

    _play(test, tmp_path)


def test_a_result_waits_with_its_worker_until_the_file_store_can_be_reached(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")

    async def test(app: TaskMQ, _: Worker) -> None:
        job: Job[Any] = await app.jobs.asubmit("echo", "x", 5_000)
        await until(lambda: "storing its result failed" in caplog.text)
        assert not (await app.jobs.aget(job.id)).state.is_final
        (tmp_path / "file").unlink()

        assert await job.aresult(_PATIENCE) == "x" * 5_000
        assert (await app.jobs.aget(job.id)).attempt == 1

    _play(test, tmp_path, place="file/below")


def test_a_large_result_that_cannot_be_stored_in_time_interrupts_its_job(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    async def test(app: TaskMQ, _: Worker) -> None:
        job: Job[Any] = await app.jobs.asubmit("echo", "x", 5_000)

        async def interruptions() -> list[str]:
            return [each.note for each in await app.jobs.ahistory(job.id) if each.kind == "interrupted"]

        async def is_interrupted() -> bool:
            return bool(await interruptions())

        await until(is_interrupted)
        (tmp_path / "file").unlink()

        assert await job.aresult(_PATIENCE) == "x" * 5_000
        assert (await app.jobs.aget(job.id)).attempt == 1
        assert all(note.startswith("outage: taskmq.errors.StateUnavailable: ") for note in await interruptions())

    _play(test, tmp_path, place="file/below", result_wait=0.3)


def test_an_already_finished_key_gives_its_value_to_another_job(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        first: Job[Any] = await app.jobs.asubmit("charge", 7, 5_000)
        assert await first.aresult(_PATIENCE) == "c" * 5_000
        second: Job[Any] = await app.jobs.asubmit("charge", 7, 6_000)

        assert await second.aresult(_PATIENCE) == "c" * 5_000
        assert (await app.jobs.aget(second.id)).content_type == REFERENCE

    _play(test, tmp_path)


def test_a_later_step_gets_a_value_larger_than_result_inline(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        echo, length = app.tasks["echo"], app.tasks["length"]
        run = await chain(echo.s("x", 5_000), length.s()).asend()

        assert await run.aresult(_PATIENCE) == 5_000
        first = (await run.asteps())[0]
        assert (await app.jobs.aget(first.job)).content_type == JSON
        assert await app.job(first.job).aresult(_PATIENCE) == "x" * 5_000
        assert await (await echo.s("x", 5_000).asend()).aresult(_PATIENCE) == "x" * 5_000

    _play(test, tmp_path)


def test_a_built_graph_may_be_larger_than_result_inline(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        run = await app.workflows["twenty"].asend(2_000)

        assert await run.aresult(_PATIENCE) == 40_000

    _play(test, tmp_path)


def test_a_run_and_its_steps_return_a_value_of_any_size(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        run = await group(app.tasks["echo"].s(text, MOST_VALUE_BYTES) for text in "xy").asend()

        assert await run.aresult(_PATIENCE) == ["x" * MOST_VALUE_BYTES, "y" * MOST_VALUE_BYTES]
        assert len(await app.sessions.store().runs.run_value(run.id) or b"") < 1_000
        ended = {step.name: step.value async for step in run.astream()}
        assert sorted(len(value) for value in ended.values()) == [MOST_VALUE_BYTES] * 2

        # Another process, without a place for results.
        blind = _app(app.sessions.url, tmp_path, has_place=False)
        with pytest.raises(
            UnsupportedFeature, match="a value of 16,777,220 bytes is kept elsewhere: set results_at="
        ):
            await blind.runs.get(run.id).aresult(_PATIENCE)
        await blind.aclose()

    _play(test, tmp_path)


def test_the_step_behind_a_group_gets_values_of_any_size(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        echo, lengths = app.tasks["echo"], app.tasks["lengths"]
        run = await (group(echo.s("x", size) for size in (7, MOST_VALUE_BYTES)) | lengths.s()).asend()

        assert await run.aresult(_PATIENCE) == [7, MOST_VALUE_BYTES]

    _play(test, tmp_path)


def test_a_step_fails_if_the_value_that_it_takes_is_lost(tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        graph = dag()
        big = graph.add(app.tasks["echo"].s("x", MOST_VALUE_BYTES))
        lost = graph.add(app.tasks["lose"].si(), after=[big])
        graph.add(app.tasks["length"].s(), after=[big, lost], into={"text": big})
        run = await graph.asend()

        with pytest.raises(RunFailed, match=r"no longer in file:.*; they are values of steps, kept for 31 days"):
            await run.aresult(_PATIENCE)

    _play(test, tmp_path)


@pytest.mark.parametrize(
    "option",
    [
        pytest.param(
            "idempotency_key",
            marks=pytest.mark.nightly(
                "tests/unit/stored_jobs/test_large_results.py::"
                "test_a_step_with_a_derived_key_takes_no_value_that_is_kept_elsewhere"
            ),
        ),
        "order_key",
    ],
)
def test_a_step_with_a_derived_key_takes_no_value_that_is_kept_elsewhere(option: str, tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        run = await (app.tasks["echo"].s("x", MOST_VALUE_BYTES) | app.tasks[option].s()).asend()

        with pytest.raises(RunFailed, match=f"task {option} has {option}=, which needs all arguments"):
            await run.aresult(_PATIENCE)

    _play(test, tmp_path)


@pytest.mark.nightly(
    "tests/unit/stored_jobs/test_large_results.py::test_the_step_behind_a_group_gets_values_of_any_size"
)
@pytest.mark.parametrize("args_inline", [None, "64K"])
def test_values_that_do_not_fit_a_message_together_are_kept_elsewhere_or_named(
    args_inline: str | None, tmp_path: Path
) -> None:
    async def test(app: TaskMQ, _: Worker) -> None:
        run = await (group(app.tasks["echo"].s("x", 6_000_000) for _ in range(3)) | app.tasks["three"].s()).asend()

        if args_inline is not None:
            assert await run.aresult(_PATIENCE) == 18_000_000
            return
        sizes = "argument 1 of 18,000,010 bytes, has 18,000,[0-9]{3} bytes, the limit is 16,777,216"
        remedy = "let the steps before return less, .* args_inline="
        with pytest.raises(RunFailed, match=rf"job .* of task three, with {sizes}: {remedy}"):
            await run.aresult(_PATIENCE)

    _play(test, tmp_path, args_inline=args_inline)


@pytest.mark.real_time
@pytest.mark.parametrize("result", [b"", b"{}", b"\xff", b'{"content_type":"a","blob":{"name":"x"}}', b"[" * 5_000])
async def test_an_unreadable_reference_is_a_damaged_result(result: bytes, tmp_path: Path) -> None:
    app = _app(new_url(), tmp_path)
    driver = JobDriver(app.sessions.store())
    job = await driver.expect_accepted(
        await driver.dispatch_new(), "succeeded", content_type=REFERENCE, result=result
    )
    with pytest.raises(ResultDamaged, match="reference that cannot be resolved"):
        await app.job(job.id).aresult(_PATIENCE)
    await app.aclose()
