"""The child's side of `ProcessExecutor`: reads one request, runs it, writes one answer, until its pipe ends."""

import contextlib
import ctypes
import importlib
import os
import pickle
import signal
import sys
import traceback
from typing import Any

import msgspec

from taskmq.context import Context, current_context
from taskmq.envelope import Envelope
from taskmq.errors import TaskMQError, UnknownTask
from taskmq.executors.process import Answer, Request, Setup, read_frame, write_frame

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main(target: str) -> None:
    """Serve the app at `target` (`module:attribute`) on standard input and output."""
    _die_with_parent()
    requests, answers = os.dup(0), os.dup(1)
    # What tasks print must not get between the frames.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    module, _, attribute = target.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` has it
    app: Any = importlib.import_module(module)
    for name in attribute.split("."):
        app = getattr(app, name)
    if (frame := read_frame(requests)) is not None:
        setup = msgspec.msgpack.decode(frame, type=Setup)
        app.configure(url=setup.url, state=setup.state)
    while (frame := read_frame(requests)) is not None:
        write_frame(answers, msgspec.msgpack.encode(_run(app, msgspec.msgpack.decode(frame, type=Request))))


def _run(app: Any, request: Request) -> Answer:
    try:
        task = app.tasks.get(request.task)
        if task is None:
            raise UnknownTask(f"task {request.task!r} is not registered in the executor's process")
        context = _context(request)
        arguments = task.signature.decode(
            msgspec.Raw(request.args), msgspec.Raw(request.kwargs), request.content_type
        )
        args, kwargs = task.signature.with_context(arguments, context)
        current_context.set(context)
        return Answer(is_error=False, pickled=pickle.dumps(task.function(*args, **kwargs)))
    except BaseException as error:  # noqa: BLE001 - the task's failure, whatever it is, belongs to the parent
        return Answer(is_error=True, pickled=_pickled(error))


def _context(request: Request) -> Context:
    envelope = Envelope(
        id=request.job_id,
        task=request.task,
        attempt=request.attempt,
        root=request.root,
        meta=request.meta,
        tenant=request.tenant,
    )
    return Context(
        envelope,
        job_id=request.job_id,
        max_attempts=request.max_attempts,
        queue=request.queue,
        redelivered=request.redelivered,
        deadline=request.deadline,
    )


def _pickled(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error))
    error.add_note(f"In the task's process:\n{text}")
    with contextlib.suppress(Exception):
        pickled = pickle.dumps(error)
        # Some exceptions can be written but not read back; find out on this side.
        pickle.loads(pickled)  # noqa: S301 - written one line above
        return pickled
    return pickle.dumps(TaskMQError(f"{type(error).__qualname__}: {error}\n{text}"))


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
