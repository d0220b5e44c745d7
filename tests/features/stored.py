"""Checks of the features of stored jobs."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from taskmq import DuplicateJob, Job, TaskFailed, TaskMQ
from taskmq.client.progress import JobProgress
from taskmq.contracts.identity import Actor
from taskmq.model.states import JobState
from taskmq.operations.bulks import BulkOrder, TenantBulks
from taskmq.operations.queues import pause_queues, resume_queues
from taskmq.schedules.triggers import every
from tests.features.feature import PATIENCE, Feature
from tests.servers.waiting import until


async def _check_results(app: TaskMQ, _: Path) -> None:
    assert await _result(app, "double", 21) == 42
    failed = await app.jobs.asubmit("stop", "no")
    with pytest.raises(TaskFailed, match="no"):
        await failed.aresult(timeout=PATIENCE)


async def _check_large_results(app: TaskMQ, _: Path) -> None:
    assert await _result(app, "fill", 100_000) == "x" * 100_000


async def _check_retries(app: TaskMQ, _: Path) -> None:
    job = await app.jobs.asubmit("third-time")
    assert await job.aresult(timeout=PATIENCE) == 3
    assert [each.state for each in await app.jobs.aattempts(job.id)][-1] is JobState.SUCCEEDED
    slow = await app.jobs.asubmit("sleep", 60, timeout="100ms")
    assert (await slow.aoutcome(timeout=PATIENCE)).state is JobState.FAILED


async def _check_delays(app: TaskMQ, _: Path) -> None:
    job = await app.jobs.asubmit("double", 1, delay="700ms")
    await job.aresult(timeout=PATIENCE)
    record = await app.jobs.aget(job.id)
    assert record.started is not None
    assert record.started - record.submitted >= 700


async def _check_cancelling(app: TaskMQ, _: Path) -> None:
    job = await app.jobs.asubmit("sleep", 600)
    await _reaches(app, job, JobState.RUNNING)
    await job.acancel()
    await _reaches(app, job, JobState.CANCELLED)


async def _check_keys(app: TaskMQ, _: Path) -> None:
    jobs = [await app.jobs.asubmit("pay", 7) for _ in range(4)]
    results = {tuple(await job.aresult(timeout=PATIENCE)) for job in jobs}
    assert len(results) == 1
    assert all(fence > 0 for _, fence in results)


async def _check_unique(app: TaskMQ, _: Path) -> None:
    await app.jobs.asubmit(app.tasks["single"], 1)
    with pytest.raises(DuplicateJob):
        await app.jobs.asubmit(app.tasks["single"], 1)


async def _check_concurrency(app: TaskMQ, _: Path) -> None:
    assert _are_apart(await _spans(app, [("alone", n) for n in range(5)]))


async def _check_rates(app: TaskMQ, _: Path) -> None:
    # Not from the first start, which a busy worker may delay after its permit was given.
    submitted = time.time()
    began = [start for start, _ in await _spans(app, [("paced", n) for n in range(15)])]
    # The first second's starts may come at once.
    assert max(began) - submitted >= 1.5


async def _check_strict_rates(app: TaskMQ, _: Path) -> None:
    began = sorted(start for start, _ in await _spans(app, [("strict", n) for n in range(11)]))
    assert all(later - earlier >= 1 for earlier, later in zip(began, began[5:], strict=False))


async def _check_order(app: TaskMQ, _: Path) -> None:
    spans = await _spans(app, [("follow", "acme", n) for n in range(5)])
    assert _are_apart(spans)
    assert spans == sorted(spans)


async def _check_locks(app: TaskMQ, _: Path) -> None:
    assert _are_apart(await _spans(app, [("locked", n) for n in range(4)]))


async def _check_progress(app: TaskMQ, _: Path) -> None:
    job = await app.jobs.asubmit("report")
    found: list[JobProgress] = []

    async def has_reported() -> bool:
        if (progress := await job.aprogress()) is not None:
            found.append(progress)
        return bool(found)

    await _wait_until(has_reported)
    assert (found[0].done, found[0].total, found[0].note) == (2, 3, "two of three")
    await job.acancel()


async def _check_steps(app: TaskMQ, _: Path) -> None:
    job = await app.jobs.asubmit(app.tasks["steps"])
    found, attempt = await job.aresult(timeout=PATIENCE)
    assert found.startswith("made ")
    assert attempt == 2


async def _check_sleeps(app: TaskMQ, _: Path) -> None:
    job = await app.jobs.asubmit("nap")
    slept, attempt = await job.aresult(timeout=PATIENCE)
    assert slept >= 300
    assert attempt == 1


async def _check_signals(app: TaskMQ, _: Path) -> None:
    job = await app.jobs.asubmit("wait")
    await _reaches(app, job, JobState.SCHEDULED)
    await app.jobs.asignal(job.id, "go", 7)
    assert await job.aresult(timeout=PATIENCE) == 7


async def _check_checkpoints(app: TaskMQ, _: Path) -> None:
    assert await _result(app, "resume") == "half way"


async def _check_pauses(app: TaskMQ, _: Path) -> None:
    await pause_queues(app, ["rests"])
    job = await app.jobs.asubmit("rest")
    reasons = (await app.jobs.aexplain(job.id)).reasons
    assert any("paused" in reason for reason in reasons)
    await resume_queues(app, ["rests"])
    await job.aresult(timeout=PATIENCE)


async def _check_schedules(app: TaskMQ, folder: Path) -> None:
    name, written = f"s-{uuid4().hex}", folder / "scheduled"
    await app.schedules.aadd(name, app.tasks["write"], every("200ms"), args=(str(written), "fired"))
    await until(
        lambda: written.exists() and written.read_text().count("fired") > 1, within=timedelta(seconds=PATIENCE)
    )
    await app.schedules.aremove(name)


async def _check_reactions(app: TaskMQ, _: Path) -> None:
    failed = await app.jobs.asubmit("stop", "for a reaction")
    with pytest.raises(TaskFailed):
        await failed.aresult(timeout=PATIENCE)

    async def has_reacted() -> bool:
        calls = (await app.jobs.alist("task:react status:succeeded")).jobs
        return failed.id in [await app.job(each.key or each.id).aresult(timeout=PATIENCE) for each in calls]

    await _wait_until(has_reacted)


async def _check_dependencies(app: TaskMQ, _: Path) -> None:
    first = await app.jobs.asubmit("double", 1, delay="300ms")
    second = await app.jobs.asubmit("double", 2, depends_on=[first])
    assert await second.aresult(timeout=PATIENCE) == 4
    assert await first.astate() is JobState.SUCCEEDED


async def _check_workflows(app: TaskMQ, _: Path) -> None:
    run = await (app.tasks["double"].s(1) | app.tasks["double"].s()).asend()
    assert await run.aresult(timeout=PATIENCE) == 4


async def _check_bulks(app: TaskMQ, _: Path) -> None:
    jobs = [await app.jobs.asubmit("double", n, delay="1h", labels={"bulk": "yes"}) for n in range(3)]
    bulks = TenantBulks(app, None, by=Actor(user="ann"))
    begun = await bulks.begin(BulkOrder("cancel", "label.bulk:yes"))

    async def has_ended() -> bool:
        found = await bulks.get(begun.id)
        return found is not None and found.ended is not None

    await _wait_until(has_ended)
    assert {await job.astate() for job in jobs} == {JobState.CANCELLED}


async def _check_history(app: TaskMQ, _: Path) -> None:
    job = await app.jobs.asubmit("double", 1, held=True, labels={"seen": "yes"})
    await app.jobs.arelease(job.id)
    await job.aresult(timeout=PATIENCE)
    assert [entry.kind for entry in await app.jobs.ahistory(job.id)] == ["release"]
    assert [each.id for each in (await app.jobs.alist("label.seen:yes")).jobs] == [job.id]


async def _result(app: TaskMQ, task: str, *args: object) -> Any:
    return await (await app.jobs.asubmit(task, *args)).aresult(timeout=PATIENCE)


async def _spans(app: TaskMQ, calls: Iterable[tuple[object, ...]]) -> list[tuple[float, float]]:
    """Submit runs; return when each began and ended, in the order of submission."""
    jobs: list[Job[Any]] = [await app.jobs.asubmit(str(task), *args) for task, *args in calls]
    return [tuple(await job.aresult(timeout=PATIENCE)) for job in jobs]


def _are_apart(spans: Sequence[tuple[float, float]]) -> bool:
    return all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


async def _reaches(app: TaskMQ, job: Job[object], state: JobState) -> None:
    async def is_there() -> bool:
        return (await app.jobs.aget(job.id)).state is state

    await _wait_until(is_there)


async def _wait_until(check: Callable[[], Awaitable[bool]]) -> None:
    await until(check, within=timedelta(seconds=PATIENCE))


STORED = (
    Feature("submit, results, errors", _check_results),
    Feature("retries, attempts, timeouts", _check_retries),
    Feature("delays", _check_delays),
    Feature("cancelling a running job", _check_cancelling),
    Feature("history, lists, filters", _check_history),
    Feature("idempotency keys, fencing tokens", _check_keys),
    Feature("unique jobs", _check_unique),
    Feature("concurrency limits", _check_concurrency, is_shared=True),
    Feature("rate limits", _check_rates, is_shared=True),
    Feature("strict rate limits", _check_strict_rates, is_shared=True),
    Feature("order by key", _check_order),
    Feature("locks", _check_locks, is_shared=True),
    Feature("progress", _check_progress),
    Feature("saved steps", _check_steps),
    Feature("tasks that sleep", _check_sleeps),
    Feature("signals to a job", _check_signals),
    Feature("checkpoints", _check_checkpoints),
    Feature("large results (`results_at`)", _check_large_results),
    Feature("queue pauses", _check_pauses, is_shared=True),
    Feature("schedules", _check_schedules),
    Feature("reactions to the end of a job", _check_reactions),
    Feature("dependencies", _check_dependencies),
    Feature("workflows", _check_workflows),
    Feature("bulk operations", _check_bulks),
)
