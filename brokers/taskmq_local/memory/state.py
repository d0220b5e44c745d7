"""The state of `memory://NAME` in this process."""

from taskmq.contracts.broker import BrokerOptions
from taskmq_local.memory.data import MemoryData, open_memory_data
from taskmq_local.memory.results import MemoryResults, MemoryRevocations, MemoryStarts
from taskmq_local.memory.store import OpenState
from taskmq_local.memory.tables import MemoryDatabase
from taskmq_local.state.checkpoints import LocalCheckpoints
from taskmq_local.state.claims import LocalClaims
from taskmq_local.state.delays import LocalDelays
from taskmq_local.state.leases import LocalLeases
from taskmq_local.state.limits import LocalLimits
from taskmq_local.state.progress import LocalProgress
from taskmq_local.state.schedules import LocalSchedules


def open_memory_state(url: str, options: BrokerOptions) -> "MemoryState":
    """Return a state for `memory://NAME`, which shares its data with the broker of the same URL."""
    return MemoryState(open_memory_data(url.partition("://")[2]), options)


class MemoryState:
    """The state of one `MemoryData`. Stores that every run uses keep plain data; the others are those of `local://`."""

    def __init__(self, data: MemoryData, options: BrokerOptions) -> None:
        self.address = f"memory://{data.name}"
        state, clock = OpenState(self.address), options.clock
        self._open_state = state
        self._database = database = MemoryDatabase(data.tables, state)
        self.results = MemoryResults(data.results, clock, state)
        self.starts = MemoryStarts(data.starts, clock, state)
        self.revocations = MemoryRevocations(data.revocations, clock, state)
        self.progress = LocalProgress(database, clock)
        self.checkpoints = LocalCheckpoints(database, clock)
        self.delays = LocalDelays(database, clock)
        self.schedules = LocalSchedules(database, clock)
        self.leases = LocalLeases(database, clock)
        self.limits = LocalLimits(database, clock)
        self.claims = LocalClaims(database, clock)

    async def aclose(self) -> None:
        self._open_state.close()
        self._database.close()
