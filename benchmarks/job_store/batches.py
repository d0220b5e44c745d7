"""Cost of dispatching jobs and recording their ends in the store, by the number of jobs in a statement."""

from typing import Final

from benchmarks.job_store.figures import Figures
from benchmarks.job_store.stage import QUEUE, Stage
from taskmq.contracts.jobs import DispatchBatch, Lane, Pick
from taskmq.testing.job_store_suite.driver import JobDriver, report
from taskmq_sql.postgres.store import PostgresJobStore

_SIZES: Final = (50, 125, 250, 500)
_PARTS: Final = {"PostgreSQL": "PostgreSQL", "sender": "caller"}
_PRIORITY: Final = 4


async def batches(stage: Stage, jobs: int) -> Figures:
    """Dispatch and end about this many jobs with each size, without a scheduler and a worker.

    This process calls the store as a scheduler does, so its processor time is that of a scheduler's calls.
    """
    store = PostgresJobStore(stage.store)
    driver = JobDriver(store)
    figures: Figures = {}
    try:
        for size in (_SIZES[0], *_SIZES):
            # The first size comes twice, because its first round opens connections and plans statements.
            figures |= await _measure(stage, driver, max(jobs // size, 1), size)
    finally:
        await store.aclose()
    return figures


async def _measure(stage: Stage, driver: JobDriver, count: int, size: int) -> Figures:
    for _ in range(count):
        await stage.app.jobs.asubmit_many("nothing", [(number,) for number in range(size)])
    before = stage.cpu()
    dispatched = [await driver.dispatch(Pick(Lane(QUEUE, _PRIORITY, ""), size), queue=QUEUE) for _ in range(count)]
    between = stage.cpu()
    for batch in dispatched:
        await _end(driver, batch)
    after = stage.cpu()
    return {
        f"us a job: {kind} {size}, {name}": (last[part] - first[part]) / (count * size) * 1e6
        for kind, first, last in (("dispatch of", before, between), ("end of", between, after))
        for part, name in _PARTS.items()
    }


async def _end(driver: JobDriver, batch: DispatchBatch) -> None:
    reports = [report(job, "succeeded", worker="worker", started=1, ran=0) for job in batch.jobs]
    await driver.schedulers.apply(reports)
