"""Random graphs of dependent jobs: every end follows the rules, despite repeated reports and interrupted calls.

    TASKMQ_TEST_JOB_GRAPHS: number of graphs (1; 1,000 for a campaign)
    TASKMQ_TEST_JOB_GRAPHS_FROM: the seed of the first one (0)
    TASKMQ_TEST_JOB_GRAPH_JOBS: maximum number of jobs (200)

Several stores on one database submit, dispatch, report, cancel and release concurrently. Reports are sent twice, and
calls of each kind are interrupted anywhere: their connections are lost, with their transactions.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobDetail, JobRecord, NewJob
from taskmq.errors import StoreUnavailable
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency, after_upstream
from taskmq.model.jobs.reports import Report, ReportKind
from taskmq.model.states import CHANGEABLE, TERMINAL, JobState
from taskmq.testing.job_store_suite.driver import JobDriver, report
from taskmq_sql import open_job_store

_GRAPHS: Final = int(os.environ.get("TASKMQ_TEST_JOB_GRAPHS", "1"))
_JOBS: Final = int(os.environ.get("TASKMQ_TEST_JOB_GRAPH_JOBS", "40"))
_FROM: Final = int(os.environ.get("TASKMQ_TEST_JOB_GRAPHS_FROM", "0"))
_CONDITIONS: Final[Sequence[DependencyCondition]] = ("succeeded", "succeeded", "succeeded", "ended", "failed")
_ENDS: Final[Sequence[ReportKind]] = ("succeeded", "succeeded", "succeeded", "failed", "cancelled", "expired")
_STATES: Final = {
    "succeeded": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "cancelled": JobState.CANCELLED,
    "expired": JobState.EXPIRED,
}
_QUEUE: Final = "graph"


@dataclass
class _Graph:
    """A graph, the outcome of its jobs if they run, and the number of their runs.

    Attributes:
        unsure: jobs of which the answer to a report was lost.
        unwanted: jobs to be cancelled while they waited.
    """

    dice: random.Random
    jobs: list[NewJob] = field(default_factory=list[NewJob])
    ends: dict[str, ReportKind] = field(default_factory=dict[str, ReportKind])
    runs: dict[str, int] = field(default_factory=dict[str, int])
    unsure: set[str] = field(default_factory=set[str])
    unwanted: set[str] = field(default_factory=set[str])

    async def grow(self, driver: JobDriver, count: int) -> None:
        for _ in range(count):
            upstream = self.dice.sample(self.jobs, k=min(self.dice.choice((0, 1, 1, 2, 4)), len(self.jobs)))
            depends_on = tuple(JobDependency(each.id, self.dice.choice(_CONDITIONS)) for each in upstream)
            held = self.dice.random() < 0.1
            job = await driver.new(queue=_QUEUE, held=held, detail=JobDetail(depends_on=depends_on))
            self.jobs.append(job)
            self.ends[job.id] = self.dice.choice(_ENDS)

    def check(self, found: dict[str, JobRecord]) -> None:
        for job in self.jobs:
            record = found[job.id]
            depends_on = job.detail.depends_on if job.detail is not None else ()
            missed = {
                after
                for each in depends_on
                if (after := after_upstream(each.condition, found[each.id].state)) is not None
            }
            if job.id in self.unwanted and record.state is JobState.CANCELLED and record.token == 0:
                assert job.id not in self.runs, f"{job.id} ended, and was cancelled"
            elif missed:
                assert record.state in missed, (job.id, record.state, missed)
                assert record.token == 0, f"{job.id} was dispatched with an unmet dependency"
            else:
                assert record.state is _STATES[self.ends[job.id]], (job.id, record.state)
                ended = self.runs.get(job.id, 0)
                assert ended == 1 or (ended == 0 and job.id in self.unsure), f"{job.id} ended {ended} times"


@pytest.mark.timeout(86_400)
def test_random_graphs_end_as_their_rules_say_on_postgresql(job_store_url: str) -> None:
    for seed in range(_FROM, _FROM + _GRAPHS):
        asyncio.run(_check_graph(seed, job_store_url))


@pytest.mark.timeout(86_400)
def test_random_graphs_end_as_their_rules_say_in_a_file(tmp_path: Path) -> None:
    for seed in range(_FROM, _FROM + _GRAPHS):
        asyncio.run(_check_graph(seed, f"sqlite:///{tmp_path / f'{seed}.db'}"))


async def _check_graph(seed: int, url: str) -> None:
    dice = random.Random(seed)
    stores = [open_job_store(url, BrokerOptions(name=f"graph {number}")) for number in range(3)]
    drivers = [JobDriver(store) for store in stores]
    graph = _Graph(dice)
    try:
        await graph.grow(drivers[0], dice.randint(_JOBS // 2, _JOBS))
        submitted = 0
        while submitted < len(graph.jobs):
            count = dice.randint(1, 20)
            some = graph.jobs[submitted : submitted + count]
            # In any order: jobs submitted together may wait for each other.
            some = dice.sample(some, k=len(some))
            is_cut = not await _cut(dice, dice.choice(drivers).store.submit(some))
            answers = await dice.choice(drivers).store.submit(some)
            assert is_cut or not any(answer.is_new for answer in answers)
            assert [answer.id for answer in answers] == [job.id for job in some]
            submitted += count
            await _round(graph, drivers)
        ended: dict[str, JobRecord] = {}
        while left := [job.id for job in graph.jobs if job.id not in ended]:
            found = {job_id: await drivers[0].read(job_id) for job_id in left}
            ended |= {job_id: record for job_id, record in found.items() if record.state in TERMINAL}
            await _round(graph, drivers)
            for record in found.values():
                if record.state is JobState.HELD:
                    await drivers[0].update(record, JobState.QUEUED, kind="release")
        graph.check({job.id: await drivers[0].read(job.id) for job in graph.jobs})
    finally:
        for store in stores:
            await store.aclose()


async def _round(graph: _Graph, drivers: Sequence[JobDriver]) -> None:
    """Dispatch some, report them twice, cancel some, and release, all at once; interrupt some of the calls."""
    dice = graph.dice
    batch = await drivers[0].try_dispatch(queue=_QUEUE)
    reports = [report(job, graph.ends[job.id]) for job in batch.jobs] if batch is not None else []
    halves = reports[::2], reports[1::2]
    calls = [_send_reports(graph, dice.choice(drivers), half) for half in (*halves, *halves) if half]
    releases = [
        _cut(dice, driver.schedulers.release_dependents(limit=dice.choice((1, 3, 500)))) for driver in drivers
    ]
    unwanted = [_cancel_waiting(graph, dice.choice(drivers), job.id) for job in graph.jobs if dice.random() < 0.01]
    await asyncio.gather(*calls, *releases, *unwanted)
    await drivers[1].release()


async def _send_reports(graph: _Graph, driver: JobDriver, reports: Sequence[Report]) -> None:
    if not await _cut(graph.dice, _apply(graph, driver, reports)):
        graph.unsure.update(one.id for one in reports)
        await _apply(graph, driver, reports)


async def _apply(graph: _Graph, driver: JobDriver, reports: Sequence[Report]) -> None:
    for one, applied in zip(reports, await driver.schedulers.apply(reports), strict=True):
        graph.runs[one.id] = graph.runs.get(one.id, 0) + (applied.outcome == "accepted")


async def _cancel_waiting(graph: _Graph, driver: JobDriver, job_id: str) -> None:
    """Cancel a waiting job, if it exists."""
    record = await driver.store.get(job_id)
    if record is not None and record.state in CHANGEABLE:
        graph.unwanted.add(job_id)
        await _cut(graph.dice, driver.update(record, JobState.CANCELLED, kind="cancel"))


async def _cut(dice: random.Random, call: Awaitable[object]) -> bool:
    """Await the call, which may be interrupted; return whether it was not."""
    task = asyncio.ensure_future(call)
    if dice.random() < 0.3:
        asyncio.get_running_loop().call_later(dice.random() * 0.01, task.cancel)
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if not isinstance(outcome, BaseException):
        return True
    assert isinstance(outcome, StoreUnavailable | asyncio.CancelledError), outcome
    return False
