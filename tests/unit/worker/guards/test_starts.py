"""Limits of a worker without a state: stored jobs start in time, and sent ones do not."""

from typing import Any, cast

import pytest

from taskmq import RateLimit, task
from taskmq.errors import UnsupportedFeature
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.outcome import Dead, Interrupted, Snoozed
from taskmq.worker.attempt import Attempt
from taskmq.worker.guards.starts import StoredStartsGuard
from tests.unit.scheduler.stage import LoopClock


@task(name="strict", rate_limit=RateLimit("20/s", strict=True))
async def strict() -> None: ...


@task(name="plain", rate_limit="20/s")
async def plain() -> None: ...


@task(name="narrow", concurrency=1)
async def narrow() -> None: ...


@task(name="free")
async def free() -> None: ...


def _attempt(task: Any, **invitation: Any) -> Attempt:
    store = Invitation(id="j", token=1, reports="taskmq.reports.shop.0", **invitation)
    return Attempt(cast("Any", None), Envelope(task=task.name, store=store), task, "j")


def test_only_strict_rates_and_sent_jobs_concern_the_guard() -> None:
    guard = StoredStartsGuard(cast("Any", None))
    sent = Attempt(cast("Any", None), Envelope(task="plain"), plain, "j")

    assert [guard.concerns_task(each) for each in (strict, plain, free)] == [True, True, False]
    assert [guard.concerns(_attempt(each)) for each in (strict, plain, free)] == [True, False, False]
    assert guard.concerns(sent)
    assert not any(guard.concerns(_attempt(each, fence=7, leaves_limits=True)) for each in (plain, free))


async def test_a_job_waits_for_its_instant() -> None:
    clock = LoopClock()
    now = clock.now_ms()

    permit = await StoredStartsGuard(clock).acquire(_attempt(strict, not_before=now + 300, not_after=now + 340))

    assert clock.now_ms() == now + 300
    assert not isinstance(permit, Interrupted)
    assert await cast("Any", permit).release(None, None)


@pytest.mark.parametrize(
    "window",
    [
        pytest.param((), id="unknown"),
        pytest.param((-100, -1), id="over"),
        pytest.param((60_000, 60_040), id="far"),
    ],
)
async def test_a_job_returns_if_it_cannot_start_in_time(window: tuple[int, ...]) -> None:
    clock = LoopClock()
    names = ("not_before", "not_after")
    fields = {name: clock.now_ms() + ms for name, ms in zip(names, window, strict=False)}

    assert await StoredStartsGuard(clock).acquire(_attempt(strict, **fields)) == Interrupted()


async def test_a_job_whose_limits_were_left_to_a_state_waits_and_its_task_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = StoredStartsGuard(LoopClock())

    for invitation in ({}, {"fence": 7, "leaves_limits": True}):
        assert isinstance(await guard.acquire(_attempt(narrow, **invitation)), Snoozed)
    assert not isinstance(await guard.acquire(_attempt(narrow, fence=7)), Snoozed)

    (line,) = caplog.messages
    assert line.startswith("jobs of task narrow wait: their scheduler did not take their concurrency limits.")


async def test_a_sent_job_is_refused_with_the_remedy() -> None:
    sent = Attempt(cast("Any", None), Envelope(task="plain"), plain, "j")

    outcome = await StoredStartsGuard(LoopClock()).acquire(sent)

    assert isinstance(outcome, Dead)
    assert isinstance(outcome.error, UnsupportedFeature)
    assert "submit it to the store" in str(outcome.error)


async def test_a_cancelled_job_passes() -> None:
    attempt = _attempt(strict)
    attempt.cancelled = "not needed"

    assert not isinstance(await StoredStartsGuard(LoopClock()).acquire(attempt), Interrupted)
