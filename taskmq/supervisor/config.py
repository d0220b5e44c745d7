"""How many worker processes there are to be, when one has done enough, and who may ask about them. Pure."""

import msgspec

from taskmq.durable.health import Address
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.units import size_text

__all__ = ["RecycleLimits", "SupervisorConfig"]

_YOUNG = 30.0
_SPREAD = 0.2


class RecycleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one worker process may do or hold; None for no limit.

    They are looked at about once a second: a process does a little more.

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

    def reached(self, status: WorkerStatus, *, age: float, luck: float) -> str | None:
        """Which limit the process has reached, in words; None for none.

        Args:
            age: seconds since it became ready. In the first half minute, memory and descriptors are not held
                against it: where the limit is below what the process needs to begin with, replacing it helps
                no process, and is not to be done all the time.
            luck: 0 to 1, drawn once for each process: it may do up to a fifth less, so that processes which were
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
        processes: how many there are, at least.
        most: how many there are at most; None for exactly `processes`.
        limits: when one is replaced.
        health: where health is served; None for nowhere.
        liveness_timeout: a process that has said nothing for so many seconds is not live.
        unresponsive_after: a process that has said nothing for so many seconds is killed, so that its jobs run
            elsewhere; None: it is left alone.
        drained_after: a process that was asked to drain is killed so many seconds after its grace; it may wait for
            its broker at both ends of that.
        calm: seconds of little to do before one process less is kept.
        watch: folders whose Python files are watched; a change replaces the processes, one by one, by new ones,
            and only if the new code gets ready.
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
