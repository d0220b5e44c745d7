"""How a worker is to run."""

import os
from typing import Final

import msgspec

__all__ = ["DEFAULT_CONCURRENCY", "WorkerConfig"]

DEFAULT_CONCURRENCY: Final = 32
_MOST_PREFETCH: Final = 250


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one worker process; travels from the supervisor to it as JSON.

    Attributes:
        queues: as people name them; empty: those of all tasks.
        concurrency: how many tasks run at a time in one process.
        prefetch: unsettled deliveries per physical queue; None: twice the slots, at most 250.
        process_slots: the most processes for tasks with `executor="process"`.
        grace: seconds that running tasks get when the worker stops.
        burst: stop once the queues stay empty.
        unknown_attempts: how often a message whose task is not known here is put back before it is parked.
        unknown_delay: seconds before the first of them; doubles each time.
        weights: of the priority classes high, default and low: how many of each start in a round; at least 1.
        strict: nothing of a class starts while a higher one waits, whatever the weights say.
        max_starve: seconds after which a waiting class gets a turn out of order; not when `strict`.
        max_starts: how often a job is started whose worker ends before it does; at least 2, or 0 for no limit.
        name: shown at the broker and in results; empty: host and process id.
    """

    queues: tuple[str, ...] = ()
    concurrency: int = DEFAULT_CONCURRENCY
    prefetch: int | None = None
    process_slots: int = max(os.cpu_count() or 1, 1)
    grace: float = 30.0
    burst: bool = False
    unknown_attempts: int = 6
    unknown_delay: float = 5.0
    weights: tuple[int, int, int] = (16, 4, 1)
    strict: bool = False
    max_starve: float = 30.0
    max_starts: int = 3
    name: str = ""

    @property
    def effective_prefetch(self) -> int:
        if self.prefetch is not None:
            return self.prefetch
        return min(self.concurrency * 2, max(_MOST_PREFETCH, self.concurrency))
