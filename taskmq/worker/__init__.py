"""The worker: receives deliveries, runs tasks, settles outcomes.

One delivery passes these parts, each with one responsibility:

    Dispatcher  starts the next runs and stops runs that must not continue
    Slots       owns every delivery in hand: which one has a slot, waits for one or for resources, or is held in its
                shard. Its Backlog picks the next delivery, by the weights of the priority classes
    FastPath    takes a plain run from its message to its acknowledgement in one call
    Pipeline    takes every other run there, step by step: Guards -> Processor -> Settler
    Guards      checks that some runs pass before they start; `guards.build.GUARDS` is the list, with ranks
    Processor   delivery -> Outcome. Never raises: an unreadable message, an unknown task, an argument that does not
                fit and an error of the function are all outcomes
    Settler     Outcome -> effects: first whatever must be durable (the result, the retry's copy, the dead letter),
                then the ack. tests/house/test_places.py lists the other places that settle a delivery, with reasons
    Worker      starts, drains, and owns what lives as long as it consumes

A TaskPool of asyncio tasks executes the pipeline; a run needs one extra task only if it waits for something.
ThreadRuns execute in threads without one. The JournalService stores what tasks report and save while they run
(`taskmq.run.journal`).

Invariants:

- A delivery is acknowledged only after its outcome is durable. A crash between the two repeats the task; no crash
  loses it.
- A delivery that was never started is returned unchanged, and counts no attempt.
- A stopping worker first stops accepting deliveries, then returns those it has not started, then waits for running
  ones. At the end of its grace it interrupts those and returns them, too.

The process is one of several that a supervisor started (`taskmq.supervisor`). It reports its status once a second,
and drains if its supervisor is gone.

`Worker` is imported on first use: the supervisor shares this package's values, but does not need it.
"""

from typing import TYPE_CHECKING

from taskmq.worker.config import WorkerConfig

if TYPE_CHECKING:
    from taskmq.worker.worker import Worker

__all__ = ["Worker", "WorkerConfig"]


def __getattr__(name: str) -> object:
    if name != "Worker":
        raise AttributeError(f"module 'taskmq.worker' has no attribute {name!r}")
    from taskmq.worker.worker import Worker

    return Worker
