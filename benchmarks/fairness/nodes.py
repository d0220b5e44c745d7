"""Simulation of jobs on nodes in virtual time, placed by the scheduler's own code.

A cluster gets a flood of mixed jobs. Nodes are killed meanwhile, and their jobs wait again. After every plan the
simulation checks that no node is overcommitted.
"""

import heapq
import random
import time
from collections import deque
from dataclasses import dataclass

from msgspec.structs import replace

from taskmq.model.nodes import HostNode, JobNeeds, NodeTold, add_amounts, fits
from taskmq.scheduler.placement import Candidate, NodeRun, plan_placements

_LOOKED_AT = 500
_SHAPES: tuple[tuple[int, dict[str, float]], ...] = (
    (60, {"cpu": 1.0, "memory": 1.0}),
    (25, {"cpu": 4.0, "memory": 8.0}),
    (10, {"cpu": 2.0, "memory": 4.0, "gpu": 1.0}),
    (5, {"cpu": 12.0, "memory": 24.0}),
)
_TURN = 0.25
_MEAN = 5.0
_CAPACITY = {"slots": 64.0, "cpu": 16.0, "memory": 64.0, "gpu": 2.0}


@dataclass(frozen=True)
class NodeFigures:
    """Figures of a simulation of nodes.

    Attributes:
        over: number of placements that overcommitted a node.
        utilisation: utilisation of the processors while jobs wait.
        lost: number of jobs placed again because their node was killed.
        decisions: placements per second of processor time.
    """

    placed: int
    over: int
    utilisation: float
    lost: int
    decisions: float


def simulate_nodes(count: int, jobs: int, *, kills: int = 0, seed: int = 1) -> NodeFigures:
    """Run `jobs` jobs on `count` nodes, killing `kills` nodes one after the other."""
    dice = random.Random(seed)
    weights, shapes = [weight for weight, _ in _SHAPES], [shape for _, shape in _SHAPES]
    waiting = {
        f"j{number}": Candidate(
            job=f"j{number}",
            tenant="t",
            task="t",
            needs=JobNeeds(resources=dice.choices(shapes, weights)[0]),
            seconds=dice.uniform(1.0, 20.0),
        )
        for number in range(jobs)
    }
    told = {
        f"n{number:05}": NodeTold(name=f"n{number:05}", capacity=_CAPACITY, runs_jobs=True) for number in range(count)
    }
    nodes = {name: HostNode(id=name, told=each) for name, each in told.items()}
    ends: list[tuple[float, str]] = []
    runs: dict[str, tuple[NodeRun, Candidate]] = {}
    now = spent = busy = whole = 0.0
    held, placed, over, lost = "", 0, 0, 0
    kill_at = jobs // (kills + 1) if kills else jobs + 1
    while waiting or runs:
        looked_at = [waiting[job] for job in list(waiting)[:_LOOKED_AT]]
        began = time.process_time()
        plan = plan_placements(looked_at, nodes.values(), [run for run, _ in runs.values()], now=now, held=held)
        spent += time.process_time() - began
        held = plan.held
        for each in plan.placements:
            node = nodes[each.node]
            used = add_amounts(node.used, each.amounts)
            over += not fits(used, node.told.capacity)
            nodes[each.node] = replace(node, used=used)
            one = waiting.pop(each.job)
            runs[each.job] = (NodeRun(each.node, each.amounts, now + one.seconds), one)
            heapq.heappush(ends, (now + one.seconds, each.job))
        placed += len(plan.placements)
        if kills and placed >= kill_at:
            kills, kill_at = kills - 1, kill_at + jobs // (kills + 1)
            victim = dice.choice(list(nodes))
            back = [job for job, (run, _) in runs.items() if run.node == victim]
            lost += len(back)
            # The node restarts at once, empty, with a new epoch.
            nodes[victim] = replace(nodes[victim], used={}, epoch=nodes[victim].epoch + 1)
            waiting = {job: runs.pop(job)[1] for job in back} | waiting
            continue
        if not runs:
            break
        then, _ = ends[0]
        if waiting:
            cpu = sum(node.used.get("cpu", 0.0) for node in nodes.values())
            busy += cpu * (then - now)
            whole += count * _CAPACITY["cpu"] * (then - now)
        # Process runs that end within a quarter of a second together, as reports arrive in batches.
        now = then + 0.25
        while ends and ends[0][0] <= now:
            end, job = heapq.heappop(ends)
            if job in runs and runs[job][0].ends == end:
                run, _ = runs.pop(job)
                node = nodes[run.node]
                nodes[run.node] = replace(node, used=add_amounts(node.used, run.amounts, sign=-1.0))
    return NodeFigures(
        placed=placed,
        over=over,
        utilisation=busy / whole if whole else 0.0,
        lost=lost,
        decisions=placed / spent if spent else 0.0,
    )


@dataclass(frozen=True)
class Locality:
    """Figures of jobs that prefer a region.

    Attributes:
        preferred: the fraction that ran in its preferred region.
        wait: mean time from submission to placement, in seconds.
    """

    preferred: float
    wait: float


def simulate_locality(
    *, patience: float | None, regions: int = 4, slots: int = 16, jobs: int = 20_000, load: float = 0.8, seed: int = 1
) -> Locality:
    """Run jobs of 5 s on average, arriving at random, on one node per region; each prefers a region.

    Args:
        patience: how long a job waits for its region; None: no preference.
        load: the fraction of all slots that the jobs need.
    """
    dice = random.Random(seed)
    names = [f"region-{number}" for number in range(regions)]
    capacity = {"slots": float(slots)}
    told = [NodeTold(name=name, capacity=capacity, labels={"region": name}, runs_jobs=True) for name in names]
    nodes = {each.name: HostNode(id=each.name, told=each) for each in told}
    coming = deque[tuple[float, str, float]]()
    at = 0.0
    for _ in range(jobs):
        at += dice.expovariate(load * regions * slots / _MEAN)
        coming.append((at, dice.choice(names), dice.expovariate(1 / _MEAN)))
    waiting: dict[str, tuple[float, str, float]] = {}
    runs: list[tuple[float, str]] = []
    waits: list[float] = []
    now, there = 0.0, 0
    while coming or waiting:
        now += _TURN
        while coming and coming[0][0] <= now:
            waiting[f"j{len(coming)}"] = coming.popleft()
        while runs and runs[0][0] <= now:
            node = nodes[heapq.heappop(runs)[1]]
            nodes[node.name] = replace(node, used=add_amounts(node.used, {"slots": 1.0}, sign=-1.0))
        candidates = [
            Candidate(job, "t", "t", _needs(region, patience), waited=now - since, seconds=seconds)
            for job, (since, region, seconds) in waiting.items()
        ]
        for each in plan_placements(candidates, nodes.values(), now=now).placements:
            node = nodes[each.node]
            nodes[each.node] = replace(node, used=add_amounts(node.used, each.amounts))
            since, region, seconds = waiting.pop(each.job)
            heapq.heappush(runs, (now + seconds, each.node))
            waits.append(now - since)
            there += each.node == region
    return Locality(there / jobs, sum(waits) / jobs)


def _needs(region: str, patience: float | None) -> JobNeeds:
    return JobNeeds() if patience is None else JobNeeds(prefers={"region": region}, patience=patience)
