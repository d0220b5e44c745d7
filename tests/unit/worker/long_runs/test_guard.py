"""Runs longer than the broker allows: invariants while workers, the broker or the state fail."""

import asyncio
from collections import Counter
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskmq.worker.long_runs.delivery_ages import DeliveryAges
from tests.unit.worker.impatient import ALLOWED, LEASE, World, world
from tests.unit.worker.staged import FakeDelivery
from tests.virtual_time import run

Kind = Literal["kill", "broker", "state", "stop"]
Trouble = tuple[float, Kind, float]

LONG = 3 * ALLOWED
END = 10 * ALLOWED


@given(st.lists(st.tuples(st.floats(0.1, 100), st.sets(st.integers(0, 5))), min_size=1, max_size=20))
def test_the_measured_age_of_a_delivery_is_exact_to_one_poll(
    looks: list[tuple[float, set[int]]],
) -> None:
    now, last = 0.0, 0.0
    ages = DeliveryAges(now=now)
    deliveries: dict[int, FakeDelivery] = {}
    bounds: dict[int, tuple[float, float]] = {}
    for pause, here in looks:
        last, now = now, now + pause
        for number in list(deliveries):
            if number not in here:
                del deliveries[number], bounds[number]
        for number in here - deliveries.keys():
            deliveries[number] = FakeDelivery(b"")
            bounds[number] = (last, now)
        ages.look(deliveries.values(), now=now)
        for number, delivery in deliveries.items():
            earliest, latest = bounds[number]
            assert now - latest <= ages.most(delivery, now=now) == pytest.approx(now - earliest)


async def test_a_long_job_runs_once_and_its_message_is_gone_when_it_has_ended() -> None:
    async with world("a", "b") as it:
        await it.send("job", LONG)
        await it.until_empty(within=END)
        assert it.began == it.ended == ["job"]


async def test_a_short_job_does_not_query_the_state() -> None:
    async with world("a") as it:
        it.is_state_down = True
        await it.send("job", ALLOWED / 2)
        await it.until_empty(within=ALLOWED)
        assert it.began == it.ended == ["job"]


async def test_a_job_that_waits_for_a_resource_is_requeued_before_the_broker_times_it_out() -> None:
    async with world("a") as it:
        for name in ("first", "second"):
            await it.send(name, ALLOWED * 1.5, task="heavy")
        await it.until_empty(within=END)
        assert it.began == it.ended == ["first", "second"]
        assert not any(delivery.revoked for delivery in it.nodes[0].in_hand)


async def test_jobs_keep_their_leases_even_if_the_guard_fails_in_the_meantime(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = DeliveryAges.look

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with world("a", "b") as it:
        await it.send("job", 4 * LONG)
        await asyncio.sleep(ALLOWED * 0.95)
        monkeypatch.setattr(DeliveryAges, "look", fail)
        await asyncio.sleep(LEASE * 3)
        before = it.renewals
        await asyncio.sleep(LEASE * 10)
        assert it.renewals - before >= 3 * 10 - 1
        monkeypatch.setattr(DeliveryAges, "look", look)
        await it.until_empty(within=2 * END)
        assert it.began == it.ended == ["job"]
    assert "guard of long runs failed" in caplog.text


async def test_the_age_of_a_delivery_survives_a_guard_that_fails_before_the_standby() -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with world("a", "b") as it:
        await it.send("job", LONG)
        await asyncio.sleep(ALLOWED * 0.5)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeliveryAges, "look", fail)
            await asyncio.sleep(ALLOWED * 0.1)
        await it.until_empty(within=END)
        assert it.began == it.ended == ["job"]


async def test_a_state_that_is_down_for_too_long_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world("a", "b") as it:
        it.is_state_down = True
        await it.send("job", ALLOWED * 1.5)
        await asyncio.sleep(ALLOWED * 1.2)
        assert it.began == ["job"] * 2
        it.is_state_down = False
        await it.until_empty(within=END)
        assert sorted(it.ended) == ["job"] * 2
    assert "moving it to a lease failed" in caplog.text


@pytest.mark.parametrize("what", ["state", "broker"])
async def test_the_handover_happens_once_the_state_and_the_broker_answer_again(what: str) -> None:
    async with world("a", "b") as it:
        await it.send("job", LONG)
        setattr(it, f"is_{what}_down", True)
        await asyncio.sleep(ALLOWED * 0.9)
        setattr(it, f"is_{what}_down", False)
        await it.until_empty(within=END)
        assert it.began == it.ended == ["job"]


async def test_another_worker_takes_over_a_long_run_when_the_lease_of_a_dead_one_ends() -> None:
    async with world("a") as it:
        await it.send("job", ALLOWED * 2)
        await asyncio.sleep(ALLOWED * 1.5)
        it.nodes[0].kill()
        await it.start("b").worker.is_ready.wait()
        await asyncio.sleep(LEASE * 2)
        assert it.began == ["job"] * 2
        await it.until_empty(within=END)
        assert it.ended == ["job"]


