"""What a program has sent, and what its tasks have raised, written down by middleware."""

import inspect
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from taskmq.app import TaskMQ
from taskmq.errors import InvalidArguments
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Middleware, Proceed, Sending
from taskmq.model.envelope import Envelope
from taskmq.run.execution import Execution
from taskmq.tasks.task import Task

__all__ = ["FailureCatcher", "SendRecorder", "SentJob", "arguments_of"]

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SentJob:
    """A call that was confirmed.

    Attributes:
        task: its task's name.
        arguments: by parameter, defaults included, as the task will get them: encoded, decoded and validated. Of a
            workflow's step they are complete once it has begun: only then are the values of the steps before it
            looked up.
        queue: as people name it.
        eta: not to run before; None: at once.
        envelope: all that travels.
    """

    job: Job[Any]
    task: str
    arguments: Arguments
    queue: str
    eta: datetime | None
    headers: dict[str, Any]
    envelope: Envelope

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        later = f" at {self.eta.isoformat()}" if self.eta is not None else ""
        return f"{self.task}({values}) to {self.queue}{later}"


class SendRecorder(Middleware):
    """Writes down every call once it is confirmed; the innermost, so that it sees what the others have changed."""

    def __init__(self, app: TaskMQ) -> None:
        self.sent: list[SentJob] = []
        self._app = app
        # The places of steps in `sent`, by their jobs.
        self._steps: dict[str, int] = {}

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        envelope = execution.envelope
        place = self._steps.pop(envelope.id, None)
        if place is not None and envelope.blob is None:
            arguments = self._arguments(envelope, execution.content_type)
            self.sent[place] = replace(self.sent[place], arguments=arguments)
        return await proceed(execution)

    def send(self, sending: Sending) -> AbstractContextManager[object]:
        return self._record(sending)

    @contextmanager
    def _record(self, sending: Sending) -> Generator[None, None, None]:
        yield
        envelope = sending.envelope
        arguments: Arguments = {}
        with suppress(InvalidArguments) if envelope.flow is not None else nullcontext():
            arguments = self._arguments(envelope, sending.content_type)
        if envelope.flow is not None:
            self._steps[envelope.id] = len(self.sent)
        self.sent.append(
            SentJob(
                job=self._app.job(envelope.id),
                task=envelope.task,
                arguments=arguments,
                queue=sending.queue,
                eta=None if envelope.eta is None else _instant(envelope.eta),
                headers=dict(sending.headers),
                envelope=envelope,
            )
        )

    def _arguments(self, envelope: Envelope, content_type: str) -> Arguments:
        task = self._app.tasks.get(envelope.task)
        if task is None:
            return {}
        return _bound(task, *task.signature.decode(envelope.args, envelope.kwargs, content_type))


class FailureCatcher(Middleware):
    """Keeps the last error of each job as it was raised."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        try:
            return await proceed(execution)
        except Exception as error:
            self.errors[execution.context.job_id] = error
            raise


def arguments_of(task: Task[..., Any], args: tuple[Any, ...], kwargs: Arguments, content_type: str) -> Arguments:
    """What the task would get of a call, by parameter.

    Raises:
        InvalidArguments, EncodeError: the arguments do not fit the task.
    """
    return _bound(task, *task.signature.decode(*task.signature.encode(args, kwargs, content_type), content_type))


def _bound(task: Task[..., Any], args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
    context = object()
    args, kwargs = task.signature.with_context((args, kwargs), context)
    whole = inspect.signature(task.function)
    travelling = [each for name, each in whole.parameters.items() if name not in task.signature.provided]
    bound = whole.replace(parameters=travelling).bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if value is not context}


def _instant(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
