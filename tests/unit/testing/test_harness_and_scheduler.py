"""The same programs give the same jobs in the harness and with a real scheduler and worker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

import pytest

from taskmq import Context, RetryPolicy, TaskMQ
from taskmq.contracts.jobs import JobRecord
from taskmq.model.states import TERMINAL, JobState
from taskmq.reactions import JobEnded, job
from taskmq.stored_jobs.new_jobs import name_of
from taskmq.testing import Harness
from tests.unit.stored_jobs.kit import Shop, in_shop

_Program = Callable[[TaskMQ, Callable[[float], Awaitable[None]]], Awaitable[None]]
_Outcome = tuple[str, JobState, int, float]

# A scheduler polls, and a harness knows.
_SLACK = 2.0


def _define(app: TaskMQ, followed: list[tuple[str, str]]) -> None:
    @app.task(name="say", queue="work", lane="store")
    async def say(word: str) -> str:
        return word

    @app.task(name="break", queue="work", retry=RetryPolicy(max_attempts=2, base="10s", jitter=False))
    async def fail(word: str) -> None:
        raise ValueError(word)

    @app.task(name="alone", queue="work", concurrency=1)
    async def alone(word: str) -> str:
        return word

    @app.task(name="paced", queue="work", rate_limit="1/m")
    async def paced(word: str) -> str:
        return word

    @app.task(name="done_once", queue="work", idempotency_key="{word}", idempotency_ttl="1h", retry=None)
    async def done_once(context: Context, word: str, fails: bool = False) -> str | None:
        if fails:
            raise ValueError(word)
        await context.asleep("20s")
        return context.idempotency_key

    @app.on(job("say", state=TERMINAL))
    @app.task(name="follow", queue="work")
    async def follow(ended: JobEnded) -> None:
        followed.append((ended.job_id, ended.state))


async def _wait_for_others(app: TaskMQ, advance: Callable[[float], Awaitable[None]]) -> None:
    first = await app.jobs.asubmit("break", "a", job_id="first")
    for condition in ("succeeded", "ended", "failed"):
        await app.jobs.asubmit("alone", condition, job_id=condition, depends_on=[(first.id, condition)])
    await app.jobs.asubmit("alone", "last", job_id="last", depends_on=["succeeded"])
    await advance(60)
    await app.jobs.aretry("first")
    await advance(60)


async def _wait_for_a_limit(app: TaskMQ, advance: Callable[[float], Awaitable[None]]) -> None:
    for number in range(4):
        await app.jobs.asubmit("alone", str(number), job_id=f"alone-{number}")
        await app.jobs.asubmit("paced", str(number), job_id=f"paced-{number}")
    await advance(400)


async def _wait_for_a_quota(app: TaskMQ, advance: Callable[[float], Awaitable[None]]) -> None:
    await app.pools.aset_quota("acme", running=1)
    for number in range(3):
        await app.jobs.asubmit("say", str(number), job_id=f"say-{number}", tenant="acme")
    await advance(60)


async def _wait_for_a_time(app: TaskMQ, advance: Callable[[float], Awaitable[None]]) -> None:
    await app.jobs.asubmit("say", "later", job_id="later", delay="1m")
    await app.jobs.asubmit("say", "late", job_id="late", delay="1h", expires="2h")
    await app.jobs.asubmit("break", "again", job_id="again")
    await advance(30)
    await app.jobs.achange("late", delay="10s")
    await advance(90)


async def _end_without_a_run(app: TaskMQ, advance: Callable[[float], Awaitable[None]]) -> None:
    await app.jobs.asubmit("say", "a", job_id="cancelled", delay="1h")
    await app.jobs.asubmit("say", "b", job_id="behind", depends_on=["cancelled"])
    await app.jobs.acancel("cancelled")
    await advance(60)


async def _do_work_once(app: TaskMQ, advance: Callable[[float], Awaitable[None]]) -> None:
    await app.jobs.asubmit("done_once", "a", True, job_id="failing")
    await advance(10)
    for number in range(3):
        await app.jobs.asubmit("done_once", "a", job_id=f"once-{number}", delay=number)
    await app.jobs.asubmit("done_once", "b", job_id="other")
    await advance(120)
    await app.jobs.asubmit("done_once", "a", job_id="answered")
    await advance(60)


_PROGRAMS = [
    _do_work_once,
    _wait_for_others,
    _wait_for_a_limit,
    _wait_for_a_quota,
    _wait_for_a_time,
    _end_without_a_run,
]


def _outcomes(jobs: Iterable[JobRecord], began: int) -> dict[str, _Outcome]:
    """Return task, state, attempt, and seconds until the first start or the end, of each job by its id."""
    return {
        name_of(each): (
            each.task,
            each.state,
            each.attempt,
            ((each.first_started or each.finished or began) - began) / 1000,
        )
        for each in jobs
    }


def _with_a_scheduler(program: _Program) -> tuple[dict[str, _Outcome], list[tuple[str, str]]]:
    found: dict[str, _Outcome] = {}
    followed: list[tuple[str, str]] = []

    async def test(shop: Shop) -> None:
        began = shop.stage.clock.now_ms()
        await program(shop.app, shop.stage.pass_by)
        found.update(_outcomes((await shop.app.jobs.alist()).jobs, began))

    in_shop(test, also=lambda app: _define(app, followed))
    return found, sorted(followed)


async def _in_the_harness(program: _Program) -> tuple[dict[str, _Outcome], list[tuple[str, str]]]:
    app = TaskMQ("memory://", store="postgresql://never-reached/db")
    followed: list[tuple[str, str]] = []
    _define(app, followed)
    with Harness(app) as harness:
        began = round(harness.now.timestamp() * 1000)

        async def advance(seconds: float) -> None:
            await harness.aadvance(timedelta(seconds=seconds), raise_errors=False)

        await program(app, advance)
        return _outcomes((await app.jobs.alist()).jobs, began), sorted(followed)


@pytest.mark.real_time
@pytest.mark.parametrize("program", _PROGRAMS, ids=lambda program: program.__name__.strip("_"))
async def test_a_program_has_the_same_jobs_in_the_harness_and_with_a_scheduler(program: _Program) -> None:
    in_harness, followed = await _in_the_harness(program)
    with_scheduler, also_followed = await asyncio.to_thread(_with_a_scheduler, program)

    assert followed == also_followed
    assert {name: outcome[:3] for name, outcome in in_harness.items()} == {
        name: outcome[:3] for name, outcome in with_scheduler.items()
    }
    # Jobs of one millisecond have no order.
    for task in {outcome[0] for outcome in in_harness.values()}:
        ours, theirs = (
            sorted(each[3] for each in found.values() if each[0] == task) for found in (in_harness, with_scheduler)
        )
        assert theirs == pytest.approx(ours, abs=_SLACK), task
