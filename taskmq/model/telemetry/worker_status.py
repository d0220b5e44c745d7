"""What a worker process reports about itself: to its supervisor, over the broker, and to health checks."""

import msgspec

from taskmq.model.nodes import NodeTold

__all__ = ["RunningJob", "WorkerStatus"]


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes on.

    Attributes:
        seconds: for how long.
    """

    job_id: str
    task: str
    queue: str
    attempt: int
    seconds: float


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process at one moment. Travels as JSON; fields may be added.

    Attributes:
        name: unique among running workers, unless two were given the same.
        host: the machine's name.
        pid: the process.
        version: of taskmq.
        app: `module:attribute`, or the app's name.
        queues: the queues that it consumes, as people name them.
        paused: those of them that are paused.
        state: `starting`, `running` (it consumes), `disconnected` (a subscription is not live) or `draining`.
        slots: how many runs may go on at a time.
        running: how many runs do go on.
        jobs: the longest of them: `job_id`, `task`, `queue`, `attempt`, and for how many `seconds`.
        backlog: deliveries in hand that wait for a slot.
        in_hand: how many deliveries of each queue are in hand: those that run and those that wait here.
        ended: runs that have ended.
        abandoned: threads that were given up and have not returned.
        unsettled: jobs that have run and keep their slots because their outcomes cannot be settled.
        memory: resident bytes of the process.
        descriptors: open files and sockets of the process.
        loop_lag: seconds by which the event loop was late, at most, in the last ten of them.
        started: when it started, in ms since the epoch.
        node: the host node that it works for; none where it takes no jobs that the scheduler places.
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
