"""Chains of middleware: one around sending and one around executing. Middleware *changes*; it does not observe.

`Sending` and `Execution` each travel as one object, so that fields can be added without breaking a middleware.
The first middleware of an app is the outermost.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import msgspec

from taskmq.contracts.broker import HeaderValue
from taskmq.model.envelope import Envelope
from taskmq.model.jobs.dependencies import DependencyCondition
from taskmq.model.jobs.details import JobDetail
from taskmq.model.states import JobState
from taskmq.options.uniqueness import UniqueCall
from taskmq.run.execution import Execution

Proceed = Callable[[Execution], Awaitable[object]]
"""The rest of the chain around a run, which `Middleware.execute` awaits to continue."""

_NOTHING = nullcontext()


class Submission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Facts of a submission to the store, besides its envelope.

    Attributes:
        job_id: id that its submitter chose.
        asked: the requested time, in its original form: a delay instead of an instant, if it was a delay.
        held: whether it waits until it is released.
        asked_for: distinguishes it from other submissions, if the call itself does not: a definition, whose content
            may change between a submission and its repetition.
        compared: its arguments in the form that is compared with a repetition; None: as sent.
        depends_on: names of its upstream jobs, each with its condition; `detail` has those that were found.
        connection: of the caller's own transaction, which commits the job.
        existing: after the submission, the state of the job that existed before, if that is the result.
    """

    job_id: str | None = None
    asked: tuple[int | None, ...] = ()
    detail: JobDetail | None = None
    held: bool = False
    asked_for: bytes | None = None
    compared: tuple[msgspec.Raw, msgspec.Raw] | None = None
    depends_on: tuple[tuple[str, DependencyCondition], ...] = ()
    connection: Any = None
    existing: JobState | None = None


class Sending(msgspec.Struct, gc=False):
    """A call that is being sent. Middleware may replace any field.

    Attributes:
        queue: public name; the priority class is added afterwards.
        content_type: the encoding of the envelope's arguments.
        headers: further headers of the message, few and short.
        unique: its uniqueness, if it has a unique key.
        submission: its submission, if it goes to the store.
    """

    envelope: Envelope
    queue: str
    content_type: str
    headers: dict[str, HeaderValue] = msgspec.field(default_factory=dict[str, HeaderValue])
    unique: UniqueCall | None = None
    submission: Submission | None = None


class Middleware:
    """Code around every send and every run. Override the methods you need; each one passes through unchanged."""

    def send(self, sending: Sending) -> AbstractContextManager[object] | None:  # noqa: ARG002 - overridden by subclasses
        """Change a message before it is encoded; may change `sending`.

        The same code serves `send` and `asend`: a context manager that it returns is entered, stays open until the
        broker has confirmed, and sees the exception if it has not.
        """
        return None

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        """Run around a task's function; the return value becomes the job's result.

        An exception from here counts as the task's own.
        """
        return await proceed(execution)

    def attach(self, carry: Mapping[str, str]) -> AbstractContextManager[object] | None:  # noqa: ARG002 - as above
        """Run in the separate process of a function, with the texts of its `Execution.carry`.

        A context manager that it returns is entered around the function. It is not called for functions that run in
        the worker's process, which see what `execute` sets there.
        """
        return None


def send_chain(middleware: Sequence[Middleware]) -> Callable[[Sending], AbstractContextManager[object]]:
    """Return the send side of all as one call that opens one context; `open_nothing` itself if there is none."""
    active = [each for each in middleware if type(each).send is not Middleware.send]
    if not active:
        return open_nothing

    def open_all(sending: Sending) -> AbstractContextManager[object]:
        stack = ExitStack()
        try:
            for each in active:
                if (context := each.send(sending)) is not None:
                    stack.enter_context(context)
        except BaseException as error:
            # Open contexts see it, but cannot swallow it: there is nothing to publish.
            stack.__exit__(type(error), error, error.__traceback__)
            raise
        return stack

    return open_all


def execute_chain(middleware: Sequence[Middleware], innermost: Proceed) -> Proceed:
    """Return the execute side of all around `innermost`; `innermost` itself if there is none."""
    chain = innermost
    for each in reversed(middleware):
        if type(each).execute is not Middleware.execute:
            chain = _wrap(each, chain)
    return chain


def is_bare(middleware: Sequence[Middleware]) -> bool:
    """Return whether no middleware has anything around a run."""
    return all(type(each).execute is Middleware.execute for each in middleware)


def attach_all(middleware: Sequence[Middleware], carry: Mapping[str, str] | None) -> AbstractContextManager[object]:
    """Open what all middleware want around a function in a separate process; does nothing if nothing is carried."""
    if not carry:
        return _NOTHING
    stack = ExitStack()
    try:
        for each in middleware:
            if (context := each.attach(carry)) is not None:
                stack.enter_context(context)
    except BaseException as error:
        stack.__exit__(type(error), error, error.__traceback__)
        raise
    return stack


def open_nothing(_: Sending) -> AbstractContextManager[object]:
    """Return a context without effect, for apps without middleware around a send."""
    return _NOTHING


def _wrap(middleware: Middleware, proceed: Proceed) -> Proceed:
    def run(execution: Execution) -> Awaitable[object]:
        return middleware.execute(execution, proceed)

    return run
