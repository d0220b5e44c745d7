"""`/workers`: list and control workers."""

from typing import Final

from litestar.datastructures import State
from litestar.params import JSONBody

from taskmq.api.workers import ControlBody, ControlledWorkers, WorkerList
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven
from taskmq.server.live.samples import MaxAge, read_shared
from taskmq.server.problems import Problem
from taskmq.server.queues.queues import Within

WORKERS: Final = Handlers("workers")


@WORKERS.handle("GET /workers", "listWorkers", Permission.WORKERS_READ, "List workers")
async def get_workers(api: ApiGiven, state: State, within: Within = 1.0, max_age: MaxAge = 0) -> WorkerList:
    """Return the workers that answer in time. A worker with a blocked event loop does not."""

    async def read() -> WorkerList:
        return WorkerList(list(await api.workers.list(within=within)))

    return await read_shared(state, f"workers:{within}", max_age, read)


@WORKERS.handle(
    "POST /workers/control", "controlWorkers", Permission.WORKERS_CONTROL, "Control workers", repeats=True
)
async def control_workers(data: JSONBody[ControlBody], api: ApiGiven, within: Within = 1.0) -> ControlledWorkers:
    """Pause, resume or drain workers, change their concurrency or log level, or return their stacks.

    Returns the answers that arrive in time. A worker that does not answer may still execute the command, for example
    after its event loop was blocked.
    """
    if (data.command == "concurrency") != (data.number is not None):
        raise Problem.about("number", "required for `concurrency`, and not allowed otherwise")
    if (data.command == "log_level") != (data.level is not None):
        raise Problem.about("level", "required for `log_level`, and not allowed otherwise")
    if data.grace is not None and data.command != "drain":
        raise Problem.about("grace", "only allowed for `drain`")
    if not (data.workers or data.host or data.all):
        raise Problem.about("workers", "give `workers`, `host` or `all`")
    return await api.workers.control(data, within=within)
