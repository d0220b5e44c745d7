"""Limits of tasks, applied before the dispatch, so that limited jobs wait in the store.

    ready jobs -> demands (by the limits of their tasks) -> gates (pure): free, or behind the gate of a limit and key
    a job leaves, or time passes -> gates that open for some jobs
A gate has the key of the limit in the state. The scheduler counts its own jobs in flight and does not ask the state.
So no permit is held for a job at the broker, and none is lost with a scheduler. The worker's guard decides finally,
as for any other job. It turns a job back if sent jobs or another partition have used up the limit, and reports that
(`Report.limited`). Such a job keeps its permit here for up to 10 seconds, and does not count for rates.
Rates are counted in the store, after the dispatch and before the message is published. Without a state, nothing
decides after that.
The store decides idempotency keys and lines of order keys, and in an app without a state also concurrency limits
(`claims`): a job takes its claims after its dispatch and before its message is published. For a minute after a job of
a queue had to wait for a claim, the claims of its ready jobs are examined, and those that jobs in flight hold close a
gate before the dispatch. The next holder leaves jobs behind lines and keys where they are.
Jobs are examined, with their bodies, in the queues of tasks with limits, and in another queue for a minute after the
last limited job was seen there. The first limited job after that is not examined; its worker's guard decides.
"""

from taskmq.scheduler.gates.claims import ClaimWaits, TaskClaims, answer_of
from taskmq.scheduler.gates.demands import TaskDemands
from taskmq.scheduler.gates.gates import Gates
from taskmq.scheduler.gates.passage import GatePassage, start_of

__all__ = [
    "ClaimWaits",
    "GatePassage",
    "Gates",
    "TaskClaims",
    "TaskDemands",
    "answer_of",
    "start_of",
]
