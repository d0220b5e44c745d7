"""Settings of a supervisor: number of processes, limits of one process, and the health address. Pure."""

import msgspec

from taskmq.durable.health import Address
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.units import size_text

_YOUNG = 30.0
_SPREAD = 0.2


class RecycleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one worker process; None for no limit.

    They are checked about once a second, so a process may exceed them slightly.

    Attributes:
        jobs: runs.
        memory: resident bytes.
        descriptors: open ones.
    """

    jobs: int | None = None
    memory: int | None = None
    descriptors: int | None = None

    def __bool__(self) -> bool:
        return (self.jobs, self.memory, self.descriptors) != (None, None, None)

    def find_reached(self, status: WorkerStatus, *, age: float, luck: float) -> str | None:
        """Return the limit that the process has reached, as text; None if it has reached none.

        Args:
            age: seconds since it became ready. In the first half minute, memory and descriptors do not count: if a
                limit is below the process's initial need, replacing it does not help, and must not happen all the
                time.
            luck: 0 to 1, drawn once for each process: its limits are up to a fifth lower, so that processes which
                started together do not end together.
        """
        share = 1 - _SPREAD * luck
        if self.jobs is not None and status.ended >= max(self.jobs * share, 1):
            return f"{status.ended} jobs"
        if age < _YOUNG:
            return None
        if self.memory is not None and status.memory >= self.memory:
            return f"{size_text(status.memory)} of memory"
        if self.descriptors is not None and status.descriptors >= self.descriptors:
            return f"{status.descriptors} open descriptors"
        return None


class SupervisorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a supervisor.

    Attributes:
        processes: minimum number.
        most: maximum number; None for exactly `processes`.
        limits: limits after which one is replaced.
        health: address of the health endpoint; None for none.
        liveness_timeout: seconds of silence after which a process is not live.
        unresponsive_after: seconds of silence after which a process is killed, so that its jobs run elsewhere; None:
            never.
        drained_after: seconds after the end of its grace until a draining process is killed; it may wait for its
            broker before and after its grace.
        calm: seconds of low load before a process is removed.
        watch: folders whose Python files are watched; a change replaces the processes, one by one, if the new code
            becomes ready.
    """

    processes: int = 1
    most: int | None = None
    limits: RecycleLimits = RecycleLimits()
    health: Address | None = None
    liveness_timeout: float = 90.0
    unresponsive_after: float | None = None
    drained_after: float = 30.0
    calm: float = 60.0
    watch: tuple[str, ...] = ()
