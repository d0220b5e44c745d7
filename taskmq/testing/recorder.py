"""Middleware that records sent calls and raised errors."""

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from taskmq.app import TaskMQ
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Middleware, Proceed, Sending
from taskmq.model.envelope import Envelope
from taskmq.model.units import to_datetime
from taskmq.run.execution import Execution
from taskmq.tasks.task import Task

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SentJob:
    """A call confirmed by the broker.

    Attributes:
        task: name of the task.
        arguments: by parameter, including defaults, as the task gets them: encoded, decoded and validated.
        queue: the queue, by its name in the app.
        eta: earliest time of the run; None: at once.
        envelope: the complete message.
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
    """Records every call once it is confirmed; innermost, so that it sees the changes of other middleware."""

    def __init__(self, app: TaskMQ) -> None:
        self.sent: list[SentJob] = []
        self._app = app

    @contextmanager
    def send(self, sending: Sending) -> Generator[None, None, None]:
        yield
        envelope = sending.envelope
        self.sent.append(
            SentJob(
                job=self._app.job(envelope.id),
                task=envelope.task,
                arguments=self._arguments(envelope, sending.content_type),
                queue=sending.queue,
                eta=None if envelope.eta is None else to_datetime(envelope.eta),
                headers=dict(sending.headers),
                envelope=envelope,
            )
        )

    def _arguments(self, envelope: Envelope, content_type: str) -> Arguments:
        task = self._app.tasks.get(envelope.task)
        if task is None:
            return {}
        return _bind(task, *task.signature.decode(envelope.args, envelope.kwargs, content_type))


class FailureCatcher(Middleware):
    """Keeps the last error of each job as raised."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        try:
            return await proceed(execution)
        except Exception as error:
            self.errors[execution.context.job_id] = error
            raise


def arguments_of(task: Task[..., Any], args: tuple[Any, ...], kwargs: Arguments, content_type: str) -> Arguments:
    """Return the arguments that the task would get, by parameter.

    Raises:
        InvalidArguments, EncodeError: the task does not accept the arguments.
    """
    return _bind(task, *task.signature.decode(*task.signature.encode(args, kwargs, content_type), content_type))


def _bind(task: Task[..., Any], args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
    context = object()
    args, kwargs = task.signature.with_context((args, kwargs), context)
    whole = inspect.signature(task.function)
    travelling = [each for name, each in whole.parameters.items() if name not in task.signature.provided]
    bound = whole.replace(parameters=travelling).bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if value is not context}
