"""Limits of tasks, as a scheduler keeps them before it dispatches: so that what has to wait waits in the store.

    ready jobs -> demands (what their tasks' limits say) -> gates (pure): free, or behind the gate of a limit and key
    a job leaves, or time passes -> gates that let some go

A gate has the key that the limit has in the state. The scheduler counts what it has in flight itself and asks no
state: so nothing is held for a job that waits at the broker, and nothing is lost with a scheduler. The worker's
guard has the last word, as for any other job. It turns back what comes too early, because jobs of the broker lane or
of another partition share the limit, and its report says so (`Report.limited`): such a job keeps its place here for
up to 10 seconds, and rates learn nothing of it.

Jobs are looked at, with their bodies, in the queues that tasks with limits name, and in another queue for a minute
after the last limited job was seen there: the first one that comes later goes unseen, and its worker's guard decides.
"""

from taskmq.scheduler.gates.demands import TaskDemands
from taskmq.scheduler.gates.gates import Gates
from taskmq.scheduler.gates.passage import GatePassage

__all__ = ["GatePassage", "Gates", "TaskDemands"]
