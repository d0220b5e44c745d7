"""The process above the worker processes.

It starts them (spawned, never forked after a connection), replaces those that crash or have done enough, has as many
as the load wants, and stops them in order.

    Supervisor    signals, how many slots there are (`Autoscale` decides), whose process is replaced (`RecycleLimits`)
    ProcessSlot   one place: starts another process, later and later, when its own has ended before its time;
                  replaces one in order: the new one consumes before the old one drains
    ChildProcess  one process from outside: what it says on its status pipe (`taskmq.worker.child_protocol`)
    FleetStatus   all of them together: status, metrics, load; what has ended is still counted (`FleetCounts`)
    Systemd       hears what others may ask over HTTP (`taskmq.durable.health`)
"""

from taskmq.supervisor.config import SupervisorConfig
from taskmq.supervisor.supervisor import Supervisor

__all__ = ["Supervisor", "SupervisorConfig"]
