"""Choice of the lane of a queue for a job with a tenant: `WorkQueue(..., lanes=16)`.

    tenant -> two lanes, by the hash of its name -> the shorter one
           -> the slow lane, while too many of the waiting jobs are this tenant's

Nothing is shared between processes: each reads the lanes' lengths from the broker and knows what it sent itself.
Workers take turns over the lanes.

- `choice`: the rules for one queue. Pure.
- `lanes`: the queues of an app, and the polls of the broker.
- `lanes`: the queues of an app, and the looks at the broker.
"""

from taskmq.client.lanes.choice import LaneChoice, lane_pair
from taskmq.client.lanes.lanes import Lanes

__all__ = ["LaneChoice", "Lanes", "lane_pair"]
