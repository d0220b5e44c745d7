"""The state of `memory://NAME` in this process."""

from taskmq.contracts.broker import BrokerOptions
from taskmq_local.memory.claims import MemoryClaims
from taskmq_local.memory.data import MemoryData, open_memory_data
from taskmq_local.memory.delays import MemoryDelays
from taskmq_local.memory.leases import MemoryLeases
from taskmq_local.memory.limits import MemoryLimits
from taskmq_local.memory.notes import MemoryCheckpoints, MemoryProgress, MemoryRevocations
from taskmq_local.memory.results import MemoryResults, MemoryStarts
from taskmq_local.memory.schedules import MemorySchedules
from taskmq_local.memory.store import OpenState


def open_memory_state(url: str, options: BrokerOptions) -> "MemoryState":
    """Return a state for `memory://NAME`, which shares its data with the broker of the same URL."""
    return MemoryState(open_memory_data(url.partition("://")[2]), options)


class MemoryState:
    """The state of one `MemoryData`."""

    def __init__(self, data: MemoryData, options: BrokerOptions) -> None:
        self.address = f"memory://{data.name}"
        state, clock = OpenState(self.address), options.clock
        self._open_state = state
        self.results = MemoryResults(data.results, clock, state)
        self.starts = MemoryStarts(data.starts, clock, state)
        self.progress = MemoryProgress(data.progress, clock, state)
        self.checkpoints = MemoryCheckpoints(data.checkpoints, clock, state)
        self.delays = MemoryDelays(data.delays, clock, state)
        self.revocations = MemoryRevocations(data.revocations, clock, state)
        self.schedules = MemorySchedules(data.schedules, clock, state)
        self.leases = MemoryLeases(data.leases, clock, state)
        self.limits = MemoryLimits(data.limits, clock, state)
        self.claims = MemoryClaims(data.claims, clock, state)

    async def aclose(self) -> None:
        self._open_state.close()
