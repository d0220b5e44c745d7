"""The embedded broker of taskmq: `memory://` in one process, `local://PATH` on one host."""

from taskmq_local.hub import forget_memory
from taskmq_local.memory_broker import MemoryBroker, open_memory_broker
from taskmq_local.memory_state import MemoryState, open_memory_state
from taskmq_local.opening import open_local_broker, open_local_state

__all__ = [
    "MemoryBroker",
    "MemoryState",
    "forget_memory",
    "open_local_broker",
    "open_local_state",
    "open_memory_broker",
    "open_memory_state",
]
