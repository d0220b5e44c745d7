"""A step with many children, cut off at each portion, cancelled halfway and redriven.

$TASKMQ_TEST_WIDE_CHILDREN  children (default 2,000), each with a result of 10 KB
"""

import os
import resource
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, Literal

import msgspec
import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import DispatchedJob, NewInboxRow, NewJob
from taskmq.model.envelope import JSON
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.runs.records import RunRecord, RunState, StepJob
from taskmq.model.runs.workspace import MOST_WRITES
from taskmq.testing.job_store_suite.driver import report
from taskmq.testing.job_store_suite.runs.kit import RunDriver, make_job
from taskmq.testing.runner import CancelPoint, cancel_at
from taskmq_sql import open_job_store

pytestmark = [pytest.mark.campaign, pytest.mark.slow, pytest.mark.real_time, pytest.mark.timeout(0)]

CHILDREN: Final = int(os.environ.get("TASKMQ_TEST_WIDE_CHILDREN", "2000"))

_RESULT: Final = "x" * 10_000
_STEPS: Final[dict[str, Any]] = {
    "list": {"task": "t"},
    "all": {"task": "t", "each": "${steps.list.result}", "max_width": CHILDREN},
    "end": {"task": "t", "needs": ["all"]},
    "sum": {"task": "t", "args": ["${steps.all.result}"]},
}
_PATIENCE: Final = 60.0
_MOST_MEMORY: Final = 300.0
_LAST_WAKEUP: Final = 15
_TOGETHER: Final = 500


async def test_a_wide_run_survives_cuts_and_a_redrive_in_a_file(tmp_path: Path) -> None:
    await _check(f"sqlite:///{tmp_path}/jobs.db")


async def test_a_wide_run_survives_cuts_and_a_redrive_on_postgresql(job_store_url: str) -> None:
    await _check(job_store_url)


async def _check(url: str) -> None:
    stores = [open_job_store(url, BrokerOptions(name="wide")) for _ in range(2)]
    wide = _WideRun([RunDriver(store) for store in stores])
    try:
        await wide.begin()
        await wide.work(until=CHILDREN // 2)
        early = await wide.send("redrive")
        await wide.cancel()
        again = await wide.send("redrive")
        await wide.work(until=CHILDREN)
        await wide.finish()
    finally:
        for store in stores:
            await store.aclose()

    assert (early, again) == ("refused: the run has not ended; cancel it first", "accepted")
    assert wide.succeeded == Counter(range(CHILDREN))
    assert wide.most_jobs <= MOST_WRITES
    assert wide.memory() < _MOST_MEMORY
    centiles = quantiles(wide.seconds, n=100)
    print(
        f"{CHILDREN:,} children, {len(wide.seconds):,} transactions of at most {wide.most_jobs} jobs, "
        f"p50 {centiles[49]:.3f} s, p99 {centiles[98]:.3f} s, longest {max(wide.seconds):.3f} s; "
        f"{wide.memory():.0f} MB more; load {os.getloadavg()[0]:.1f}"
    )


class _WideRun:
    """The run, advanced by two stores in turn; the first call of each transition is cut off.

    Attributes:
        succeeded: successful ends of each child.
        seconds: durations of the calls that were not cut off.
        most_jobs: maximum of jobs that one of them submitted.
    """

    def __init__(self, drivers: Sequence[RunDriver]) -> None:
        self.succeeded: Counter[int] = Counter()
        self.seconds: list[float] = []
        self.most_jobs = 0
        self._drivers = drivers
        self._run = ""
        self._number = 0
        self._in_flight: list[DispatchedJob] = []
        self._memory = _peak_mb()

    async def begin(self) -> None:
        """Start the run, and end the step that returns the items."""
        driver = self._drivers[0]
        self._run = await driver.start(_STEPS)
        await self._advance()
        (job,) = (await driver.dispatch()).jobs
        await self._report([job], result=[*range(CHILDREN)])

    async def work(self, *, until: int) -> None:
        """Let children succeed, until so many have."""
        while left := until - self.succeeded.total():
            assert (await self._drivers[0].run(self._run)).ended is None
            await self._advance()
            await self._dispatch()
            ending, self._in_flight = self._in_flight[:left], self._in_flight[left:]
            self.succeeded.update(msgspec.json.decode(job.body)[0][0] for job in ending)
            await self._report(ending, result=_RESULT)

    async def send(self, kind: Literal["redrive", "cancel"]) -> str | None:
        """Send a row to the run, and return its answer."""
        runs, sender = self._drivers[0].runs, f"{kind} {self._number}"
        assert await runs.send(self._run, NewInboxRow(kind=kind, id=sender))
        while (answer := await runs.answer(self._run, sender)) is None:
            await self._advance()
        return answer

    async def cancel(self) -> None:
        """Cancel the run; the workers end the jobs that they have."""
        await self.send("cancel")
        while (await self._drivers[0].run(self._run)).ended is None:
            await self._report(self._in_flight, "cancelled")
            self._in_flight.clear()
            await self._advance()

    async def finish(self) -> None:
        """End the last steps; the list of all results is too large for one of them."""
        driver = self._drivers[0]
        while await driver.runs.pending(limit=1):
            await self._advance()
        await driver.finish(self._run, "end")
        states = await driver.states(self._run)
        assert states == {"list": "succeeded", "all": "succeeded", "end": "succeeded", "sum": "upstream_failed"}
        assert "let its jobs return less, or references" in (await driver.step(self._run, "sum")).error
        assert (await driver.run(self._run)).state is RunState.FAILED

    def memory(self) -> float:
        """Return the growth of the process's peak memory in MB."""
        return _peak_mb() - self._memory

    async def _advance(self) -> None:
        self._number += 1
        cut, whole = self._drivers if self._number % 2 else reversed(self._drivers)
        point = CancelPoint(wakeups=1 + self._number % _LAST_WAKEUP)
        await cancel_at(point, cut.advance(self._run), within=_PATIENCE)
        jobs = 0

        def make(run: RunRecord, job: StepJob) -> NewJob:
            nonlocal jobs
            jobs += 1
            return make_job(run, job)

        began = time.monotonic()
        await whole.runs.advance([self._run], make)
        self.seconds.append(time.monotonic() - began)
        self.most_jobs = max(self.most_jobs, jobs)

    async def _dispatch(self) -> None:
        batch = await self._drivers[0].try_dispatch()
        self._in_flight += [] if batch is None else batch.jobs

    async def _report(
        self, jobs: Sequence[DispatchedJob], kind: ReportKind = "succeeded", *, result: object = None
    ) -> None:
        """Report jobs, twice."""
        fields: dict[str, Any] = {}
        if kind == "succeeded":
            fields = {"content_type": JSON, "result": msgspec.json.encode(result)}
        for _ in range(2):
            for first in range(0, len(jobs), _TOGETHER):
                reports = [report(job, kind, **fields) for job in jobs[first : first + _TOGETHER]]
                await self._drivers[0].schedulers.apply(reports)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
