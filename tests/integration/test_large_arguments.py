"""Large arguments through a real broker and a job store: both contain only references."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from taskmq import Context, RunFailed, TaskMQ, chain, dag, group
from taskmq.contracts.jobs import MOST_VALUE_BYTES
from taskmq.errors import Reject, StoreUnavailable
from taskmq.model.envelope import IN_PARTS, decode_envelope
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.servers.waiting import until

pytestmark = pytest.mark.rabbitmq

_PATIENCE = 60.0
_BIG = "ä" * 1_000_000
# More than a message of RabbitMQ 4 may have.
_LARGE = 20 * 1024 * 1024


def _shop(url: str, root: Path, queue: str, seen: dict[str, int], place: str = "place") -> TaskMQ:
    app = TaskMQ(
        url,
        store=f"sqlite:///{root}/jobs.db",
        results_at=f"file://{root}/{place}",
        result_inline="1K",
        args_inline="64K",
        name="shop",
    )

    @app.task(name="count", queue=queue)
    async def count(context: Context, text: str, *, times: int = 1) -> int:
        seen[context.job_id] = len(text) * times
        return seen[context.job_id]

    @app.task(name="text", queue=queue)
    async def text(size: int) -> str:
        return "x" * size

    @app.task(name="counts", queue=queue)
    async def counts(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    @app.task(name="fail_once", queue=queue)
    async def fail_once(context: Context, text: str) -> int:
        seen[context.job_id] = len(text)
        if len(seen) == 1:
            raise Reject("the first time")
        return len(text)

    return app


@asynccontextmanager
async def _working(app: TaskMQ) -> AsyncGenerator[None, None]:
    scheduler, worker = Scheduler(app), Worker(app, WorkerConfig(name="w1", result_limit=64 * 1024 * 1024))
    running = [asyncio.create_task(each.run()) for each in (scheduler, worker)]
    await asyncio.wait_for(worker.is_ready.wait(), _PATIENCE)
    try:
        yield
    finally:
        scheduler.stop()
        worker.drain()
        await asyncio.wait_for(asyncio.gather(*running), _PATIENCE)
        await app.aclose()


@pytest.mark.real_time
async def test_messages_and_stored_jobs_refer_to_arguments_of_megabytes(amqp_url: str, tmp_path: Path) -> None:
    seen = dict[str, int]()
    app = _shop(amqp_url, tmp_path, "count", seen)

    async with _working(app):
        sent = await app.tasks.by_name["count"].asend(_BIG, times=3)
        submitted = await app.jobs.asubmit("count", _BIG)
        waiting = await app.jobs.asubmit("count", "small", delay="1h")
        again = await app.jobs.asubmit("count", _BIG, job_id="one")
        assert (await app.jobs.asubmit("count", _BIG, job_id="one")).id == again.id
        await app.jobs.achange(waiting.id, args=(_BIG,), kwargs={"times": 2}, delay="0s")

        assert await submitted.aresult(_PATIENCE) == len(_BIG)
        assert await app.job(waiting.id).aresult(_PATIENCE) == 2 * len(_BIG)
        record = await app.jobs.aget(waiting.id)
        assert len(record.body) < 1000
        assert decode_envelope(record.body).blob is not None
        await until(lambda: sent.id in seen)
        assert seen[sent.id] == 3 * len(_BIG)


@pytest.mark.nightly("tests/integration/test_large_arguments.py::test_steps_get_values_of_20_mebibytes_by_reference")
@pytest.mark.real_time
async def test_a_step_gets_the_largest_value_of_the_step_before_it(amqp_url: str, tmp_path: Path) -> None:
    app = _shop(amqp_url, tmp_path, "count", {})
    size = MOST_VALUE_BYTES - len('""')

    async with _working(app):
        run = await chain(app.tasks["text"].s(size), app.tasks["count"].s()).asend()

        assert await run.aresult(_PATIENCE) == size


@pytest.mark.real_time
async def test_steps_get_values_of_20_mebibytes_by_reference(amqp_url: str, tmp_path: Path) -> None:
    app = _shop(amqp_url, tmp_path, "count", {})
    text, count, counts = (app.tasks[name] for name in ("text", "count", "counts"))
    graph = dag()
    large = graph.add(text.s(_LARGE))
    size = graph.add(count.s(), after=[large], name="size")
    pair = graph.add(group(text.s(_LARGE) for _ in range(2)), after=[], name="pair")
    sizes = graph.add(counts.s(), after=[pair])

    async with _working(app):
        run = await graph.asend()

        assert await run.aresult(_PATIENCE) == {"size": _LARGE, "counts": [_LARGE, _LARGE]}
        assert await run.aresult_of(size) == _LARGE
        assert await run.aresult_of(sizes) == [_LARGE, _LARGE]
        assert len(await run.aresult_of(large)) == _LARGE
        jobs = {step.name: step.job for step in await run.asteps() if step.job}
        for name in ("size", "counts"):
            envelope = decode_envelope((await app.jobs.aget(jobs[name])).body)
            assert (envelope.v, envelope.parts is not None, len(envelope.args) < 100) == (IN_PARTS, True, True)


@pytest.mark.real_time
async def test_a_redriven_step_and_a_cloned_job_load_the_value_again(amqp_url: str, tmp_path: Path) -> None:
    seen = dict[str, int]()
    app = _shop(amqp_url, tmp_path, "count", seen)
    text, once, size = app.tasks["text"], app.tasks["fail_once"], 2_000_000

    async with _working(app):
        run = await chain(text.s(size), once.s()).asend()
        with pytest.raises(RunFailed, match="the first time"):
            await run.aresult(_PATIENCE)

        assert await run.aredrive() == 1
        assert await run.aresult(_PATIENCE) == size
        (job,) = [step.job for step in await run.asteps() if step.name == "fail_once"]
        again = await app.jobs.aclone(job)
        assert await again.aresult(_PATIENCE) == size
        assert len(seen) == 3


@pytest.mark.nightly("tests/integration/test_large_arguments.py::test_steps_get_values_of_20_mebibytes_by_reference")
@pytest.mark.real_time
async def test_arguments_of_a_step_that_fit_no_message_are_kept_elsewhere(amqp_url: str, tmp_path: Path) -> None:
    app = _shop(amqp_url, tmp_path, "count", {})
    size = 7_000_000

    async with _working(app):
        run = await (group(app.tasks["text"].s(size) for _ in range(3)) | app.tasks["counts"].s()).asend()

        assert await run.aresult(_PATIENCE) == [size] * 3


@pytest.mark.real_time
async def test_nothing_is_submitted_while_the_file_store_is_unreachable(amqp_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    app = _shop(amqp_url, tmp_path, "count", {}, "file/below")

    with pytest.raises(StoreUnavailable, match=r"nothing was changed: the arguments of job .* are too large"):
        await app.jobs.asubmit("count", _BIG)
    job = await app.jobs.asubmit("count", "small", delay="1h")
    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        await app.jobs.achange(job.id, args=(_BIG,))
    assert b"small" in (await app.jobs.aget(job.id)).body
    await app.aclose()
