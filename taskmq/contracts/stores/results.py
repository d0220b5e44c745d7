"""Results: the ends of jobs."""

from typing import Final, Protocol

import msgspec

from taskmq.model.envelope import BlobReference
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState

_SHORTEST_MEMORY: Final = 60.0
_LONGEST_MEMORY: Final = 86_400.0


def remembered_for(ttl: float) -> float:
    """Return the seconds after its `put` for which a store remembers a record: its `ttl`, and as long again.

    The second part is at least a minute, and at most a day.
    """
    return ttl + min(max(ttl, _SHORTEST_MEMORY), _LONGEST_MEMORY)


class ResultRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a job. Times are milliseconds since the epoch.

    Attributes:
        state: one of the terminal states.
        value: the encoded return value of a job that succeeded.
        error: of a failed job; for a cancelled one, `message` is the reason.
        blob: location of a large value; `value` is empty then.
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

    A later record replaces an earlier one, so that a replayed job's success counts, unless no state may follow
    (`JobState.is_sticky`): a success stays. Storing the same record again changes nothing. An expired record is
    remembered for a while, see `remembered_for`.
    """

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        """Store `record` for `ttl` seconds; when this returns, it is durable and waiters are notified.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def get(self, job_id: str) -> ResultRecord | None:
        """Return the record; None if there is none (yet, or any more)."""
        ...

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        """Wait for the record without polling; return None after `timeout` seconds.

        Raises:
            ResultExpired: there was a record, and it expired.
            StateUnavailable: the store could not be reached at the start.
        """
        ...

    async def has_expired(self, job_id: str) -> bool:
        """Return whether there was a record that expired; False if that is no longer known.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
