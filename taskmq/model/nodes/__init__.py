"""Host nodes: their capacity, their allocations, and which jobs fit. Pure.

    host_nodes   machines: their reports, their state, their capacity and its use
    allocations  parts of a node in use: by a stored job while it is in flight, or by a user outside of taskmq until
                 released
    needs        what a job requires of its node, and why no node fits

Amounts are those of `taskmq.model.resources`, and one more resource, `slots`: each placed job uses one.
"""

from taskmq.model.nodes.allocations import Allocation, AllocationFilter, NewAllocation, Placement, usage_of
from taskmq.model.nodes.host_nodes import (
    HEARTBEAT_SECONDS,
    LOST_AFTER_MS,
    HostNode,
    NodeState,
    NodeTold,
    check_labels,
    check_node_name,
    checked_node,
    lost_after,
)
from taskmq.model.nodes.needs import (
    SLOTS,
    JobNeeds,
    PlaceOptions,
    add_amounts,
    best_fit,
    capacity_of,
    could_ever_fit,
    fits,
    has_labels,
    job_needs,
    left_over,
    reservable,
    startable,
    together,
    why_unplaced,
)

__all__ = [
    "HEARTBEAT_SECONDS",
    "LOST_AFTER_MS",
    "SLOTS",
    "Allocation",
    "AllocationFilter",
    "HostNode",
    "JobNeeds",
    "NewAllocation",
    "NodeState",
    "NodeTold",
    "PlaceOptions",
    "Placement",
    "add_amounts",
    "best_fit",
    "capacity_of",
    "check_labels",
    "check_node_name",
    "checked_node",
    "could_ever_fit",
    "fits",
    "has_labels",
    "job_needs",
    "left_over",
    "lost_after",
    "reservable",
    "startable",
    "together",
    "usage_of",
    "why_unplaced",
]
