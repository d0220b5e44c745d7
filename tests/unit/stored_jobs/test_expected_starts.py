"""Expected starts of waiting jobs."""

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.jobs import WaitingLane
from taskmq.model.jobs.pools import FAIR, QueuePolicy, TenantPool
from taskmq.model.topology import POLICIES
from taskmq.stored_jobs.explanations.expected_starts import MINUTES, EndedRuns, ExpectedStart, expect_start, raise_job

FIFO = QueuePolicy(policy="fifo")


def _steady(runs: int = 60, *, seconds: float = 1.0, tenant: str = "") -> list[dict[str, EndedRuns]]:
    """Return minutes in each of which so many runs ended."""
    return [{tenant: EndedRuns(runs, runs * seconds)} for _ in range(MINUTES)]


def _expect(
    policy: QueuePolicy, lanes: Sequence[WaitingLane], *, own: int = 0, pools: Sequence[TenantPool] = ()
) -> ExpectedStart:
    found = expect_start(policy, {pool.name: pool for pool in pools}, lanes, lanes[own], _steady())
    assert found is not None
    assert 0 <= found.earliest <= found.likely <= found.latest
    return found


def test_a_job_of_a_queue_in_order_waits_for_the_earlier_ones() -> None:
    found = _expect(FIFO, [WaitingLane(4, "", 200, 100), WaitingLane(4, "other", 500, 20)])

    assert found.before == 120
    assert found.likely == pytest.approx(120.0)
    assert found.earliest > 90
    assert found.latest < 160


def test_jobs_at_the_broker_precede_those_in_the_store() -> None:
    lanes = [WaitingLane(4, "", 1, 0)]

    found = expect_start(FIFO, {}, lanes, lanes[0], _steady(), at_broker=30)

    assert found is not None
    assert found.before == 0
    assert found.likely == pytest.approx(30.0)


def test_a_higher_priority_goes_first_if_the_queue_is_strict() -> None:
    lanes = [WaitingLane(4, "", 10, 5), WaitingLane(9, "", 40, 0), WaitingLane(1, "", 70, 70)]
    policy = QueuePolicy(policy="priority", strict=True)

    assert _expect(policy, lanes).before == 45
    assert _expect(policy, lanes, own=1).before == 0


def test_new_jobs_of_a_higher_priority_delay_one_until_it_has_risen() -> None:
    lanes = [WaitingLane(4, "", 10, 5), WaitingLane(6, "", 40, 15)]

    rising = _expect(QueuePolicy(policy="priority", ageing=30.0), lanes)
    quick = _expect(QueuePolicy(policy="priority", ageing=0.001), lanes)

    assert rising.before == quick.before == 20
    assert quick.likely == pytest.approx(20.0, abs=0.01)
    assert rising.likely == pytest.approx(20.0 + 60 * 0.95)


def test_tenants_share_the_turns_of_a_fair_queue() -> None:
    lanes = [WaitingLane(4, "a", 50, 20), WaitingLane(4, "b", 1000, 0), WaitingLane(4, "c", 5, 0)]

    # Both others have as many turns, until the third has no jobs left.
    assert _expect(FAIR, lanes).before == pytest.approx(2 * 19 + 5, abs=1)


def test_weights_divide_the_turns() -> None:
    lanes = [WaitingLane(4, "a", 50, 21), WaitingLane(4, "b", 1000, 0)]
    pools = [TenantPool(name="b", weight=4.0)]

    assert _expect(QueuePolicy(policy="weighted"), lanes, pools=pools).before == pytest.approx(100, abs=1)
    assert _expect(FAIR, lanes, pools=pools).before == pytest.approx(40, abs=1)


def test_turns_are_as_long_for_each_tenant_unless_jobs_take_turns() -> None:
    lanes = [WaitingLane(4, "short", 100, 41), WaitingLane(4, "long", 100, 0)]
    minutes = [{"short": EndedRuns(30, 30.0), "long": EndedRuns(3, 30.0)} for _ in range(MINUTES)]

    by_time = expect_start(FAIR, {}, lanes, lanes[0], minutes)
    by_count = expect_start(QueuePolicy(policy="round_robin"), {}, lanes, lanes[0], minutes)

    assert by_time is not None
    assert by_count is not None
    assert by_time.before == pytest.approx(44, abs=1)
    assert by_count.before == pytest.approx(80, abs=1)


def test_a_low_class_waits_for_the_higher_ones_of_a_strict_queue() -> None:
    lanes = [WaitingLane(1, "", 5, 1), WaitingLane(8, "", 10, 0)]
    minutes = _steady(1)

    strict = expect_start(QueuePolicy(strict=True), {}, lanes, lanes[0], minutes)
    starved = expect_start(QueuePolicy(strict=True), {}, lanes, lanes[0], _steady(59))

    # Workers do nothing but what comes in, so the higher class may never be empty.
    assert strict is None
    assert starved is None
    assert _expect(FAIR, lanes).before < 10


