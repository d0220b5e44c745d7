"""`/workers`: list those that answer, and tell them what to do."""

from typing import Any, Final

from litestar import get, post
from litestar.datastructures import State
from litestar.params import JSONBody

from taskmq.api.workers import ControlBody, ControlledWorkers, WorkerList
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven
from taskmq.server.live.samples import MaxAge, shared_look
from taskmq.server.problems import Problem
from taskmq.server.queues.queues import Within
from taskmq.server.settings import API

__all__ = ["WORKERS"]


@get(
    f"{API}/workers",
    permission=Permission.WORKERS_READ,
    operation_id="listWorkers",
    summary="List workers",
    tags=["workers"],
)
async def get_workers(api: ApiGiven, state: State, within: Within = 1.0, max_age: MaxAge = 0) -> WorkerList:
    """The workers that answer within this time; one whose event loop is held up does not."""

    async def look() -> WorkerList:
        return WorkerList(list(await api.workers.list(within=within)))

    return await shared_look(state, f"workers:{within}", max_age, look)


@post(
    f"{API}/workers/control",
    status_code=200,
    permission=Permission.WORKERS_CONTROL,
    operation_id="controlWorkers",
    summary="Tell workers what to do",
    tags=["workers"],
)
async def control_workers(data: JSONBody[ControlBody], api: ApiGiven, within: Within = 1.0) -> ControlledWorkers:
    """Drain workers, change how many tasks they run at a time, or see where they are: what they answer in time.

    One that does not answer, as its event loop is held up or it obeys no commands, may still do it.
    """
    if (data.command == "concurrency") != (data.number is not None):
        raise Problem.about("number", "`concurrency` needs one, and nothing else takes one")
    if data.grace is not None and data.command != "drain":
        raise Problem.about("grace", "only `drain` takes one")
    if not (data.workers or data.host or data.all):
        raise Problem.about("workers", "which workers? Name them, or say `host` or `all`")
    return await api.workers.control(data, within=within)


WORKERS: Final[tuple[Any, ...]] = (get_workers, control_workers)
