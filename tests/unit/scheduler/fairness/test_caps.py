"""Caps of pools with placement on nodes. Pure."""

from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.jobs.pools import EVERY_TENANT, TenantPool
from taskmq.model.nodes import HostNode, JobNeeds, NodeTold
from taskmq.scheduler.fairness import Caps
from taskmq.scheduler.placement import Candidate, plan_placements
from tests.unit.scheduler.fairness.cluster import pools_of

_NODE = HostNode(id="1", told=NodeTold(name="a", capacity={"slots": 99.0, "cpu": 99.0, "gpu": 99.0}, runs_jobs=True))


def _candidate(job: str, tenant: str, *, queue: str = "train", gang: int = 0, **resources: float) -> Candidate:
    needs = JobNeeds(resources=resources, gang="g" if gang else "", gang_size=gang)
    return Candidate(job=job, tenant=tenant, task="t", needs=needs, queue=queue)


def test_a_cap_holds_for_a_pool_in_total_and_for_each_queue() -> None:
    caps = Caps(pools_of(TenantPool(name="lab", max={"gpu": 2.0}), TenantPool(name="team", parent="lab")))
    caps.take("train", "lab", {"slots": 1.0, "gpu": 1.5})

    assert caps.has_room("train", "team", {"gpu": 0.5})
    assert not caps.has_room("train", "team", {"gpu": 1.0})
    assert caps.has_room("train", "team", {"slots": 1.0})
    assert caps.has_room("other", "team", {"gpu": 2.0})
    caps.give("train", "lab", {"slots": 1.0, "gpu": 1.5})
    assert caps.has_room("train", "team", {"gpu": 2.0})


def test_a_pool_with_a_cap_of_zero_gets_none_of_a_resource() -> None:
    caps = Caps(pools_of(TenantPool(name=EVERY_TENANT, max={"gpu": 0.0})))

    assert not caps.has_room("train", "who", {"slots": 1.0, "gpu": 1.0})
    assert caps.has_room("train", "who", {"slots": 1.0})


def test_jobs_above_a_cap_wait_and_those_behind_them_start() -> None:
    caps = Caps(pools_of(TenantPool(name="lab", max={"gpu": 2.0})))
    waiting = [
        _candidate("1", "lab", gpu=2.0),
        _candidate("2", "lab", gpu=1.0),
        _candidate("3", "lab", cpu=1.0),
        _candidate("4", "else", gpu=3.0),
    ]

    plan = plan_placements(waiting, [_NODE], now=0.0, caps=caps)

    assert [each.job for each in plan.placements] == ["1", "3", "4"]


def test_a_gang_is_within_the_cap_as_a_whole_or_waits_as_a_whole() -> None:
    caps = Caps(pools_of(TenantPool(name="lab", max={"gpu": 3.0})))
    gang = [_candidate(str(number), "lab", gang=2, gpu=2.0) for number in range(2)]

    plan = plan_placements([*gang, _candidate("one", "lab", gpu=2.0)], [_NODE], now=0.0, caps=caps)

    assert [each.job for each in plan.placements] == ["one"]


def test_no_node_is_reserved_for_a_job_above_its_cap() -> None:
    small = HostNode(id="1", told=NodeTold(name="a", capacity={"slots": 9.0, "gpu": 2.0}, runs_jobs=True))
    small = HostNode(id="1", told=small.told, used={"slots": 1.0, "gpu": 1.0})
    caps = Caps(pools_of(TenantPool(name="lab", max={"gpu": 1.0})))

    plan = plan_placements(
        [_candidate("large", "lab", gpu=2.0), _candidate("small", "else", gpu=1.0)], [small], now=0.0, caps=caps
    )

    assert plan.held == ""
    assert [each.job for each in plan.placements] == ["small"]


_AMOUNTS = st.fixed_dictionaries({"slots": st.just(1.0), "gpu": st.sampled_from([0.0, 0.5, 1.0, 2.0])})


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "lab", "other"]), _AMOUNTS, st.booleans()), max_size=60))
def test_no_pool_ever_exceeds_its_cap(
    steps: list[tuple[str, dict[str, float], bool]],
) -> None:
    pools = pools_of(
        TenantPool(name="lab", max={"gpu": 3.0}),
        TenantPool(name="a", parent="lab", max={"gpu": 2.0}),
        TenantPool(name="b", parent="lab"),
        TenantPool(name=EVERY_TENANT, max={"gpu": 1.0, "slots": 4.0}),
    )
    caps = Caps(pools)
    placed: list[tuple[str, dict[str, float]]] = []
    for tenant, amounts, leaves in steps:
        if leaves and placed:
            caps.give("train", *placed.pop(0))
        elif caps.has_room("train", tenant, amounts):
            caps.take("train", tenant, amounts)
            placed.append((tenant, amounts))
        used = {who: sum(each["gpu"] for owner, each in placed if owner == who) for who in ("a", "b", "lab", "other")}
        assert used["a"] <= 2.0
        assert used["a"] + used["b"] + used["lab"] <= 3.0
        assert used["other"] <= 1.0
        assert sum(who == "other" for who, _ in placed) <= 4
