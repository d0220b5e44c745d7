"""Status of a worker process: for its supervisor, for commands over the broker, and for health checks."""

import msgspec

from taskmq.model.nodes import NodeTold


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A run in progress.

    Attributes:
        seconds: duration so far.
    """

    job_id: str
    task: str
    queue: str
    attempt: int
    seconds: float


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one worker process at one moment. Travels as JSON; fields may be added.

    Attributes:
        name: unique among running workers, unless two were started with the same.
        host: the machine's name.
        pid: the process.
        version: of taskmq.
        app: `module:attribute`, or the app's name.
        app_version: of the app's code; empty: none was given.
        queues: public names of the queues that it consumes.
        paused: the paused queues among them.
        state: `starting`, `running` (it consumes), `paused`, `disconnected` (a subscription is not live) or
            `draining`.
        slots: maximum of concurrent runs.
        running: number of current runs.
        jobs: the longest of them: `job_id`, `task`, `queue`, `attempt`, and their duration in `seconds`.
        backlog: deliveries in hand that wait for a slot.
        in_hand: number of deliveries in hand by queue, running and waiting ones.
        ended: number of ended runs.
        abandoned: threads that were abandoned and have not returned.
        unsettled: jobs that ran and keep their slots because their outcomes cannot be settled.
        memory: resident bytes of the process.
        cpu: mean number of cores that the process used in the last ten seconds or more, without its child processes.
        descriptors: open files and sockets of the process.
        loop_lag: maximum delay of the event loop in the last ten seconds, in seconds.
        started: its start, in ms since the epoch.
        node: its host node; empty if it runs no jobs that the scheduler places.
        parcels: whether it accepts several stored jobs in one message.
        at: the moment by its host's clock, in ms since the epoch; 0: not reported by its version.
    """

    name: str
    host: str
    pid: int
    version: str
    app: str
    queues: list[str]
    state: str
    slots: int
    running: int
    backlog: int
    ended: int
    abandoned: int
    memory: int
    descriptors: int
    loop_lag: float
    started: int
    unsettled: int = 0
    jobs: list[RunningJob] = []
    paused: list[str] = []
    in_hand: dict[str, int] = {}
    node: NodeTold | None = None
    parcels: bool = False
    at: int = 0
    app_version: str = ""
    cpu: float = 0.0
