"""Fair division: of partitions among schedulers, and of turns among jobs of a queue. Pure: no clock, no I/O.

- `division`: which partitions a scheduler takes, and which it gives back.
- `window`: how many jobs of a queue may be at the broker and with workers at a time.
- `shares`: whose turn it is, over the queues of a partition; `queue_turns`: in one queue, by its policy.
- `caps`: what a pool may still have of each resource, where jobs are placed on nodes.
- `guarantees`: what pools and classes are to have in any case, for which runs of others may be stopped.
- `branches`: the tree of classes, pools and tenants that take turns; `accounts`: what each pool has in flight beside
  its minimum and its cap; `costs`: what runs will probably take, and have taken; `order`: the heap below all of it.

A caller says what there is and what time it is, and gets values back. The same calls give the same turns: so the
simulator (`python -m benchmarks.fairness`) decides as a scheduler does. A decision costs O(log n) of the tenants.
What holds in every policy: no pool has more in flight than its cap, and one below its minimum that has jobs is served
before all that are not below theirs. State that was lost is made anew of what waits and what is in flight.
"""

from taskmq.scheduler.fairness.caps import Caps
from taskmq.scheduler.fairness.division import Division, divide
from taskmq.scheduler.fairness.guarantees import Guarantees
from taskmq.scheduler.fairness.queue_turns import Head
from taskmq.scheduler.fairness.shares import Shares
from taskmq.scheduler.fairness.window import FLOOR, Window

__all__ = ["FLOOR", "Caps", "Division", "Guarantees", "Head", "Shares", "Window", "divide"]
