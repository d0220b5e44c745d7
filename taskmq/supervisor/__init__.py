"""The supervisor: the parent process of the worker processes.

It starts them (spawned, never forked after a connection), replaces those that crash or reach a limit, scales their
number with the load, and stops them in order.

    Supervisor    handles signals, scales the slots (`Autoscale` decides), replaces processes (`RecycleLimits`)
    ProcessSlot   a slot for one process: restarts a process that ends unexpectedly, with growing pauses; replaces
                  one in order: the new one consumes before the old one drains
    ChildProcess  one process from outside: its messages on the status pipe (`taskmq.worker.child_protocol`)
    FleetStatus   all processes together: status, metrics, load; counts of ended ones are kept (`FleetCounts`)
    Systemd       notifies systemd; `taskmq.durable.health` answers HTTP requests
"""

from taskmq.supervisor.config import SupervisorConfig
from taskmq.supervisor.supervisor import Supervisor

__all__ = ["Supervisor", "SupervisorConfig"]
