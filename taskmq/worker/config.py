"""How a worker is to run."""

import os
from typing import Final, Literal

import msgspec

from taskmq.worker.prefetch import prefetch_for

__all__ = ["DEFAULT_CONCURRENCY", "Events", "WorkerConfig"]

Events = Literal["auto", "on", "off"]

DEFAULT_CONCURRENCY: Final = 32


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one worker process; travels from the supervisor to it as JSON.

    Attributes:
        queues: as people name them; empty: those of all tasks.
        concurrency: how many tasks run at a time in one process.
        prefetch: unsettled deliveries per physical queue; None: as the run times want it, see
            `taskmq.worker.prefetch`.
        queue_slots: of some queues: how many slots their jobs may have in one process.
        queue_shares: of some queues: how many of their jobs start in a row while others wait, too; default 1.
        resources: what one process has for its tasks, over what the machine tells; None: all of that.
        processes: how many share the machine.
        cancel_grace: seconds that a thread or process gets to end by itself after it was asked to.
        process_slots: the most processes for tasks with `executor="process"`.
        lease: seconds until a job that was handed over to the state runs again when its worker is gone.
        grace: seconds that running tasks get when the worker stops.
        burst: stop once the queues stay empty.
        unknown_attempts: how often a message whose task is not known here is put back before it is parked.
        unknown_delay: seconds before the first of them; doubles each time.
        weights: of the priority classes high, default and low: how many of each start in a round; at least 1.
        strict: nothing of a class starts while a higher one waits, whatever the weights say.
        starvation_limit: seconds after which a waiting class gets a turn out of order; not when `strict`.
        max_crashes: how often a job is started whose worker ends before it does; at least 2, or 0 for no limit.
        slow_loop_warning: seconds that the event loop may stand before that is said, with its stack; 0: never.
        result_limit: bytes of a result, encoded; what is larger makes its job dead.
        max_tasks_per_child: runs after which a process of `executor="process"` is replaced; None: never.
        max_memory_per_child: resident bytes beyond which it is replaced after a run; None: never.
        events: what is told of jobs: `on` all the time, `auto` while somebody listens; `off`: nothing at all, of the
            worker neither.
        control: whether commands over the broker are obeyed.
        name: shown at the broker and in results; empty: host and process id.
    """

    queues: tuple[str, ...] = ()
    concurrency: int = DEFAULT_CONCURRENCY
    prefetch: int | None = None
    queue_slots: dict[str, int] = {}
    queue_shares: dict[str, int] = {}
    resources: dict[str, float] | None = None
    processes: int = 1
    cancel_grace: float = 5.0
    process_slots: int = max(os.cpu_count() or 1, 1)
    lease: float = 60.0
    grace: float = 30.0
    burst: bool = False
    unknown_attempts: int = 6
    unknown_delay: float = 5.0
    weights: tuple[int, int, int] = (16, 4, 1)
    strict: bool = False
    starvation_limit: float = 30.0
    max_crashes: int = 3
    slow_loop_warning: float = 1.0
    result_limit: int = 16 * 2**20
    max_tasks_per_child: int | None = None
    max_memory_per_child: int | None = None
    events: Events = "auto"
    control: bool = True
    name: str = ""

    @property
    def effective_prefetch(self) -> int:
        if self.prefetch is not None:
            return self.prefetch
        return prefetch_for(self.concurrency, seconds=None)
