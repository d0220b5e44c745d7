"""The scheduler: hands the jobs of the store to the broker, and writes down what workers report of them.

Any number run, active-active. Queues and timers are divided into partitions, and each partition has one holder, under
a lease:

    partitions        who holds which; taken, given back, lost
    held_partition    the work of one: take-over first, then all of these beside each other
      dispatch   ready -> dispatched: as many as fit the queue's window, in the order of `fairness`
      publish    -> the broker, with confirms; what it does not take goes back, fails, or is published again
      partition  what is in flight, whose turn it is, what holds it back: the state that all of these share
      batches    what is confirmed or has ended -> the store
      reports    the workers' words -> applied, 500 at a time -> results
      timers     scheduled, retrying -> ready, when their time has come
      preemption runs that give way, so that pools have what they are guaranteed
      lost_jobs  cancels until they are heard; jobs that no worker has any more
    signals      hints over the broker: ready jobs, free slots, live workers
    duties       once an hour, for all
    history      what workers report of their runs -> figures by the minute, failures of plain jobs
    alerts       rules -> notices to people

What holds, whatever happens:

- A job is dispatched by the holder of its queue's partition alone: each statement that takes jobs compares the
  lease's epoch, so a holder that was replaced takes nothing.
- A job that was dispatched is at the broker, or is published again: the batch is in the store until the broker
  has confirmed it, and the next holder begins with those that are not.
- A report counts once, by its token, whichever scheduler applies it. It is acknowledged after it was applied.
- Without the store nothing is dispatched and no report is taken from its queue; without the broker nothing is taken
  out of the store. Both are waited for.
"""

from taskmq.scheduler.alerts import AlertSettings
from taskmq.scheduler.scheduler import Scheduler

__all__ = ["AlertSettings", "Scheduler"]
