"""`/workers`: who answers."""

from typing import Any, Final

from litestar import get
from litestar.datastructures import State

from taskmq.api.workers import RunView, WorkerList, WorkerView
from taskmq.model.identity import Permission
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.operations.workers import list_workers
from taskmq.server.inputs import ServedApp, instant_text
from taskmq.server.live.samples import MaxAge, shared_look
from taskmq.server.nouns.queues import Within
from taskmq.server.settings import API

__all__ = ["WORKER_HANDLERS"]


@get(
    f"{API}/workers",
    permission=Permission.WORKERS_READ,
    operation_id="listWorkers",
    summary="List workers",
    tags=["workers"],
)
async def get_workers(app: ServedApp, state: State, within: Within = 1.0, max_age: MaxAge = 0) -> WorkerList:
    """The workers that answer within this time; one whose event loop is held up does not."""

    async def look() -> WorkerList:
        return WorkerList([_view(answer.status) for answer in await list_workers(app, within=within)])

    return await shared_look(state, f"workers:{within}", max_age, look)


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
