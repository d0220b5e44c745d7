"""To which lane of a queue a job goes that is sent with a tenant: `WorkQueue(..., lanes=16)`.

    tenant -> two lanes, by the hash of its name -> the emptier of them
           -> the slow lane, while too much of what waits is this tenant's

Nothing is kept anywhere: from the broker a process knows how much waits in each lane, and it knows what it has sent
itself. Workers take turns over the lanes.

- `choice`: the rules, over one queue. Pure.
- `lanes`: the queues of an app, and the looks at the broker.
"""

from taskmq.client.lanes.choice import LaneChoice, lane_pair
from taskmq.client.lanes.lanes import Lanes

__all__ = ["LaneChoice", "Lanes", "lane_pair"]
