"""Status of a supervisor and its processes. Travels as JSON; fields may be added."""

import msgspec

from taskmq.model.telemetry.worker_status import WorkerStatus


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A slot for a worker process.

    Attributes:
        state: `starting`, `running`, `paused`, `disconnected`, `draining`, as reported by the process; or
            `waiting`: there is no process until the next start.
        failures: number of unexpected ends in a row.
        last_ending: reason of the last of them, as text.
        next_try: seconds until the next start; None while there is a process.
        silent: seconds since the last message of the process.
        worker: its last reported status.
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
    """The status of a supervisor at one moment.

    Attributes:
        started: ms since the epoch.
        wanted: target number of processes, between `least` and `most`.
        leaving: ids of processes that were replaced or removed, and still drain.
        ends: number of unexpected ends, by cause.
        replaced: number of processes that were replaced in order.
        jobs: ended runs, of all processes since the start.
        queues: waiting messages at the broker, if a process asks for them.
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
