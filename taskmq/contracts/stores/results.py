"""How jobs ended."""

from typing import Final, Protocol

import msgspec

from taskmq.contracts.stores.blobs import BlobReference
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState

__all__ = ["ErrorRecord", "ResultRecord", "ResultStore", "remembered_for"]

_SHORTEST_MEMORY: Final = 60.0
_LONGEST_MEMORY: Final = 86_400.0


def remembered_for(ttl: float) -> float:
    """Seconds after its `put` for which a store knows of a record: its time, and as long again.

    That is a minute at least, and a day at most.
    """
    return ttl + min(max(ttl, _SHORTEST_MEMORY), _LONGEST_MEMORY)


class ResultRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job ended. Times are milliseconds since the epoch.

    Attributes:
        state: one of the terminal states.
        value: the encoded return value of a job that succeeded.
        error: of a job that has failed; for a cancelled one, `message` is the reason.
        blob: where the value is instead, when it is a large one; `value` is empty then.
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
    blob: BlobReference | None = None


class ResultStore(Protocol):
    """Results by job id.

    A record is replaced by a later one, so that a replayed job's success counts, unless nothing may follow its state
    (`JobState.is_sticky`): a success stays. Storing the same record again changes nothing. That there was a record
    is remembered for a while, see `remembered_for`.
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
        """The record once it is there, without polling; None after `timeout` seconds.

        Raises:
            ResultExpired: there was one, and it is gone.
            StateUnavailable: the store could not be reached at the first look.
        """
        ...

    async def has_expired(self, job_id: str) -> bool:
        """Whether there was a record that is gone; False where that is not known any more.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
