"""What the runs of a job have saved for those after them."""

from typing import Protocol

import msgspec

__all__ = ["BegunRun", "CheckpointStore"]


class BegunRun(msgspec.Struct, frozen=True):
    """A run that a `CheckpointStore` knows.

    Attributes:
        token: grows with every run that begins, of the same job.
        values: what the job's runs have saved, by name.
    """

    token: int
    values: dict[str, bytes]


class CheckpointStore(Protocol):
    """What the runs of a job have saved for those that come after them.

    The last run that has begun is the job's: only that one saves. A task that saves counts on it, so a store that
    cannot be reached is an error of the task's (fails closed).
    """

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        """Begin a run, and with it keep what is saved for another `ttl` seconds.

        The token is larger than that of every run of the job that began before, also when what those have saved was
        forgotten meanwhile: it is at least the time in milliseconds. None: a run of a later attempt has begun. A
        first attempt always begins: a dead letter that is replayed starts there, and goes on from what was saved.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def save(self, job_id: str, name: str, value: bytes, *, token: int, ttl: float) -> bool:
        """Keep `value` under `name`, in the place of the last one, and everything for another `ttl` seconds.

        Durable as far as the store is when this returns. False, and nothing is changed, where another run has begun
        since the one that has `token`, or the job was forgotten.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def forget(self, job_id: str, *, token: int) -> None:
        """Forget what the job has saved, unless another run has begun since the one that has `token`.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
