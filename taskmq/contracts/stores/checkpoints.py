"""Values that the runs of a job save for later runs."""

from typing import Protocol

import msgspec


class BegunRun(msgspec.Struct, frozen=True):
    """A run that a `CheckpointStore` knows.

    Attributes:
        token: increases with every run of the same job.
        values: the job's saved values, by name.
    """

    token: int
    values: dict[str, bytes]


class CheckpointStore(Protocol):
    """Values that the runs of a job save for later runs.

    Only the last run to start may save. A task relies on its saved values, so an unavailable store is an error of the
    task (fails closed).
    """

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        """Start a run, and keep the saved values for another `ttl` seconds.

        The token is larger than that of every earlier run of the job, even if their values were forgotten meanwhile:
        it is at least the time in milliseconds. Returns None if a run of a later attempt has started. A first attempt
        always starts: a replayed dead letter starts there, and continues from the saved values.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def save(self, job_id: str, name: str, value: bytes, *, token: int, ttl: float) -> bool:
        """Save `value` under `name`, replacing the last one, and keep all values for another `ttl` seconds.

        It is as durable as the store when this returns. Returns False, and changes nothing, if another run has
        started since the one with `token`, or the job was forgotten.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def forget(self, job_id: str, *, token: int) -> None:
        """Delete the saved values of the job, unless another run has started since the one with `token`.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
