"""Fair division of partitions among schedulers, and of turns among the jobs of a queue. Pure: no clock, no I/O.

- `division`: the partitions that a scheduler acquires and releases.
- `window`: the number of jobs of a queue that may be in flight.
- `shares`: turns over the queues of a partition; `queue_turns`: turns within one queue, by its policy.
- `caps`: the amounts that a pool may still use, where jobs are placed on nodes.
- `guarantees`: the minimums of pools and classes, for which runs of others may be stopped.
- `branches`: the tree of classes, pools and tenants that take turns; `accounts`: the usage of each pool, with its
  minimum and cap; `costs`: expected and actual run times; `order`: the heap below all of it.

A caller passes the present situation and time, and gets values back. Equal calls give equal turns, so the simulator
(`python -m benchmarks.fairness`) decides like a scheduler. A decision costs O(log n) of the tenants.

In every policy, no pool exceeds its cap, and a pool with jobs below its minimum is served before all pools that have
their minimum. Lost state is rebuilt from the waiting jobs and the jobs in flight.
"""

from taskmq.scheduler.fairness.caps import Caps
from taskmq.scheduler.fairness.division import Division, divide
from taskmq.scheduler.fairness.guarantees import Guarantees
from taskmq.scheduler.fairness.queue_turns import Head
from taskmq.scheduler.fairness.shares import Shares
from taskmq.scheduler.fairness.window import FLOOR, RoundTrips, Window

__all__ = ["FLOOR", "Caps", "Division", "Guarantees", "Head", "RoundTrips", "Shares", "Window", "divide"]
