"""Existing results, and the events of a job."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from taskmq import (
    Context,
    EndNews,
    JobOutcome,
    JobProgress,
    JobState,
    ProgressNews,
    StateNews,
    TaskFailed,
    TaskMQ,
    UnsupportedFeature,
    sse_text,
)
from taskmq.errors import EncodeError, JobCancelled, ResultExpired
from taskmq.jobs.watch import JobNews
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.values.return_type import ReturnType
from taskmq.worker import Worker, WorkerConfig
from tests.coroutines import run_by
from tests.unit.app_kit import new_url


class Shop:
    """An app, its gate, and a worker on demand."""

    def __init__(self) -> None:
        self.app = app = TaskMQ(new_url())
        self.gate = asyncio.Event()

        @app.task(name="count")
        async def count(context: Context, total: int) -> list[int]:
            context.progress(1, total, "first")
            await self.gate.wait()
            context.progress(total, total, "last")
            return list(range(total))

        @app.task(name="fail", retry=None)
        async def fail() -> None:
            raise ValueError("no")

        @app.task(name="forget", result=False)
        async def forget() -> None: ...

        self.count, self.fail, self.forget = count, fail, forget

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        twin = TaskMQ(self.app.sessions.url)
        twin.tasks = self.app.tasks
        worker = Worker(twin, WorkerConfig(events="off", control=False))
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        try:
            yield
        finally:
            worker.requeue_now()
            await asyncio.wait((running,))


def play(test: Callable[[Shop], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        shop = Shop()
        async with asyncio.timeout(20), shop.app:
            await test(shop)

    asyncio.run(main())


@run_by(play)
async def test_a_result_is_returned_or_absent_and_a_failure_is_raised(shop: Shop, /) -> None:
    job, broken = await shop.count.asend(2), await shop.fail.asend()
    assert await job.aresult_or_none() is None

    async with shop.working():
        shop.gate.set()
        await job.aresult(10)
        await broken.aoutcome(10)

    assert await job.aresult_or_none() == [0, 1]
    with pytest.raises(TaskFailed, match="no"):
        await broken.aresult_or_none()
    with pytest.raises(UnsupportedFeature, match="keeps no results"):
        await (await shop.forget.asend()).aresult_or_none()


def test_synchronous_code_gets_a_result_too() -> None:
    with TaskMQ(new_url()) as app:

        @app.task(name="add")
        def add(number: int) -> int:
            return number

        assert add.send(1).result_or_none() is None


@run_by(play)
async def test_a_job_is_watched_to_its_end(shop: Shop, /) -> None:
    job = await shop.count.asend(3)
    news: list[JobNews[list[int]]] = []

    async with shop.working():
        async for one in job.watch(every="10ms"):
            news.append(one)
            if isinstance(one, ProgressNews):
                shop.gate.set()

    states = [one.state for one in news if isinstance(one, StateNews)]
    assert states in ([JobState.QUEUED, JobState.RUNNING], [JobState.RUNNING])
    told = [(one.progress.done, one.progress.note) for one in news if isinstance(one, ProgressNews)]
    assert told[0] == (1, "first")
    assert told[-1] == (3, "last")
    assert isinstance(news[-1], EndNews)
    assert news[-1].outcome.result() == [0, 1, 2]


@run_by(play)
async def test_an_ended_job_has_its_end_as_its_only_event(shop: Shop, /) -> None:
    job = await shop.fail.asend()
    async with shop.working():
        await job.aoutcome(10)

    news = [one async for one in shop.app.job(job.id).watch()]

    (end,) = news
    assert isinstance(end, EndNews)
    assert end.outcome.state is JobState.FAILED


@run_by(play)
async def test_a_cancelled_watcher_leaves_nothing_behind(shop: Shop, /) -> None:
    job = await shop.count.asend(3)
    watching = job.watch(every="1h")
    assert await anext(watching) == StateNews(JobState.QUEUED)

    await watching.aclose()

    assert asyncio.all_tasks() == {asyncio.current_task()}


@run_by(play)
async def test_a_task_without_results_cannot_be_watched(shop: Shop, /) -> None:
    job = await shop.forget.asend()
    with pytest.raises(UnsupportedFeature, match="keeps no results"):
        _ = [one async for one in job.watch()]


def _data(text: str) -> tuple[str, Any]:
    event, data, *rest = text.split("\n")
    assert rest == ["", ""]
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def _end_news(
    state: JobState | None, error: Any = None, value: bytes = b"", content_type: str = JSON
) -> EndNews[Any]:
    return EndNews(
        JobOutcome("7", state, error, 2, _value=value, _content_type=content_type, _returns=ReturnType(Any))
    )


def test_a_result_without_a_json_form_is_not_an_event() -> None:
    ended = _end_news(JobState.SUCCEEDED, value=msgspec.msgpack.encode({"a": float("nan")}), content_type=MSGPACK)

    with pytest.raises(EncodeError, match="JSON has no NaN"):
        sse_text(ended)


def test_events_are_sent_as_server_sent_events() -> None:
    progress = JobProgress(1, 4, "a\nb", 2, datetime.now(UTC))
    failed = TaskFailed("7", type_name="ValueError", message="no", traceback="secret", attempts=2)

    assert _data(sse_text(StateNews(JobState.RUNNING))) == ("state", {"state": "running"})
    assert _data(sse_text(ProgressNews(progress))) == (
        "progress",
        {"done": 1, "total": 4, "fraction": 0.25, "note": "a\nb", "attempt": 2},
    )
    assert _data(sse_text(_end_news(JobState.SUCCEEDED, value=b'{"a":[1,"x"]}'))) == (
        "end",
        {"state": "succeeded", "attempts": 2, "result": {"a": [1, "x"]}},
    )
    assert _data(sse_text(_end_news(JobState.FAILED, failed))) == (
        "end",
        {"state": "failed", "attempts": 2, "error": {"type": "ValueError", "message": "no"}},
    )
    assert "secret" not in sse_text(_end_news(JobState.FAILED, failed))
    cancelled = _data(sse_text(_end_news(JobState.CANCELLED, JobCancelled("not wanted"))))[1]
    assert cancelled["error"] == {"type": "JobCancelled", "message": "not wanted"}
    assert _data(sse_text(_end_news(None, ResultExpired("7"))))[1]["state"] is None
