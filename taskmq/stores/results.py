"""How jobs ended."""

from typing import Protocol

import msgspec

from taskmq.states import JobState

__all__ = ["ErrorRecord", "ResultRecord", "ResultStore"]


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
