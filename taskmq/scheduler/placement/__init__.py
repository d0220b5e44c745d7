"""Placement of waiting jobs on nodes. Pure: no clock, no I/O.

    candidates, in the order of their shares
      -> nodes that are open, have the labels and enough room
      -> for a while only nodes with preferred labels (delay scheduling), then any
      -> of these the node with the least left over (best fit)
    a job that fits nowhere yet: one node is held for the longest waiting one; smaller jobs go there only
      if they end before it can start, or fit beside it (backfill)
    a gang: all of its jobs, or none

    a job of a pool below its guarantee: which runs give way (`evictions`)

Equal calls give equal plans. A plan never uses more than is free, and the store checks that again.
"""

from taskmq.scheduler.placement.evictions import Claim, Eviction, Occupant, compute_missing, plan_evictions
from taskmq.scheduler.placement.plan import Candidate, Plan, plan_placements
from taskmq.scheduler.placement.room import Hold, NodeRun, Room

__all__ = [
    "Candidate", "Claim", "Eviction", "Hold", "NodeRun", "Occupant", "Plan", "Room", "compute_missing",
    "plan_evictions", "plan_placements",
]  # fmt: skip
