"""Jobs on nodes in virtual time, decided by the scheduler's own code.

A cluster gets a flood of mixed jobs; nodes are killed meanwhile, and what ran there comes back. After every plan the
books are checked: nothing is ever placed beyond what a node has.
"""

import heapq
import random
import time
from dataclasses import dataclass

from msgspec.structs import replace

from taskmq.model.nodes import HostNode, JobNeeds, NodeTold, added, fits
from taskmq.scheduler.placement import Candidate, NodeRun, plan_placements

__all__ = ["NodeFigures", "simulate_nodes"]

_LOOKED_AT = 500
_SHAPES: tuple[tuple[int, dict[str, float]], ...] = (
    (60, {"cpu": 1.0, "memory": 1.0}),
    (25, {"cpu": 4.0, "memory": 8.0}),
    (10, {"cpu": 2.0, "memory": 4.0, "gpu": 1.0}),
    (5, {"cpu": 12.0, "memory": 24.0}),
)
_CAPACITY = {"slots": 64.0, "cpu": 16.0, "memory": 64.0, "gpu": 2.0}


@dataclass(frozen=True)
class NodeFigures:
    """What a simulation came to.

    Attributes:
        over: how often more was placed on a node than it has.
        utilisation: of the processors, while jobs wait.
        lost: jobs that were placed a second time because their node was killed.
        decisions: placements a second of the processor's time.
    """

    placed: int
    over: int
    utilisation: float
    lost: int
    decisions: float


def simulate_nodes(count: int, jobs: int, *, kills: int = 0, seed: int = 1) -> NodeFigures:
    """Run so many jobs on so many nodes, of which some are killed, one after the other."""
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
            used = added(node.used, each.amounts)
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
            # It comes back at once, empty, under another epoch.
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
        # What ends within a quarter of a second is seen together, as reports are.
        now = then + 0.25
        while ends and ends[0][0] <= now:
            end, job = heapq.heappop(ends)
            if job in runs and runs[job][0].ends == end:
                run, _ = runs.pop(job)
                node = nodes[run.node]
                nodes[run.node] = replace(node, used=added(node.used, run.amounts, sign=-1.0))
    return NodeFigures(
        placed=placed,
        over=over,
        utilisation=busy / whole if whole else 0.0,
        lost=lost,
        decisions=placed / spent if spent else 0.0,
    )
