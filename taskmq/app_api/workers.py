"""Running workers: list and control."""

from collections.abc import Sequence
from typing import Final

from taskmq.api.workers import ControlBody, ControlledWorker, ControlledWorkers, RunView, WorkerView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, render_all, view_of
from taskmq.model.commands import Command, CommandAnswer
from taskmq.operations.workers import list_workers, send_command

_LONGEST_SUBJECT: Final = 200


class AppWorkers(AppCalls):
    """The workers of the app's broker."""

    async def list(self, *, within: float = 1.0) -> Sequence[WorkerView]:
        """List the workers that answer within this many seconds. A worker with a blocked event loop does not."""
        return render_all(worker_view, await list_workers(self._app, within=within))

    async def control(self, what: ControlBody, *, within: float = 1.0) -> ControlledWorkers:
        """Pause, resume or drain workers, change their concurrency or log level, or return their stacks.

        Returns the answers that arrive in time. A worker that does not answer may still execute the command, for
        example after its event loop was blocked.

        Raises:
            InvalidOption: no workers are selected.
        """
        command = Command(id="", name=what.command, number=what.number, seconds=what.grace, level=what.level or "")
        whom = "*" if what.all else ", ".join([*what.workers, *([f"@{what.host}"] if what.host else [])])
        options = {"number": what.number, "grace": what.grace, "level": what.level}
        facts = {name: value for name, value in options.items() if value is not None}
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
        status=worker_view(answer),
    )


def worker_view(answer: CommandAnswer) -> WorkerView:
    """Build the API's view of a worker."""
    status = answer.status
    return view_of(
        WorkerView,
        status,
        started=instant_text(status.started),
        jobs=[
            RunView(job_id=job.job_id, task=job.task, queue=job.queue, attempt=job.attempt, seconds=job.seconds)
            for job in status.jobs
        ],
        node=None if status.node is None else status.node.name,
        clock_offset=answer.clock_offset,
    )