async def test_a_worker_that_stops_after_the_handover_requeues_the_job_at_once() -> None:
    async with world("a") as it:
        await it.send("job", ALLOWED * 2)
        await asyncio.sleep(ALLOWED * 1.5)
        it.nodes[0].worker.requeue_now()
        await it.nodes[0].running
        await it.start("b").worker.is_ready.wait()
        await asyncio.sleep(1)
        assert it.began == ["job"] * 2
        await it.until_empty(within=END)
        assert it.began == ["job"] * 2
        assert it.ended == ["job"]


async def test_a_job_returned_during_a_broker_outage_runs_when_its_keeper_arrives() -> None:
    async with world("a") as it:
        await it.send("job", ALLOWED * 2)
        await asyncio.sleep(ALLOWED * 1.5)
        it.is_broker_down = True
        it.nodes[0].worker.requeue_now()
        await it.nodes[0].running
        it.is_broker_down = False
        await it.start("b").worker.is_ready.wait()
        await it.until_empty(within=END)
        assert it.began == ["job"] * 2
        assert it.ended == ["job"]


async def test_a_job_that_ends_while_the_state_is_down_is_marked_when_it_is_back() -> None:
    async with world("a", "b") as it:
        await it.send("job", ALLOWED * 1.5)
        await asyncio.sleep(ALLOWED * 1.5 - 1)
        it.is_state_down = True
        await asyncio.sleep(2)
        assert it.ended == ["job"]
        it.is_state_down = False
        await it.until_empty(within=END)
        assert it.began == ["job"]


async def test_no_other_worker_runs_the_job_while_the_state_is_down() -> None:
    async with world("a", "b") as it:
        await it.send("job", LONG)
        await asyncio.sleep(ALLOWED * 1.2)
        it.is_state_down = True
        await asyncio.sleep(ALLOWED)
        assert it.began == ["job"]
        it.is_state_down = False
        await it.until_empty(within=END)
        # Its lease had ended, so the first claimant has the job.
        assert it.ended in (["job"], ["job"] * 2)


@st.composite
def _troubles(draw: st.DrawFn) -> list[Trouble]:
    kinds: list[Kind] = ["kill", "broker", "state", "stop"]
    trouble = st.tuples(st.floats(0, LONG), st.sampled_from(kinds), st.floats(1, ALLOWED))
    return sorted(draw(st.lists(trouble, max_size=5)))


# Under coverage on a busy machine it takes minutes.
@pytest.mark.nightly(
    "tests/unit/worker/long_runs/test_guard.py::"
    "test_another_worker_takes_over_a_long_run_when_the_lease_of_a_dead_one_ends"
)
@pytest.mark.timeout(600)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.floats(0, ALLOWED), st.floats(1, LONG)), min_size=1, max_size=4),
    _troubles(),
)
def test_no_job_is_lost_and_none_runs_more_often_than_the_faults_explain(
    jobs: list[tuple[float, float]], troubles: list[Trouble]
) -> None:
    async def main() -> None:
        async with world("a", "b") as it:
            async with asyncio.TaskGroup() as group:
                for number, (offset, seconds) in enumerate(jobs):
                    group.create_task(_send_at(it, offset, f"job {number}", seconds))
                group.create_task(_inject_fault(it, troubles))
            await it.until_empty(within=(2 + len(troubles)) * END)
            assert {f"job {number}" for number in range(len(jobs))} == set(it.ended)
            # Each fault repeats a job at most once; an outage of the state may do so at the hand-over and at its end.
            most = 1 + sum(1 if kind in ("kill", "stop") else 2 for _, kind, _ in troubles)
            assert max(Counter(it.began).values()) <= most
            if not troubles:
                assert it.began == it.ended or sorted(it.began) == sorted(it.ended)

    run(main(), within=1_000_000)


async def _send_at(it: World, offset: float, name: str, seconds: float) -> None:
    await asyncio.sleep(offset)
    await it.send(name, seconds)


async def _inject_fault(it: World, troubles: list[Trouble]) -> None:
    now = 0.0
    for number, (at, kind, seconds) in enumerate(troubles):
        await asyncio.sleep(max(at - now, 0))
        now = max(now, at)
        if kind in ("kill", "stop"):
            victim = it.nodes[-2]
            if kind == "kill":
                victim.kill()
            else:
                victim.worker.requeue_now()
            await it.start(f"c{number}").worker.is_ready.wait()
            continue
        setattr(it, f"is_{kind}_down", True)
        await asyncio.sleep(seconds)
        now += seconds
        setattr(it, f"is_{kind}_down", False)
