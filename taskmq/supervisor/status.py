"""What a supervisor reports about itself and its processes. Travels as JSON; fields may be added."""

import msgspec

from taskmq.model.telemetry.worker_status import WorkerStatus

__all__ = ["ProcessStatus", "SupervisorStatus"]


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One place for a worker process.

    Attributes:
        state: `starting`, `running`, `disconnected`, `draining`, as the process itself says; or `waiting`: there
            is none until the next try.
        failures: how many processes have ended here before their time in a row.
        last_ending: how the last of them ended, in words.
        next_try: seconds until another is started; None while there is one.
        silent: seconds since the process has said something.
        worker: what it last said.
    """

    slot: int
    pid: int | None
    state: str
    failures: int
    last_ending: str | None
    next_try: float | None
    silent: float | None
    worker: WorkerStatus | None


class SupervisorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A supervisor at one moment.

    Attributes:
        started: ms since the epoch.
        wanted: how many processes there are to be now, between `least` and `most`.
        leaving: process ids of those that were replaced, or are too many, and still drain.
        ends: how often processes ended before their time, by how.
        replaced: how often a process was replaced in order.
        jobs: runs that have ended, of all processes that there ever were.
        queues: messages that wait in the broker, as far as a reader looks.
    """

    version: str
    pid: int
    app: str
    started: int
    is_stopping: bool
    least: int
    most: int
    wanted: int
    slots: list[ProcessStatus]
    leaving: list[int]
    ends: dict[str, int]
    replaced: int
    jobs: int
    queues: dict[str, int]
