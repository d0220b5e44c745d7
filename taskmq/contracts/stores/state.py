"""The shared state: all its stores, optional features of some states, and the adapter of each capability."""

from typing import Protocol, TypeVar, runtime_checkable

from taskmq.contracts.finding import Finding
from taskmq.contracts.stores.checkpoints import CheckpointStore
from taskmq.contracts.stores.claims import ClaimStore
from taskmq.contracts.stores.crash_counts import StartStore
from taskmq.contracts.stores.delays import DelayStore
from taskmq.contracts.stores.leases import Coordinator
from taskmq.contracts.stores.limits import LimitStore
from taskmq.contracts.stores.progress import ProgressStore
from taskmq.contracts.stores.results import ResultStore
from taskmq.contracts.stores.revocations import RevocationStore
from taskmq.contracts.stores.schedules import ScheduleStore
from taskmq.errors import UnsupportedFeature

T = TypeVar("T")


class State(Protocol):
    """A shared state, as one event loop of one process sees it. Connects on first use."""

    @property
    def address(self) -> str:
        """URL without its password."""
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
    def leases(self) -> Coordinator: ...

    @property
    def claims(self) -> ClaimStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def limits(self) -> LimitStore: ...

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        ...


@runtime_checkable
class DiagnosableState(Protocol):
    """A state that can diagnose its server."""

    async def diagnose(self) -> list[Finding]:
        """Return problems and doubtful settings of the state.

        Raises:
            StateUnavailable: the state could not be reached.
        """
        ...


@runtime_checkable
class Timekeeper(Protocol):
    """A state on a server with its own clock."""

    async def server_now_ms(self) -> int:
        """Return that clock's time, as ms since the epoch.

        Raises:
            StateUnavailable: the state could not be reached.
        """
        ...


class Stores:
    """The adapter of each capability; None if no adapter offers it.

    A `State` offers all of these. Another adapter for a capability is named, and replaces the state's.

    Args:
        state: the app's; None if it has none.
        results, claims: other stores for these capabilities.
    """

    __slots__ = ("_claims", "_results", "_state")

    def __init__(
        self, state: State | None, *, results: ResultStore | None = None, claims: ClaimStore | None = None
    ) -> None:
        self._state = state
        self._results = results
        self._claims = claims

    @property
    def results(self) -> ResultStore | None:
        if self._results is not None or self._state is None:
            return self._results
        return self._state.results

    @property
    def starts(self) -> StartStore | None:
        return None if self._state is None else self._state.starts

    @property
    def revocations(self) -> RevocationStore | None:
        return None if self._state is None else self._state.revocations

    @property
    def delays(self) -> DelayStore | None:
        return None if self._state is None else self._state.delays

    @property
    def progress(self) -> ProgressStore | None:
        return None if self._state is None else self._state.progress

    @property
    def checkpoints(self) -> CheckpointStore | None:
        return None if self._state is None else self._state.checkpoints

    @property
    def leases(self) -> Coordinator | None:
        return None if self._state is None else self._state.leases

    @property
    def claims(self) -> ClaimStore | None:
        if self._claims is not None or self._state is None:
            return self._claims
        return self._state.claims

    @property
    def schedules(self) -> ScheduleStore | None:
        return None if self._state is None else self._state.schedules

    @property
    def limits(self) -> LimitStore | None:
        return None if self._state is None else self._state.limits


def require_store(store: T | None, what: str) -> T:
    """Return the store if there is one.

    Raises:
        UnsupportedFeature: there is none; see `state_required`.
    """
    if store is None:
        raise state_required(what)
    return store


def state_required(what: str) -> UnsupportedFeature:
    """Return the error for a feature that needs a state, in an app without one.

    Args:
        what: a subject and its verb, such as "results need".
    """
    return UnsupportedFeature(
        f"{what} a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
    )


def coordinator_required(what: str) -> UnsupportedFeature:
    """Return the error for a feature that needs a state or a job store.

    Args:
        what: as for `state_required`.
    """
    return UnsupportedFeature(
        f"{what} a state or a job store: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, store='postgresql://...', "
        "$TASKMQ_STORE, or local://PATH on one host"
    )