def test_a_strict_queue_with_idle_senders_serves_its_low_class_in_time() -> None:
    lanes = [WaitingLane(1, "a", 5, 3), WaitingLane(8, "b", 10, 0)]
    minutes = _steady(60, tenant="c")

    found = expect_start(QueuePolicy(strict=True, policy="round_robin"), {}, lanes, lanes[1], minutes)

    assert found is not None
    assert found.before < 1


def test_tenants_that_have_no_jobs_now_may_send_more() -> None:
    lanes = [WaitingLane(4, "a", 50, 20)]
    both = [{"a": EndedRuns(30, 30.0), "b": EndedRuns(30, 30.0)} for _ in range(MINUTES)]

    alone = expect_start(FAIR, {}, lanes, lanes[0], _steady(tenant="a"))
    among = expect_start(FAIR, {}, lanes, lanes[0], both)

    assert alone is not None
    assert among is not None
    assert among.before == alone.before
    assert among.likely == pytest.approx(2 * alone.likely, rel=0.05)


def test_no_estimate_is_better_than_a_wrong_one() -> None:
    lanes = [WaitingLane(4, "", 200, 100)]
    many = [WaitingLane(4, str(number), 1, 0) for number in range(201)]
    stopped = [{}, {}, *_steady()[2:]]
    long = [{"": EndedRuns(1, 4_000.0)}, *({} for _ in range(MINUTES - 1))]
    idle: list[dict[str, EndedRuns]] = [{} for _ in range(MINUTES)]

    assert expect_start(QueuePolicy(policy="deadline"), {}, lanes, lanes[0], _steady()) is None
    assert expect_start(FAIR, {}, many, many[0], _steady()) is None
    assert expect_start(FAIR, {}, lanes, lanes[0], stopped) is None
    assert expect_start(FAIR, {}, lanes, lanes[0], long) is None
    assert expect_start(FAIR, {}, lanes, lanes[0], idle) is None


_LANES = st.lists(
    st.builds(
        lambda priority, tenant, earlier, later: WaitingLane(priority, tenant, earlier + later, earlier),
        st.integers(0, 9),
        st.sampled_from(["", "a", "b", "c"]),
        st.integers(0, 500),
        st.integers(1, 500),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda lane: lane[:2],
)


@given(
    lanes=_LANES,
    policy=st.builds(QueuePolicy, policy=st.sampled_from(POLICIES), strict=st.booleans()),
    minutes=st.lists(
        st.dictionaries(
            st.sampled_from(["", "a", "b", "x"]),
            st.builds(EndedRuns, st.integers(1, 300), st.just(0.0) | st.floats(0.001, 900.0)),
            max_size=4,
        ),
        min_size=MINUTES,
        max_size=MINUTES,
    ),
)
def test_a_range_is_in_order_and_finite(
    lanes: list[WaitingLane], policy: QueuePolicy, minutes: list[dict[str, EndedRuns]]
) -> None:
    found = expect_start(policy, {}, lanes, lanes[0], minutes)

    if found is not None:
        assert 0 <= found.before <= sum(lane.jobs for lane in lanes) + 1
        assert 0 <= found.earliest <= found.likely <= found.latest < inf


def test_more_slots_divide_the_wait() -> None:
    lanes = [WaitingLane(4, "", 200, 100)]

    found = expect_start(FIFO, {}, lanes, lanes[0], _steady(), more_slots=3)

    assert found is not None
    assert found.likely == pytest.approx(25.0)


def test_a_job_of_a_higher_priority_waits_only_for_earlier_ones_of_it() -> None:
    lanes = [WaitingLane(4, "", 200, 100), WaitingLane(9, "", 10, 6), WaitingLane(7, "", 50, 20)]

    raised, own = raise_job(lanes, lanes[0], 9)

    assert _expect(QueuePolicy(policy="priority", strict=True), raised, own=raised.index(own)).before == 6


@given(lanes=_LANES, priority=st.integers(0, 9))
def test_a_raised_job_leaves_every_other_job_in_its_place(lanes: list[WaitingLane], priority: int) -> None:
    raised, own = raise_job(lanes, lanes[0], priority)

    assert own in raised
    assert own[:2] == (priority, lanes[0].tenant)
    assert sum(each.jobs for each in raised) == sum(each.jobs for each in lanes)
    assert own.earlier < own.jobs
    assert {each for each in raised if each[:2] not in {lanes[0][:2], own[:2]}} <= set(lanes)
