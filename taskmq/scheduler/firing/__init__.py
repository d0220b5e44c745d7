"""What comes with time: jobs that are due, and occurrences of schedules, which become jobs.

    due_loop     one partition's due rows, read ahead and fired at their instants
    timers       jobs whose time has come
    rules        definitions as they were read last: so many, however many schedules there are
    occurrences  an occurrence -> its job, under the id that every scheduler and beat gives it
    turns        a schedule that is due -> decided by `taskmq.schedules.turn` -> one transaction for many of them
    workflows    those that start workflows: claimed in the store, started, confirmed there

A turn reads rows, decides (pure), and writes: the record, when it is looked at next, the occurrences and their jobs,
if the row is as it was read and the partition still this scheduler's. So an occurrence is there with its job, or
neither.
"""

from taskmq.scheduler.firing.timers import Timers
from taskmq.scheduler.firing.turns import ScheduleTurns

__all__ = ["ScheduleTurns", "Timers"]
