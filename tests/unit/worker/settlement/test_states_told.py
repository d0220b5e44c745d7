"""The state of a job with progress, during and after its run."""

import asyncio

from taskmq import Context, JobState, RetryPolicy, Snooze
from tests.unit.worker.gate import send, working
from tests.unit.worker.staged import open_staged, settle_loop


async def test_a_job_that_reports_progress_is_running_and_then_has_its_outcome() -> None:
    with open_staged() as app:
        endings: dict[str, asyncio.Event] = {}

        @app.task(name="gated", queue="work", result=False, retry=RetryPolicy(base=60, jitter=False))
        async def gated(context: Context, label: str) -> None:
            context.progress(1, 2)
            endings[label] = asyncio.Event()
            await endings[label].wait()
            if label == "again":
                raise ValueError
            if label == "later":
                raise Snooze(60)

        async with working(app):
            await send(app, "done", "again", "later")
            await settle_loop()
            await asyncio.sleep(1)

            async def states() -> list[JobState]:
                return [await app.job(job_id).astate() for job_id in ("done", "again", "later")]

            assert await states() == [JobState.RUNNING] * 3
            for ending in endings.values():
                ending.set()
            await asyncio.sleep(1)
            assert await states() == [JobState.SUCCEEDED, JobState.RETRYING, JobState.SCHEDULED]
