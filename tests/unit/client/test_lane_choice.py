"""The lane of a job, as one process chooses it."""

from collections import Counter
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import WorkQueue
from taskmq.client.lanes import LaneChoice, lane_pair
from taskmq.model.topology import is_lane, slow_lane

QUEUE = WorkQueue("mail", lanes=16)
SLOW = slow_lane("mail")


def report_depths(choice: LaneChoice, depths: dict[str, int] | None = None, *, now: float) -> None:
    """Report queue lengths at once."""
    choice.learn(depths or {}, asked=now, now=now)


def place_jobs(choice: LaneChoice, tenant: str, count: int, *, now: float = 0.0) -> Counter[str]:
    return Counter(choice.choose_lane(tenant, now=now) for _ in range(count))


def lanes_of_tenant(tenant: str) -> set[str]:
    return {f"mail.lane{number:02d}" for number in lane_pair(tenant, 16)}


def test_a_job_without_a_tenant_goes_to_the_queue_itself() -> None:
    assert LaneChoice(QUEUE).choose_lane(None, now=0) == "mail"


def test_the_lanes_of_a_tenant_never_change_between_versions() -> None:
    assert lane_pair("acme", 16) == (13, 5)
    assert lane_pair("", 2) in {(0, 1), (1, 0)}


@given(st.text(), st.integers(2, 64))
def test_a_tenant_has_two_lanes(tenant: str, count: int) -> None:
    first, second = lane_pair(tenant, count)

    assert first != second
    assert {first, second} <= set(range(count))


def test_a_job_goes_to_the_shorter_of_its_two_lanes() -> None:
    choice = LaneChoice(QUEUE)
    first, second = sorted(lanes_of_tenant("acme"))
    report_depths(choice, {first: 5, second: 2}, now=0)

    assert place_jobs(choice, "acme", 3) == {second: 3}
    assert place_jobs(choice, "acme", 4) == {first: 2, second: 2}


def test_a_tenant_that_sends_little_is_not_noisy_even_in_a_short_backlog() -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, now=0)

    assert SLOW not in place_jobs(choice, "acme", 29)
    assert not is_noisy(choice, "acme")


def test_a_tenant_with_a_tenth_of_the_backlog_goes_to_the_slow_lane() -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, now=0)

    assert place_jobs(choice, "acme", 100)[SLOW] == 71
    assert is_noisy(choice, "acme")


def test_a_tenant_with_less_than_a_tenth_of_the_backlog_is_not_noisy() -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, dict.fromkeys(choice.watched, 100), now=0)

    assert SLOW not in place_jobs(choice, "acme", 150)


def test_the_backlog_of_other_tenants_in_its_lanes_makes_no_tenant_noisy() -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, dict.fromkeys(lanes_of_tenant("acme"), 50_000), now=0)

    assert SLOW not in place_jobs(choice, "acme", 1_000)


def test_jobs_that_have_already_run_make_no_tenant_noisy() -> None:
    choice = LaneChoice(QUEUE)
    for second in range(20):
        report_depths(choice, now=second)
        assert SLOW not in place_jobs(choice, "acme", 20, now=second)


def test_older_sends_count_less_and_less() -> None:
    choice = LaneChoice(QUEUE)
    busy = dict.fromkeys(lanes_of_tenant("acme"), 40)
    for second in range(0, 400, 10):
        report_depths(choice, busy, now=second)
        assert SLOW not in place_jobs(choice, "acme", 14, now=second)


def test_an_outdated_sample_makes_no_tenant_noisy() -> None:
    choice = LaneChoice(QUEUE)
    assert SLOW not in place_jobs(choice, "never looked", 100)
    report_depths(choice, now=0)

    assert SLOW not in place_jobs(choice, "acme", 100, now=5.1)


def is_noisy(choice: LaneChoice, tenant: str) -> bool:
    """Whether the tenant's next job would go to the slow lane; nothing is sent."""
    return deepcopy(choice).choose_lane(tenant, now=0, is_delayed=True) == SLOW


