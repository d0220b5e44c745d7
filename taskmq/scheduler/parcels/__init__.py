"""Parcels: several invitations of stored jobs in one message.

    dispatched jobs -> plain jobs of short tasks, many at a time -> parcels, in `Q.parcels`
                       all others                                -> one message each, in `Q.jobs`

At full load a message costs the broker more than a job costs the database. Few jobs at a time travel alone, because
a parcel would only keep them from other workers.

short_tasks  tasks whose runs are known to be short
packer       the jobs that travel together
"""

from taskmq.scheduler.parcels.packer import Packer
from taskmq.scheduler.parcels.short_tasks import ShortTasks

__all__ = ["Packer", "ShortTasks"]
