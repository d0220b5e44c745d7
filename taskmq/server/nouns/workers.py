"""`/workers`: who answers."""

from typing import Any, Final

import msgspec
from litestar import get

from taskmq.model.identity import Permission
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.operations.workers import list_workers
from taskmq.server.inputs import ServedApp, instant_text
from taskmq.server.nouns.queues import Within
from taskmq.server.settings import API

__all__ = ["WORKER_HANDLERS"]


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes on, for so many seconds."""

    job_id: str
    task: str
    queue: str
    attempt: int
    seconds: float


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process.

    Attributes:
        state: starting, running, disconnected or draining.
        slots: how many runs may go on at a time; `running`: how many do.
        backlog: deliveries that wait for a slot.
        memory: resident bytes.
        jobs: the longest of its runs.
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
    started: str | None
    jobs: list[RunView]


class WorkerList(msgspec.Struct, frozen=True):
    """The workers that have answered."""

    items: list[WorkerView]


@get(
    f"{API}/workers",
    permission=Permission.WORKERS_READ,
    operation_id="listWorkers",
    summary="List workers",
    tags=["workers"],
)
async def get_workers(app: ServedApp, within: Within = 1.0) -> WorkerList:
    """The workers that answer within this time; one whose event loop is held up does not."""
    return WorkerList([_view(answer.status) for answer in await list_workers(app, within=within)])


WORKER_HANDLERS: Final[tuple[Any, ...]] = (get_workers,)


def _view(status: WorkerStatus) -> WorkerView:
    return WorkerView(
        name=status.name,
        host=status.host,
        pid=status.pid,
        version=status.version,
        queues=status.queues,
        paused=status.paused,
        state=status.state,
        slots=status.slots,
        running=status.running,
        backlog=status.backlog,
        memory=status.memory,
        started=instant_text(status.started),
        jobs=[
            RunView(job_id=job.job_id, task=job.task, queue=job.queue, attempt=job.attempt, seconds=job.seconds)
            for job in status.jobs
        ],
    )
