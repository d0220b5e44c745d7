"""The worker: takes deliveries, runs tasks, settles outcomes.

One delivery goes through four hands, each of which does one thing:

    Backlog     holds what the broker has handed over and no slot has taken yet; picks the next one, the
                priority classes by weight, none left waiting for ever
    Processor   delivery -> Outcome. Never raises: a message that cannot be read, a task that is not known,
                an argument that does not fit and an error of the function are all outcomes
    Settler     Outcome -> effects: first what must be durable (the result, the retry's copy, the dead
                letter), then the ack. The only place that settles a delivery, but for tasks with early
                acknowledgement, which the Processor acknowledges right before it calls their function
    Worker      slots, start, drain

Invariants:

- A delivery is acknowledged only after its outcome is durable. A crash between the two repeats the task; no
  crash loses it.
- A delivery that was never started goes back as it came; nobody is charged an attempt for it.
- A stopping worker first stops taking, then gives back what it has not started, then waits for what runs,
  and at the end of its grace interrupts it and gives that back, too.

A supervisor process starts N worker processes (spawned, never forked after a connection), restarts those that
crash, and stops them in order. Worker processes notice when their supervisor is gone and drain.
"""

from taskmq.worker.config import WorkerConfig
from taskmq.worker.worker import Worker

__all__ = ["Worker", "WorkerConfig"]
