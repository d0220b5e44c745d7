"""`/workers`: who answers, and what they are to do."""

from typing import Any, Final

from litestar import get, post
from litestar.datastructures import State
from litestar.params import JSONBody

from taskmq.api.workers import ControlBody, ControlledWorker, ControlledWorkers, RunView, WorkerList, WorkerView
from taskmq.model.commands import Command, CommandAnswer
from taskmq.model.identity import Permission
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.operations.workers import list_workers, tell_workers
from taskmq.server.inputs import CallerGiven, ServedApp, instant_text, rendered
from taskmq.server.live.samples import MaxAge, shared_look
from taskmq.server.nouns.queues import Within
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["WORKER_HANDLERS"]

_LONGEST_SUBJECT: Final = 200


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
        return WorkerList(rendered(lambda answer: _view(answer.status), await list_workers(app, within=within)))

    return await shared_look(state, f"workers:{within}", max_age, look)


@post(
    f"{API}/workers/control",
    status_code=200,
    permission=Permission.WORKERS_CONTROL,
    operation_id="controlWorkers",
    summary="Tell workers what to do",
    tags=["workers"],
)
async def control_workers(
    data: JSONBody[ControlBody], app: ServedApp, caller: CallerGiven, within: Within = 1.0
) -> ControlledWorkers:
    """Drain workers, change how many tasks they run at a time, or see where they are: what they answer in time.

    One that does not answer, as its event loop is held up or it obeys no commands, may still do it.
    """
    if (data.command == "concurrency") != (data.number is not None):
        raise Problem.about("number", "`concurrency` needs one, and nothing else takes one")
    if data.grace is not None and data.command != "drain":
        raise Problem.about("grace", "only `drain` takes one")
    if not (data.workers or data.host or data.all):
        raise Problem.about("workers", "which workers? Name them, or say `host` or `all`")
    command = Command(id="", name=data.command, number=data.number, seconds=data.grace)
    whom = "*" if data.all else ", ".join([*data.workers, *([f"@{data.host}"] if data.host else [])])
    facts = {name: value for name, value in (("number", data.number), ("grace", data.grace)) if value is not None}
    await caller.note_action(app, f"worker.{data.command}", subject=whom[:_LONGEST_SUBJECT], after=facts or None)
    told = await tell_workers(app, command, data.workers, host=data.host or None, every=data.all, within=within)
    return ControlledWorkers([_answer(answer) for answer in told.answers], [*told.missing])


WORKER_HANDLERS: Final[tuple[Any, ...]] = (get_workers, control_workers)


def _answer(answer: CommandAnswer) -> ControlledWorker:
    return ControlledWorker(
        worker=answer.worker,
        verdict=answer.verdict,
        detail=answer.detail,
        text=answer.text,
        status=_view(answer.status),
    )


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
        app=status.app,
        in_hand=status.in_hand,
        ended=status.ended,
        abandoned=status.abandoned,
        unsettled=status.unsettled,
        descriptors=status.descriptors,
        loop_lag=status.loop_lag,
        node=None if status.node is None else status.node.name,
    )
