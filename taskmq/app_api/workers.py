"""Running workers: which answer, and what they are to do."""

from collections.abc import Sequence
from typing import Final

from taskmq.api.workers import ControlBody, ControlledWorker, ControlledWorkers, RunView, WorkerView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, rendered
from taskmq.model.commands import Command, CommandAnswer
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.operations.workers import list_workers, send_command

__all__ = ["AppWorkers", "worker_view"]

_LONGEST_SUBJECT: Final = 200


class AppWorkers(AppCalls):
    """The workers at the broker of the app."""

    async def list(self, *, within: float = 1.0) -> Sequence[WorkerView]:
        """The workers that answer within so many seconds; one whose event loop is held up does not."""
        return rendered(lambda answer: worker_view(answer.status), await list_workers(self._app, within=within))

    async def control(self, what: ControlBody, *, within: float = 1.0) -> ControlledWorkers:
        """Drain workers, change how many tasks they run at a time, or see where they are: what they answer in time.

        One that does not answer, as its event loop is held up or it obeys no commands, may still do it.

        Raises:
            InvalidOption: it names no worker, no host, and not all.
        """
        command = Command(id="", name=what.command, number=what.number, seconds=what.grace)
        whom = "*" if what.all else ", ".join([*what.workers, *([f"@{what.host}"] if what.host else [])])
        facts = {name: value for name, value in (("number", what.number), ("grace", what.grace)) if value is not None}
        await self._caller.note_action(
            self._app, f"worker.{what.command}", subject=whom[:_LONGEST_SUBJECT], after=facts or None
        )
        told = await send_command(
            self._app, command, what.workers, host=what.host or None, every=what.all, within=within
        )
        return ControlledWorkers([_answer(answer) for answer in told.answers], [*told.missing])


def _answer(answer: CommandAnswer) -> ControlledWorker:
    return ControlledWorker(
        worker=answer.worker,
        verdict=answer.verdict,
        detail=answer.detail,
        text=answer.text,
        status=worker_view(answer.status),
    )


def worker_view(status: WorkerStatus) -> WorkerView:
    """A worker as the API shows it."""
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
