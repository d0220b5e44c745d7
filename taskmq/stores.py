"""Contracts for the state that workers, callers and beats share.

A `State` belongs to one event loop, like a broker. Each feature has its own small store; nothing here is
the sole truth for a job that the broker has confirmed.
"""

from typing import Protocol

import msgspec

from taskmq.states import JobState

__all__ = ["ErrorRecord", "OccurrenceStore", "ResultRecord", "ResultStore", "State"]


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A task's error as data."""

    type_name: str
    message: str
    traceback: str


class ResultRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job ended. Times are milliseconds since the epoch.

    Attributes:
        state: one of the terminal states.
        value: the encoded return value of a job that succeeded.
        error: of a job that is dead; for a cancelled one, `message` is the reason.
    """

    job_id: str
    task: str
    state: JobState
    attempt: int
    content_type: str = ""
    value: bytes = b""
    error: ErrorRecord | None = None
    started: int | None = None
    finished: int
    worker: str = ""


class ResultStore(Protocol):
    """Results by job id.

    A success is never overwritten; any other record is, so that a replayed job's success counts. Storing the
    same record again changes nothing.
    """

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        """Keep `record` for `ttl` seconds; it is durable and waiters know when this returns.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def get(self, job_id: str) -> ResultRecord | None:
        """The record, or None where there is none (yet, or any more)."""
        ...

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        """The record once it is there, without polling; None after `timeout` seconds."""
        ...


class OccurrenceStore(Protocol):
    """Which occurrences of schedules were emitted, so that any number of beats emit each one once."""

    async def claim(self, occurrence: str, *, owner: str, lease: float, ttl: float) -> bool:
        """Whether `owner` is to emit `occurrence` now.

        True for the first claim, and again for anybody once `lease` seconds have passed without `complete`:
        the owner may have died before it published. Remembered for `ttl` seconds.
        """
        ...

    async def complete(self, occurrence: str, *, ttl: float) -> None:
        """The occurrence was published and confirmed: nobody claims it within `ttl` seconds."""
        ...


class State(Protocol):
    """One shared state, as one event loop of one process sees it. Connects on first use."""

    @property
    def address(self) -> str:
        """The URL without its password."""
        ...

    @property
    def results(self) -> ResultStore: ...

    @property
    def occurrences(self) -> OccurrenceStore: ...

    async def aclose(self) -> None:
        """Let go. May be called twice."""
        ...
