"""One onion around sending and one around executing. Middleware *changes*; it does not observe.

`Sending` and `Execution` each travel as one object, so that fields can be added without breaking a middleware.
The first middleware of an app is the outermost.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import msgspec

from taskmq.contracts.broker import HeaderValue
from taskmq.contracts.jobs import JobDetail
from taskmq.model.envelope import Envelope
from taskmq.model.jobs.dependencies import DependencyCondition
from taskmq.model.states import JobState
from taskmq.options.uniqueness import UniqueCall
from taskmq.run.execution import Execution

__all__ = [
    "Middleware",
    "Proceed",
    "Sending",
    "Submission",
    "attached",
    "execute_chain",
    "is_bare",
    "open_nothing",
    "send_chain",
]

Proceed = Callable[[Execution], Awaitable[object]]
"""The rest of the chain around a run: what `Middleware.execute` awaits to go on."""

_NOTHING = nullcontext()


class Submission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the store gets of a call beside its envelope.

    Attributes:
        job_id: that its submitter has chosen.
        asked: what was asked for as to its time, as it was asked for: a delay and no instant, where it was a delay.
        held: it does not run until it is released.
        asked_for: what tells it from other submissions, where that is not the call itself: of a definition, whose
            content may change between a submission and its repetition.
        compared: its arguments as they are compared with those of a repetition; None: as they are sent.
        depends_on: names of the jobs that it waits for, each with its condition; `detail` has those that were found.
        connection: of the caller's own transaction, which commits the job.
        existing: once it is there, the state of the job that was there before, where that is the one.
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
    """A call on its way out. Middleware may replace any field.

    Attributes:
        queue: as people name it; the priority class is added afterwards.
        content_type: the encoding of the envelope's arguments.
        headers: further headers of the message, few and short.
        unique: where it is to be the only one of its key.
        submission: where it goes to the store.
    """

    envelope: Envelope
    queue: str
    content_type: str
    headers: dict[str, HeaderValue] = msgspec.field(default_factory=dict[str, HeaderValue])
    unique: UniqueCall | None = None
    submission: Submission | None = None


class Middleware:
    """Code around every send and every run. Override what is needed; each method passes through unchanged."""

    def send(self, sending: Sending) -> AbstractContextManager[object] | None:  # noqa: ARG002 - for who overrides it
        """Called before a message is encoded; may change `sending`.

        The same code serves `send` and `asend`: a context manager that it returns is entered, stays open
        until the broker has confirmed, and sees the exception when it has not.
        """
        return None

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        """Called around a task's function; returns what the job's result is to be.

        An exception from here counts as the task's own.
        """
        return await proceed(execution)

    def attach(self, carry: Mapping[str, str]) -> AbstractContextManager[object] | None:  # noqa: ARG002 - as above
        """Called in the separate process where a function runs, with what is in its `Execution.carry`.

        A context manager that it returns is entered around the function. Not called for functions that run in the
        worker's process: what `execute` sets there, they see.
        """
        return None


def send_chain(middleware: Sequence[Middleware]) -> Callable[[Sending], AbstractContextManager[object]]:
    """The send side of all, as one call that opens one context; `open_nothing` itself when there is none."""
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
            # Those that are open see it, but cannot swallow it: there is nothing to be sent.
            stack.__exit__(type(error), error, error.__traceback__)
            raise
        return stack

    return open_all


def execute_chain(middleware: Sequence[Middleware], innermost: Proceed) -> Proceed:
    """The execute side of all around `innermost`; `innermost` itself when there is none."""
    chain = innermost
    for each in reversed(middleware):
        if type(each).execute is not Middleware.execute:
            chain = _wrap(each, chain)
    return chain


def is_bare(middleware: Sequence[Middleware]) -> bool:
    """Whether none of them has anything around a run."""
    return all(type(each).execute is Middleware.execute for each in middleware)


def attached(middleware: Sequence[Middleware], carry: Mapping[str, str] | None) -> AbstractContextManager[object]:
    """What all of them want around a function that runs here on its own; nothing where nothing is carried."""
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
    """A context without effect, for who has nothing around a send."""
    return _NOTHING


def _wrap(middleware: Middleware, proceed: Proceed) -> Proceed:
    def run(execution: Execution) -> Awaitable[object]:
        return middleware.execute(execution, proceed)

    return run
