"""Runs that wait for limits shared by all workers."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from taskmq import Concurrency, Context, RateLimit, UnsupportedFeature
from taskmq.contracts.stores import LimitUsage, PlaceDemand
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.outcome import Dead, Outcome, Snoozed
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt
from taskmq.worker.guards.starts import StoredStartsGuard
from taskmq.worker.host.process_facts import is_gone, process_identity
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, play, send, working
from tests.unit.worker.staged import FakeDelivery, StagedApp, open_staged, settle_loop
from tests.unit.worker.staged_limits import StagedLimits

Play = Callable[[StagedApp, Gate], Awaitable[None]]


def _fails(label: str) -> str:
    raise KeyError(label)


async def look(app: StagedApp, key: str) -> LimitUsage:
    state = app.sessions.current().state
    assert state is not None
    return await state.limits.usage(key)


def limits_of(app: StagedApp) -> StagedLimits:
    state = app.sessions.current().state
    assert state is not None
    return cast("StagedLimits", state.limits)


async def pass_time(app: StagedApp, seconds: float) -> None:
    app.fake_clock.advance(seconds)
    await asyncio.sleep(0.2)
    await settle_loop()


@run_by(play, rate_limit="1/m")
async def test_a_job_over_the_rate_waits_at_the_broker_for_its_turn(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    await send(app, "a", "b", "c")
    async with working(app):
        assert gate.started == ["a"]
        assert (await app.stats("work")).delayed == 2
        assert await look(app, "rate:gated") == LimitUsage(held=0, waiting=2)
        await pass_time(app, 60)
        assert gate.started == ["a", "b"]
        await pass_time(app, 60)
        assert gate.finished == ["a", "b", "c"]
        assert {attempt for _, attempt, _ in gate.attempts} == {1}


@run_by(play, rate_limit=RateLimit("1/m", burst=3))
async def test_a_burst_starts_at_once(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a", "b", "c", "d")
    async with working(app):
        assert gate.started == ["a", "b", "c"]


@run_by(play, concurrency=2)
async def test_the_concurrency_limit_holds_across_workers(app: StagedApp, gate: Gate, /) -> None:
    other = app.twin()
    gate.define(other, concurrency=2)
    await send(app, *(f"{number}" for number in range(6)))
    async with working(app), working(other):
        await settle_loop()
        assert gate.running == 2
        assert await look(app, "places:gated") == LimitUsage(held=2, waiting=4)
        gate.open.set()
        for _ in range(8):
            await pass_time(app, 2)
        assert len(gate.finished) == 6
        assert gate.most == 2
        assert (await look(app, "places:gated")).held == 0


@run_by(play, concurrency=Concurrency(1, key="account {label}"))
async def test_each_key_has_its_own_limit(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a", "a", "b")
    async with working(app):
        assert sorted(gate.started) == ["a", "b"]
        assert (await look(app, "places:gated:account a")).held == 1


@pytest.mark.parametrize(("key", "running"), [("account {label}", 2), (None, 1)])
def test_keys_are_limited_per_tenant_and_a_limit_without_a_key_across_tenants(key: str | None, running: int) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        for tenant in ("north", "south"):
            await app.tasks["gated"].options(tenant=tenant).asend("a")
        async with working(app):
            assert len(gate.started) == running

    play(test, concurrency=Concurrency(1, key=key))


@run_by(play, concurrency=Concurrency(1, key=_fails))
async def test_an_invalid_key_ends_the_job(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    async with working(app):
        assert gate.started == []
        assert app.story() == ["stored failed", "confirmed work.dlq", "acked work"]


@run_by(play, concurrency=Concurrency(1, key="label"))
async def test_mismatching_arguments_end_the_job_as_usual_and_take_no_permit(app: StagedApp, gate: Gate, /) -> None:
    await app.put(b'{"task":"gated","id":"job-1","args":[1,2,3]}', task="gated")
    async with working(app):
        assert app.story() == ["stored failed", "confirmed work.dlq", "acked work"]
        assert limits_of(app).names.count("acquire") == 0


@run_by(play, rate_limit="1/m")
async def test_a_cancelled_waiting_job_gives_its_turn_away(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a", "b", "c")
    async with working(app):
        await app.jobs.cancel_job("b", reason="not wanted", remember="1h")
        # The worker polls for cancellations itself.
        await asyncio.sleep(10)
        await pass_time(app, 61)
        assert gate.started == ["a"]
        assert await look(app, "rate:gated") == LimitUsage(held=0, waiting=1)
        await pass_time(app, 60)
        assert gate.started == ["a", "c"]


@run_by(play, rate_limit="1/m")
async def test_a_job_that_has_expired_takes_no_start(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    expires = app.fake_clock.now_ms() + 1000
    await app.put(b'{"task":"gated","id":"b","args":["b"],"expires":%d}' % expires, task="gated", job_id="b")
    async with working(app):
        await pass_time(app, 61)
        assert gate.started == ["a"]
        assert app.story()[-2:] == ["stored cancelled", "acked work"]
        assert (await look(app, "rate:gated")).waiting == 0


@run_by(play, rate_limit="1/m")
async def test_a_job_before_its_time_takes_no_start(app: StagedApp, gate: Gate, /) -> None:
    eta = app.fake_clock.now_ms() + 5000
    await app.put(b'{"task":"gated","id":"a","args":["a"],"eta":%d}' % eta, task="gated", job_id="a")
    async with working(app):
        assert limits_of(app).names.count("acquire") == 0
        await pass_time(app, 5.1)
        assert gate.started == ["a"]


@run_by(play, rate_limit="1/m")
async def test_jobs_wait_while_the_state_does_not_answer(app: StagedApp, gate: Gate, /) -> None:
    limits_of(app).fault = "REFUSED"
    await send(app, "a")
    async with working(app):
        await asyncio.sleep(5)
        assert gate.started == []
        assert (await app.stats("work")).delayed == 1
        limits_of(app).fault = "NONE"
        await pass_time(app, 16)
        assert gate.started == ["a"]


def test_jobs_with_an_optional_limit_run_while_the_state_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        gate.open.set()
        limits_of(app).fault = "REFUSED"
        await send(app, "a", "b", "c")
        async with working(app, concurrency=1):
            assert gate.started == ["a", "b", "c"]
            assert limits_of(app).names == ["acquire"]

    play(test, rate_limit=RateLimit("1/m", on_failure="open"), result=False)
    assert "task gated runs without its limits" in caplog.text


@run_by(play, rate_limit=RateLimit("1/m", on_failure="open"), concurrency=1)
async def test_one_closed_limit_blocks_a_job_with_several(app: StagedApp, gate: Gate, /) -> None:
    limits_of(app).fault = "REFUSED"
    await send(app, "a")
    async with working(app):
        await asyncio.sleep(5)
        assert gate.started == []


@run_by(play, concurrency=1)
async def test_a_permit_that_cannot_be_released_is_released_later(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    async with working(app):
        limits_of(app).once = "REFUSED"
        gate.open.set()
        await settle_loop()
        assert app.story() == ["stored succeeded", "acked work"]
        await asyncio.sleep(5)
        assert limits_of(app).names == ["acquire", "release", "release"]
        assert (await look(app, "places:gated")).held == 0


@run_by(play, concurrency=2)
async def test_a_permit_with_a_lost_answer_is_released(app: StagedApp, gate: Gate, /) -> None:
    limits_of(app).once = "UNKNOWN"
    await send(app, "a")
    async with working(app):
        await asyncio.sleep(5)
        assert (await look(app, "places:gated")).held == 1
        gate.open.set()
        await settle_loop()
        assert gate.finished == ["a"]
        assert (await look(app, "places:gated")).held == 0


@run_by(play, concurrency=1)
async def test_permits_are_renewed_while_their_runs_last(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    async with working(app, lease=60.0):
        for _ in range(10):
            app.fake_clock.advance(30)
            await asyncio.sleep(30)
        assert (await look(app, "places:gated")).held == 1
        assert limits_of(app).names.count("renew") >= 10
        gate.open.set()
        await settle_loop()
        before = limits_of(app).names.count("renew")
        await asyncio.sleep(300)
        assert limits_of(app).names.count("renew") == before


def test_a_permit_not_renewed_in_time_goes_to_another_job(caplog: pytest.LogCaptureFixture) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await send(app, "a")
        async with working(app, lease=60.0):
            limits_of(app).fault = "REFUSED"
            app.fake_clock.advance(61)
            await asyncio.sleep(61)
            limits_of(app).fault = "NONE"
            state = app.sessions.current().state
            assert state is not None
            demand = PlaceDemand(key="places:gated", places=1)
            assert (await state.limits.acquire("b", [demand], hold="b", seconds=600, patience=0)).granted
            await asyncio.sleep(30)
            gate.open.set()
            await settle_loop()
            assert gate.finished == ["a"]
            assert (await look(app, "places:gated")).held == 1

    play(test, concurrency=1)
    assert "renewing permits of running jobs failed" in caplog.text
    assert "job a continues without its permit (places:gated)" in caplog.text


@run_by(play, concurrency=1)
async def test_a_stopping_worker_releases_its_permits(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    async with working(app):
        assert (await look(app, "places:gated")).held == 1
    assert (await look(app.twin(), "places:gated")).held == 0


def test_the_permits_of_a_dead_process_are_free_at_once() -> None:
    child = subprocess.run(
        [sys.executable, "-c", "from taskmq.worker.host.process_facts import *; print(process_identity())"],
        capture_output=True,
        text=True,
        check=True,
    )

    async def test(app: StagedApp, gate: Gate) -> None:
        state = app.sessions.current().state
        assert state is not None
        demand = PlaceDemand(key="places:gated", places=2)
        for hold in (f"{child.stdout.strip()}/7", f"{process_identity()}/8"):
            assert (await state.limits.acquire(hold, [demand], hold=hold, seconds=600, patience=0)).granted
        await send(app, "a", "b")
        async with working(app):
            assert gate.started == ["a"]
            assert (await app.stats("work")).delayed == 1

    play(test, concurrency=2)


def test_a_process_knows_dead_peers() -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from taskmq.worker.host.process_facts import *; print(process_identity()); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    name = child.stdout.readline().strip()

    assert not is_gone(process_identity())
    assert not is_gone(name)
    place, number, started = name.split(".")
    assert is_gone(f"{place}.{number}.{int(started) + 1}")
    for unknown in (f"elsewhere.{number}.1", "?.1234", "", "nonsense", f"{place}.x.{started}"):
        assert not is_gone(unknown)
    child.kill()
    # Ended, and not yet reaped by its parent.
    while not is_gone(name):
        pass
    child.communicate()
    assert is_gone(name)


@run_by(play, rate_limit="20/s")
async def test_a_start_that_is_near_is_waited_for_in_its_slot(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    # The starts of a quarter of a second may come at once.
    await send(app, *(f"{number}" for number in range(7)))
    async with working(app):
        await asyncio.sleep(0.2)
        assert len(gate.started) >= 6
        assert (await app.stats("work")).delayed in (0, 1)


@pytest.mark.parametrize(("late", "asked"), [(0.04, 1), (0.06, 2)])
@run_by(play, rate_limit=RateLimit("20/s", strict=True), concurrency=Concurrency(9))
async def test_a_late_start_under_a_strict_rate_is_skipped(
    app: StagedApp, gate: Gate, /, late: float, asked: int
) -> None:
    limits = limits_of(app)
    limits.delays.append(lambda: app.fake_clock.advance(late))
    gate.open.set()
    await send(app, "a")
    async with working(app):
        await asyncio.sleep(0.2)
        assert gate.started == ["a"]
        assert limits.names.count("acquire") == asked


@run_by(play, rate_limit=RateLimit("1/s", strict=True))
async def test_a_slow_state_does_not_stop_a_strict_rate(app: StagedApp, gate: Gate, /) -> None:
    limits = limits_of(app)
    limits.delays += [lambda: app.fake_clock.advance(0.3)] * 40
    gate.open.set()
    await send(app, "a", "b", "c")
    async with working(app):
        for _ in range(20):
            await pass_time(app, 1)
        assert sorted(gate.finished) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "options",
    [
        {"rate_limit": "1/s"},
        {"concurrency": 1},
    ],
)
def test_a_worker_without_a_state_refuses_tasks_with_limits_by_name(options: dict[str, Any]) -> None:
    with open_staged(with_state=False) as app:
        Gate().define(app, **options)

        with pytest.raises(UnsupportedFeature, match=r"rate_limit and concurrency need a state or.*gated"):
            Worker(app, WorkerConfig())


async def test_without_a_state_a_stored_job_runs_if_the_store_gave_it_its_permits() -> None:
    with open_staged(with_state=False) as app:
        Gate().define(app, concurrency=1)
        guard = StoredStartsGuard(app.sessions.clock)
        held = Invitation(id="a", token=1, reports="taskmq.reports.shop.1", fence=0)
        attempts = [
            Attempt(FakeDelivery(b""), Envelope(id="a", task="gated", store=store), app.tasks["gated"], "a")
            for store in (held, replace(held, fence=None), None)
        ]

        answers = [await guard.acquire(attempt) for attempt in attempts]

        assert all(map(guard.concerns, attempts))
        assert not isinstance(answers[0], Outcome)
        assert [type(answer) for answer in answers[1:]] == [Snoozed, Dead]


async def test_tasks_that_share_a_limit_share_its_permits() -> None:
    gate = Gate()
    with open_staged() as app:
        gate.define(app, concurrency=Concurrency(1, name="stripe"))

        @app.task(name="other", queue="work", concurrency=Concurrency(1, name="stripe"))
        async def other(context: Context, label: str) -> None:
            gate.started.append(label)

        await send(app, "a")
        await send(app, "b", task="other")
        async with working(app):
            assert gate.started == ["a"]
            assert (await look(app, "places:stripe")).held == 1


def test_jobs_with_the_longest_wait_do_not_all_return_together(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def test(app: StagedApp, gate: Gate) -> None:
        await send(app, *(f"{number}" for number in range(30)))
        async with working(app):
            await pass_time(app, timedelta(minutes=13).total_seconds())
            early = (await app.stats("work")).delayed
            assert early == 29

    play(test, rate_limit="1/d")
