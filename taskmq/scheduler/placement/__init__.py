"""Which node each waiting job runs on. Pure: no clock, no I/O.

    candidates, in the order of their shares
      -> nodes that are open, have the labels and enough room
      -> for a while only those with preferred labels (delay scheduling), then any
      -> of these the one of which the least is left over (best fit)
    a job that fits nowhere yet: one node is held for it, the longest waiting first, and smaller jobs go there only
      if they end before it can begin, or fit beside it (backfill)
    a gang: all of it, or none

    a job that is owed a place: which runs give way (`evictions`)

The same calls give the same plan. What it plans is never more than is free, and the store checks that once more.
"""

from taskmq.scheduler.placement.evictions import Claim, Eviction, Occupant, owed, plan_evictions
from taskmq.scheduler.placement.plan import Candidate, Plan, plan_placements
from taskmq.scheduler.placement.room import Hold, NodeRun, Room

__all__ = [
    "Candidate", "Claim", "Eviction", "Hold", "NodeRun", "Occupant", "Plan", "Room", "owed", "plan_evictions",
    "plan_placements",
]  # fmt: skip
