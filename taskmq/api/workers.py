"""Workers and tasks."""

from typing import Annotated, Any, Literal

import msgspec

from taskmq.api.values import LogLevel, ShortText


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A current run, with its duration in seconds."""

    job_id: str
    task: str
    queue: str
    attempt: int
    seconds: float


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process, as of its last report.

    Attributes:
        state: starting, running, paused, disconnected or draining.
        slots: the maximum number of concurrent runs; `running`: the current number.
        backlog: deliveries that wait for a slot.
        memory: resident memory in bytes; `descriptors`: open file descriptors.
        cpu: cores that the process used in the last ten seconds or more, without its child processes.
        jobs: its longest-running jobs.
        version: the version of taskmq.
        app: `module:attribute`, or the app's name.
        app_version: the version of the app's code; "" if it has none.
        in_hand: deliveries per queue, both running and waiting.
        ended: the number of finished runs.
        abandoned: threads that timed out and have not returned.
        unsettled: jobs that ran but keep their slots because their outcomes cannot be settled.
        loop_lag: the maximum delay of the event loop in the last ten seconds.
        node: the host node it works for.
        clock_offset: seconds by which its host's clock is ahead of the reader's, to within half the time of its
            answer; None if unknown.
    """

    name: str
    host: str
    pid: int
    version: str
    queues: list[str]
    paused: list[str]
    state: str
    slots: int
    running: int
    backlog: int
    memory: int
    cpu: float
    started: str | None
    jobs: list[RunView]
    app: str
    app_version: str
    in_hand: dict[str, int]
    ended: int
    abandoned: int
    unsettled: int
    descriptors: int
    loop_lag: float
    node: str | None
    clock_offset: float | None


class WorkerList(msgspec.Struct, frozen=True):
    """The workers that answered."""

    items: list[WorkerView]


class ControlBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command for workers. Select them by `workers`, `host`, or `all`.

    Attributes:
        command: `pause`: start no more jobs until `resume`, or until the process ends; `drain`: accept no new jobs,
            wait for running ones, and exit; `concurrency`: run `number` tasks at a time until the process ends;
            `log_level`: log lines of `level` and above until the process ends; `stacks`: report where all threads and
            asyncio tasks are.
        workers: names of workers.
        host: the host whose workers are selected.
        grace: for `drain`, the seconds until running jobs are requeued; None for each worker's `--grace`.
    """

    command: Literal["pause", "resume", "drain", "concurrency", "log_level", "stacks"]
    workers: Annotated[list[ShortText], msgspec.Meta(max_length=1_000)] = []
    host: ShortText = ""
    all: bool = False
    number: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    level: LogLevel | None = None
    grace: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] | None = None


class ControlledWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's answer to a command.

    Attributes:
        verdict: `done`; `refused`, with the reason in `detail`; `unknown` if its version does not know the command.
        text: the stacks, for `stacks`.
        status: the worker's status after the command.
    """

    worker: str
    verdict: str
    detail: str
    text: str
    status: WorkerView


class ControlledWorkers(msgspec.Struct, frozen=True):
    """Workers' answers. `missing` names the selected workers that did not answer in time."""

    items: list[ControlledWorker]
    missing: list[str]


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task and the schema of its arguments.

    Attributes:
        description: the first line of its docstring.
        is_own: whether the server's own app has the task. Otherwise a worker or scheduler registered it.
        positional: names of the parameters that accept positional arguments.
        rest: the name of the variadic positional parameter; "" if there is none.
        arguments: a JSON Schema of the keyword arguments.
        first, registered: when a worker or scheduler first and last registered the task; None if never.
        by, origin: who last registered it, and whether directly (`app`) or over the `broker`; "" for callers without
            an instance role.
        options: the default options of its jobs; None for callers without an instance role.
    """

    name: str
    queue: str
    description: str
    is_own: bool
    positional: list[str]
    rest: str
    arguments: dict[str, Any]
    first: str | None
    registered: str | None
    by: str
    origin: Literal["app", "broker", ""]
    options: dict[str, Any] | None


class TaskList(msgspec.Struct, frozen=True):
    """Tasks, ordered by name. `next` is the `cursor` of the next page."""

    items: list[TaskView]
    next: str | None
