"""The worker: takes deliveries, runs tasks, settles outcomes.

One delivery passes these parts, each of which does one thing:

    Dispatcher  starts what comes next and stops what is not to go on
    Slots       owns every delivery in hand: which one has a slot, which waits for one or for resources, which is held
                in its shard. The Backlog in it picks the next one, the priority classes by weight
    FastPath    takes a plain run from its message to its acknowledgement in one call
    Pipeline    takes every other one there: in its turn -> Guards -> Processor -> Settler
    Guards      what some runs have to pass before they start; `guards.build.GUARDS` is the list, with ranks
    Processor   delivery -> Outcome. Never raises: a message that cannot be read, a task that is not known, an
                argument that does not fit and an error of the function are all outcomes
    Settler     Outcome -> effects: first what must be durable (the result, the retry's copy, the dead letter), then
                the ack. Where else a delivery is settled, and why, tests/house/test_places.py lists
    Worker      start, drain, and what lives as long as it consumes

A TaskPool of asyncio tasks carries out what the pipeline does, and only a run that waits for something costs one task
extra; ThreadRuns go on in threads without one. The JournalService writes down what tasks report and save while
they run (`taskmq.run.journal`).

Invariants:

- A delivery is acknowledged only after its outcome is durable. A crash between the two repeats the task; no
  crash loses it.
- A delivery that was never started goes back as it came; that counts no attempt.
- A stopping worker first stops taking, then gives back what it has not started, then waits for what runs,
  and at the end of its grace interrupts it and gives that back, too.

The process is one of several that a supervisor has started (`taskmq.supervisor`). It says how it goes once a second,
and drains when its supervisor is gone.

`Worker` loads on first use: the supervisor shares this package's values, and has nothing to do with it.
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
