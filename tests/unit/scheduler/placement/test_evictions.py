"""Selection of runs for preemption."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.nodes import HostNode, JobNeeds, NodeTold
from taskmq.scheduler.placement import Claim, Eviction, Occupant, compute_missing, plan_evictions

_LEAST = {"pool acme": {"slots": 2.0}, "class high": {"slots": 2.0}}


def _slots(count: float, used: float) -> HostNode:
    told = NodeTold(name="", capacity={"slots": count}, runs_jobs=True)
    return HostNode(id="", told=told, used={"slots": used})


def _run(job: str, began: int = 0, *groups: str, **fields: object) -> Occupant:
    fields = {"node": "", "amounts": {"slots": 1.0}, "priority": 4, "gives_way": True, **fields}
    return Occupant(job=job, groups=groups, began=began, **fields)  # type: ignore[arg-type]


def _claim(job: str, *groups: str, **resources: float) -> Claim:
    return Claim(job, groups or ("pool acme",), JobNeeds(resources=resources))


def _evicted_jobs(claims: list[Claim], runs: list[Occupant], *nodes: HostNode) -> list[str]:
    return [each.job for each in plan_evictions(claims, runs, nodes, _LEAST)]


def test_the_lowest_and_newest_runs_are_preempted_in_the_needed_number() -> None:
    runs = [_run("old", 1), _run("new", 9), _run("low", 0, priority=2), _run("newer", 12)]

    claims = [_claim("1"), _claim("2"), _claim("3")]

    assert plan_evictions(claims, runs, [_slots(4, 4)], _LEAST) == [
        Eviction("low", "1", "pool acme"),
        Eviction("newer", "2", "pool acme"),
    ]
    assert compute_missing(runs, _LEAST) == {"pool acme": 2, "class high": 2}
    assert compute_missing([*runs, _run("a", 1, "pool acme")], _LEAST) == {"pool acme": 1, "class high": 2}


def test_no_run_is_preempted_if_there_is_room_or_will_be() -> None:
    assert _evicted_jobs([_claim("1")], [_run("a"), _run("b")], _slots(3, 2)) == []
    assert _evicted_jobs([_claim("1")], [_run("a"), _run("b", is_leaving=True)], _slots(2, 2)) == []
    # Room for one job is room for only one.
    assert _evicted_jobs([_claim("1"), _claim("2")], [_run("a"), _run("b")], _slots(3, 2)) == ["a"]


def test_no_run_is_preempted_without_permission_or_below_its_guarantee() -> None:
    assert _evicted_jobs([_claim("1")], [_run("a", gives_way=False)], _slots(1, 1)) == []
    high = [_run("a", 1, "class high"), _run("b", 2, "class high")]
    assert _evicted_jobs([_claim("1")], high, _slots(2, 2)) == []
    assert _evicted_jobs([_claim("1"), _claim("2")], [*high, _run("c", 3, "class high")], _slots(3, 3)) == ["c"]
    # Runs of its own kind are never preempted.
    assert _evicted_jobs([_claim("1")], [_run("a", 1, "pool acme")], _slots(1, 1)) == []
    # The group common to both has the same afterwards.
    assert _evicted_jobs([_claim("1", "pool acme", "class high")], high, _slots(2, 2)) == ["b"]


def test_a_job_in_free_room_counts_for_all_of_its_groups() -> None:
    least = {"pool acme": {"slots": 3.0}, "pool b": {"slots": 1.0}}
    claims = [_claim("1"), _claim("2", "pool acme", "pool b"), _claim("3")]
    run = _run("b", 0, "pool b")

    assert plan_evictions(claims, [run], [_slots(3, 1)], least) == [Eviction("b", "3", "pool acme")]
    assert plan_evictions([claims[0], claims[2]], [run], [_slots(2, 1)], least) == []


def test_no_run_is_preempted_for_a_job_that_would_still_not_fit() -> None:
    runs = [_run("a"), _run("b", gives_way=False)]

    assert _evicted_jobs([_claim("1", slots=2.0)], runs, _slots(2, 2)) == []
    assert _evicted_jobs([_claim("1", slots=9.0)], runs, _slots(2, 2)) == []
    closed = HostNode(id="x", told=NodeTold(name="x", capacity={"slots": 1.0}, runs_jobs=True), is_draining=True)
    assert _evicted_jobs([_claim("1")], [_run("a", node="x"), _run("b", node="x", is_leaving=True)], closed) == []
    has_its_due = [_run("a", 1, "pool acme"), _run("b", 2, "pool acme"), _run("c", 3)]
    assert _evicted_jobs([_claim("1")], has_its_due, _slots(3, 3)) == []


def _node(name: str, cpu: float, used: float) -> HostNode:
    told = NodeTold(name=name, capacity={"slots": 8.0, "cpu": cpu}, runs_jobs=True)
    return HostNode(id=name, told=told, used={"slots": 3.0, "cpu": used})


def test_a_large_job_gets_the_node_with_the_fewest_preemptions() -> None:
    runs = [
        *(_run(f"a{number}", number, node="a", amounts={"slots": 1.0, "cpu": 1.0}) for number in range(4)),
        _run("b0", 5, node="b", amounts={"slots": 1.0, "cpu": 1.0}),
        _run("b1", 4, node="b", amounts={"slots": 1.0, "cpu": 3.0}),
    ]

    # The first two candidates would not be enough; one other run is.
    assert _evicted_jobs([_claim("1", cpu=3.0)], runs, _node("a", 4.0, 4.0), _node("b", 4.0, 4.0)) == ["b1"]
    assert _evicted_jobs([_claim("1", cpu=3.0)], runs, _node("a", 4.0, 4.0)) == ["a3", "a2", "a1"]
    assert _evicted_jobs([_claim("1", cpu=5.0)], runs, _node("a", 4.0, 4.0)) == []


def test_runs_that_use_a_resource_are_preempted_for_a_minimum_of_it() -> None:
    least = {"pool lab": {"gpu": 2.0}, "pool b": {"gpu": 1.0}}
    told = NodeTold(name="a", capacity={"slots": 9.0, "gpu": 3.0}, runs_jobs=True)
    node = HostNode(id="a", told=told, used={"slots": 4.0, "gpu": 3.0})
    gpu = {"slots": 1.0, "gpu": 1.0}
    runs = [
        _run("plain", 9, node="a"),
        *(_run(f"g{number}", number, node="a", amounts=gpu) for number in range(2)),
        _run("b", 5, "pool b", node="a", amounts=gpu),
    ]
    claims = [_claim(str(number), "pool lab", gpu=1.0) for number in range(3)]

    # The last one is more than its minimum, and b keeps its own.
    plan = plan_evictions(claims, runs, [node], least)
    assert [(each.job, each.claim) for each in plan] == [("g1", "0"), ("g0", "1")]
    assert compute_missing(runs, least) == {"pool lab": 2}


def test_a_job_without_the_owed_resource_preempts_no_run() -> None:
    node = HostNode(id="a", told=NodeTold(name="a", capacity={"slots": 1.0, "gpu": 3.0}, runs_jobs=True))
    node = HostNode(id="a", told=node.told, used={"slots": 1.0})

    assert plan_evictions([_claim("1", "pool lab")], [_run("a", node="a")], [node], {"pool lab": {"gpu": 2.0}}) == []


_GROUPS = st.lists(st.sampled_from(["pool acme", "pool b", "class high"]), unique=True, max_size=2).map(tuple)
_RUNS = st.lists(st.tuples(_GROUPS, st.integers(0, 9), st.integers(0, 5), st.booleans(), st.booleans()), max_size=12)


@given(_RUNS, st.lists(_GROUPS, max_size=8), st.integers(0, 3), st.fixed_dictionaries(
    {"pool acme": st.integers(1, 4), "pool b": st.integers(1, 4), "class high": st.integers(1, 4)}
))  # fmt: skip
def test_every_plan_keeps_the_guarantees(
    described: list[tuple[tuple[str, ...], int, int, bool, bool]],
    wanted: list[tuple[str, ...]],
    spare: int,
    counts: dict[str, int],
) -> None:
    least = {name: {"slots": float(count)} for name, count in counts.items()}
    runs = [
        _run(str(number), began, *groups, priority=priority, gives_way=allows, is_leaving=leaves)
        for number, (groups, priority, began, allows, leaves) in enumerate(described)
    ]
    claims = [_claim(f"c{number}", *groups) for number, groups in enumerate(wanted) if groups]
    node = _slots(len(runs) + spare, len(runs))

    plan = plan_evictions(claims, runs, [node], least)

    by_job = {run.job: run for run in runs}
    left = [by_job[each.job] for each in plan]
    assert len({each.job for each in plan}) == len({each.claim for each in plan}) == len(plan)
    assert all(run.gives_way and not run.is_leaving for run in left)
    missing = compute_missing(runs, least)
    for group, count in Counter(each.group for each in plan).items():
        assert count <= missing[group]
    served = Counter(name for each in plan for claim in claims if claim.job == each.claim for name in claim.groups)
    # Others use the free room first, and count for their groups, too.
    evicting = {each.claim for each in plan}
    room = spare + sum(run.is_leaving for run in runs)
    roomy = Counter(name for claim in claims if claim.job not in evicting for name in claim.groups)
    served.update({name: min(count, room) for name, count in roomy.items()})
    before = Counter(name for run in runs if not run.is_leaving for name in run.groups)
    after = Counter(before)
    after.subtract(name for run in left for name in run.groups)
    for group, count in counts.items():
        assert after[group] + served[group] >= min(before[group], count)
    assert plan == plan_evictions(claims, list(reversed(runs)), [node], least)
