"""Schedules of an app: what they call and when, policies for missed occurrences, and state shared by replicas.

    app.every, app.schedules.add ---> ScheduleEntry: task, arguments, trigger, policy
    every beat and operator --------> Record, one per schedule, in the state, changed by compare-and-set

`taskmq.beat` emits them.
"""

from taskmq.schedules.definition import ScheduleEntry, rule_of
from taskmq.schedules.policy import ScheduleOptions, SchedulePolicy, read_policy
from taskmq.schedules.schedules import Schedules
from taskmq.schedules.status import Backfill, ListedSchedule, Occurrence, SchedulePage, ScheduleStatus

__all__ = [
    "Backfill",
    "ListedSchedule",
    "Occurrence",
    "ScheduleEntry",
    "ScheduleOptions",
    "SchedulePage",
    "SchedulePolicy",
    "ScheduleStatus",
    "Schedules",
    "read_policy",
    "rule_of",
]