@pytest.mark.parametrize("last_look", [None, -5.1])
def test_a_flood_that_begins_before_a_sample_goes_to_the_slow_lane(last_look: float | None) -> None:
    choice = LaneChoice(QUEUE)
    if last_look is not None:
        report_depths(choice, now=last_look)

    assert place_jobs(choice, "acme", 2_000)[SLOW] == 1_501
    assert is_noisy(choice, "acme")


def test_without_a_sample_the_sends_within_a_second_count_as_a_burst() -> None:
    choice = LaneChoice(QUEUE)

    for second in range(10):
        assert SLOW not in place_jobs(choice, "acme", 499, now=second)


def test_a_noisy_tenant_returns_once_the_slow_lane_was_empty() -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, now=0)
    place_jobs(choice, "acme", 100)
    report_depths(choice, {SLOW: 50}, now=1)
    assert is_noisy(choice, "acme")

    choice.learn({}, asked=2, now=2.1)

    assert not is_noisy(choice, "acme")
    assert set(place_jobs(choice, "acme", 4, now=3)) == lanes_of_tenant("acme")


def test_a_sample_older_than_the_verdict_clears_no_tenant() -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, now=0)
    place_jobs(choice, "acme", 100, now=2)

    choice.learn({}, asked=1.9, now=2.1)

    assert is_noisy(choice, "acme")


@pytest.mark.parametrize("is_told", [True, False])
def test_a_noisy_tenant_returns_after_five_quiet_minutes(*, is_told: bool) -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, now=0)
    place_jobs(choice, "acme", 100)
    place_jobs(choice, "acme", 1, now=299)
    if is_told:
        report_depths(choice, {SLOW: 50}, now=598)
    assert is_noisy(choice, "acme")

    if is_told:
        report_depths(choice, {SLOW: 50}, now=600)

    assert set(place_jobs(choice, "acme", 2, now=600)) <= lanes_of_tenant("acme")
    assert not is_noisy(choice, "acme")


def test_delayed_jobs_make_no_tenant_noisy_and_use_the_same_lanes() -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, now=0)

    delayed = Counter(choice.choose_lane("acme", now=0, is_delayed=True) for _ in range(100))
    assert SLOW not in delayed
    assert delayed.keys() <= lanes_of_tenant("acme")
    place_jobs(choice, "acme", 30)
    assert choice.choose_lane("acme", now=0, is_delayed=True) == SLOW


def test_one_sample_a_second_is_requested() -> None:
    choice = LaneChoice(QUEUE)

    assert choice.wants_poll(now=0)
    assert not choice.wants_poll(now=0.9)
    assert choice.wants_poll(now=1)


def test_the_memory_of_tenants_is_bounded() -> None:
    choice = LaneChoice(QUEUE)
    report_depths(choice, now=0)
    place_jobs(choice, "noisy", 30)
    assert is_noisy(choice, "noisy")

    for number in range(10_000):
        choice.choose_lane(f"tenant {number}", now=0)

    assert not is_noisy(choice, "noisy")
    assert SLOW in place_jobs(choice, "noisy", 10_000)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 60)),
            st.tuples(st.just("look"), st.integers(0, 200), st.integers(0, 200)),
        )
    )
)
def test_a_job_is_in_one_of_its_lanes_or_in_the_slow_lane(steps: list[tuple[str, str | int, int]]) -> None:
    choice, again = LaneChoice(QUEUE), LaneChoice(QUEUE)
    now = 0.0
    for what, one, other in steps:
        now += 0.7
        if what == "send":
            tenant = str(one)
            places = place_jobs(choice, tenant, other, now=now)
            assert set(places) <= lanes_of_tenant(tenant) | {SLOW}
            assert places == place_jobs(again, tenant, other, now=now), "not the same for the same calls"
        else:
            depths = {name: int(one) if is_lane(name) else other for name in choice.watched}
            for each in (choice, again):
                report_depths(each, depths, now=now)
