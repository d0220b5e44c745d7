"""All stores of one shared state, and what only some states can do."""

from typing import Literal, Protocol, runtime_checkable

from taskmq.stores.checkpoints import CheckpointStore
from taskmq.stores.claims import ClaimStore
from taskmq.stores.delays import DelayStore
from taskmq.stores.flows import FlowStore
from taskmq.stores.leases import LeaseStore
from taskmq.stores.limits import LimitStore
from taskmq.stores.progress import ProgressStore
from taskmq.stores.results import ResultStore
from taskmq.stores.revocations import RevocationStore
from taskmq.stores.schedules import ScheduleStore
from taskmq.stores.starts import StartStore

__all__ = ["DiagnosableState", "State", "Timekeeper"]


class State(Protocol):
    """One shared state, as one event loop of one process sees it. Connects on first use."""

    @property
    def address(self) -> str:
        """The URL without its password."""
        ...

    @property
    def results(self) -> ResultStore: ...

    @property
    def starts(self) -> StartStore: ...

    @property
    def revocations(self) -> RevocationStore: ...

    @property
    def delays(self) -> DelayStore: ...

    @property
    def progress(self) -> ProgressStore: ...

    @property
    def checkpoints(self) -> CheckpointStore: ...

    @property
    def leases(self) -> LeaseStore: ...

    @property
    def claims(self) -> ClaimStore: ...

    @property
    def flows(self) -> FlowStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def limits(self) -> LimitStore: ...

    async def aclose(self) -> None:
        """Let go. May be called twice."""
        ...


@runtime_checkable
class DiagnosableState(Protocol):
    """A state that can tell what is wrong with its server."""

    async def diagnose(self) -> list[tuple[Literal["ok", "warning", "problem"], str, str, str]]:
        """Findings: level, what it is about, what was found, and the remedy ("" where none is needed).

        Raises:
            StateUnavailable: the state could not be reached.
        """
        ...


@runtime_checkable
class Timekeeper(Protocol):
    """A state on a server with a clock of its own."""

    async def server_now_ms(self) -> int:
        """That clock's time, as ms since the epoch.

        Raises:
            StateUnavailable: the state could not be reached.
        """
        ...
