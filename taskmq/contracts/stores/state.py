"""All stores of one shared state, and what only some states can do."""

from typing import Protocol, runtime_checkable

from taskmq.contracts.finding import Finding
from taskmq.contracts.stores.checkpoints import CheckpointStore
from taskmq.contracts.stores.claims import ClaimStore
from taskmq.contracts.stores.crash_counts import StartStore
from taskmq.contracts.stores.delays import DelayStore
from taskmq.contracts.stores.flows import FlowStore
from taskmq.contracts.stores.leases import LeaseStore
from taskmq.contracts.stores.limits import LimitStore
from taskmq.contracts.stores.progress import ProgressStore
from taskmq.contracts.stores.results import ResultStore
from taskmq.contracts.stores.revocations import RevocationStore
from taskmq.contracts.stores.schedules import ScheduleStore
from taskmq.errors import UnsupportedFeature

__all__ = ["DiagnosableState", "State", "Timekeeper", "require_state", "state_required"]


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

    async def diagnose(self) -> list[Finding]:
        """What was found.

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


def require_state(state: State | None, what: str) -> State:
    """The state.

    Raises:
        UnsupportedFeature: there is none; see `state_required`.
    """
    if state is None:
        raise state_required(what)
    return state


def state_required(what: str) -> UnsupportedFeature:
    """What is raised where something is asked for that an app without a state does not have.

    Args:
        what: a subject and its verb, such as "results need".
    """
    return UnsupportedFeature(
        f"{what} a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
    )
