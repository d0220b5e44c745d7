"""The scheduler: dispatches the stored jobs to the broker, and records what workers report about them.

Any number of schedulers run at once. Queues and timers are divided into partitions. Each partition has one holder,
under a lease:

    partitions        acquires, releases and loses the leases
    held_partition    the work for one partition: the take-over, then all of these concurrently
      dispatch   ready -> dispatched: as many as fit the queue's window, in the order of `fairness`
      invitations -> the broker, with confirms; a refused job returns to the store, fails, or is published again
      partition  the state that the others share: jobs in flight, turns and limits
      batches    confirmed and ended batches -> the store
      reports    the workers' reports -> applied, 500 at a time -> results
      timers     scheduled, retrying -> ready, when they are due
      preemption stops runs, so that pools get what they are guaranteed
      lost_jobs  repeats cancel requests; recovers jobs that no worker has
    signals      hints over the broker: ready jobs, free partitions, live workers
    duties       hourly maintenance, done by one scheduler for all
    history      reports of runs -> figures by the minute, failures of plain jobs
    alerts       rules -> notices to people

Guarantees:

- Only the holder of a queue's partition dispatches its jobs: each statement compares the lease's epoch, so a replaced
  holder dispatches nothing.
- A dispatched job reaches the broker: its batch stays in the store until the broker has confirmed it, and the next
  holder republishes unconfirmed ones.
- A report counts once, by its token, whichever scheduler applies it. It is acknowledged after it was applied.
- Without the store nothing is dispatched and no report is consumed. Without the broker no job leaves the store. The
  scheduler waits for both.
"""

from taskmq.scheduler.alerts import AlertSettings
from taskmq.scheduler.scheduler import Scheduler

__all__ = ["AlertSettings", "Scheduler"]
