"""How many worker processes there are to be, for how long, and who may ask about them."""

import msgspec

from taskmq.durable.health import Address
from taskmq.supervisor.recycle_limits import RecycleLimits

__all__ = ["SupervisorConfig"]


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
        drained_after: a process that was told to drain is killed so many seconds after its grace; it may wait for its
            broker at both ends of that.
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
