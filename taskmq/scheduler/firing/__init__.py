"""Firing of due jobs, and of due schedules, whose occurrences become jobs.

    due_loop     one partition's due rows, read ahead and fired at their instants
    timers       due jobs
    rules        cache of parsed definitions, of bounded size
    occurrences  an occurrence -> its job, with the id that every scheduler and beat derives
    turns        a due schedule -> decided by `taskmq.schedules.turn` -> one transaction for many of them
    workflows    schedules that start workflows: claimed in the store, started, confirmed there

A turn reads rows, decides (pure), and writes the record, its next time, the occurrences and their jobs, if the row is
unchanged and this scheduler still holds the partition. So an occurrence and its job are stored together, or neither.
"""

from taskmq.scheduler.firing.timers import Timers
from taskmq.scheduler.firing.turns import ScheduleTurns

__all__ = ["ScheduleTurns", "Timers"]
