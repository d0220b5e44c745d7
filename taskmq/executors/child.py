"""The process's side of `ProcessExecutor`: runs one request after the other until its pipe ends.

Functions run in the main thread, where signals arrive. A second thread reads the control pipe, so that a run can be
asked to stop. Standard output belongs to the frames; output of tasks goes to standard error.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from taskmq.errors import ResultTooLarge, TaskMQError, UnknownTask
from taskmq.executors.child_journal import ChildJournalWriter
from taskmq.executors.child_lines import ChildLines
from taskmq.executors.frames import (
    ExecutorReady,
    PipeReader,
    Request,
    RunAnswer,
    Setup,
    Stop,
    decode_control,
    decode_request,
    write_frame,
)
from taskmq.executors.interrupt import call_with_alarm
from taskmq.executors.journal_pipe import Reply
from taskmq.executors.usage import ProcessUsage
from taskmq.middleware.chain import attach_all
from taskmq.model.envelope import Envelope
from taskmq.model.resources import Grant
from taskmq.run.console_log import begin_console_log, keep_console_log
from taskmq.run.context import Context, current_context
from taskmq.run.execution import check_is_done
from taskmq.run.forks import leave_fork
from taskmq.run.log_capture import LogCapture
from taskmq.run.log_fields import install_job_fields

_PR_SET_PDEATHSIG: Final = 1
_NOTHING: Final = contextlib.nullcontext()
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(target: str, control: int) -> None:
    """Serve the app at `target` (`module:attribute`) on standard input, standard output and the pipe `control`."""
    _die_with_parent()
    _die_first()
    requests, answers = PipeReader(os.dup(0)), os.dup(1)
    os.set_inheritable(control, False)
    # Output of tasks must not get between the frames.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    first = requests.read()
    if first is None:
        return
    setup = decode_request(first)
    assert isinstance(setup, Setup)
    if setup.log_level is not None:
        install_job_fields()
        begin_console_log(setup.log_level)
    module, _, attribute = target.partition(":")
    # The worker may have imported the app from a folder that is not the current one.
    sys.path[:] = [os.getcwd(), *setup.path]  # noqa: PTH109 - as `python -m` has it
    app: Any = importlib.import_module(module)
    for name in attribute.split("."):
        app = getattr(app, name)
    keep_console_log()
    app.sessions.configure(url=setup.url, state=setup.state, store=setup.store)
    # The modules stay: the collector would scan them again and again, at the exit, and in forks of tasks.
    gc.freeze()
    with app.tasks.dependencies.working_without_loop():
        _Child(app, setup, requests, PipeReader(control), answers).serve()


class _Child:
    """The process that runs requests."""

    def __init__(self, app: Any, setup: Setup, requests: PipeReader, control: PipeReader, answers: int) -> None:
        self._app = app
        self._setup = setup
        self._requests = requests
        self._control = control
        self._answers = answers
        self._process = os.getpid()
        self._pipes = OwnPipes((requests.descriptor, control.descriptor, answers))
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._context: Context | None = None
        self._writer = ChildJournalWriter(self._send)
        self._lines: ChildLines | None = None
        self._capture: LogCapture | None = None
        if setup.capture is not None:
            self._lines = ChildLines(self._writer.tell, most=setup.capture.most)
            # A fork finds it through a weak reference, so it needs an owner.
            self._capture = LogCapture(self._lines, setup.capture)
            self._capture.install()
        self._number = 0
        self._stopped: Stop | None = None

    def serve(self) -> None:
        """Run requests until the pipe ends."""
        os.register_at_fork(after_in_child=self._pipes.detach)
        threading.Thread(target=self._listen, name="taskmq-control", daemon=True).start()
        self._send(ExecutorReady(self._process))
        while (payload := self._requests.read()) is not None:
            request = decode_request(payload)
            assert isinstance(request, Request)
            answer = self._run(request)
            if not self._pipes.are_unchanged:
                sys.stderr.write(f"task {request.task} closed the pipes of its process; the process ends\n")
                os._exit(1)
            self._send(answer)

    def _send(self, content: Any) -> None:
        """Write a frame; may be called from any thread."""
        self._leave_fork(None)
        with self._writing:
            try:
                write_frame(self._answers, content)
            except BrokenPipeError:
                # The worker is gone: no reader is left.
                os._exit(0)

    def _listen(self) -> None:
        try:
            while (payload := self._control.read()) is not None:
                match decode_control(payload):
                    case Stop() as stop:
                        self._stop(stop)
                    case Reply() as reply:
                        self._writer.hear(reply)
        except BaseException:  # noqa: BLE001 - no request could reach it any more
            traceback.print_exc()
            os._exit(1)
        self._writer.hear(None)
        with self._lock:
            is_busy = self._context is not None
        if is_busy:
            # The worker is gone: no reader is left for the outcome.
            os._exit(0)

    def _stop(self, stop: Stop) -> None:
        with self._lock:
            self._stopped = stop
            if self._context is not None:
                self._mark(self._context)

    def _mark(self, context: Context) -> None:
        stop = self._stopped
        if stop is None or stop.number != self._number:
            return
        if stop.preempted is None:
            context.mark_cancelled()
        else:
            context.mark_preempted(stop.preempted)

    def _run(self, request: Request) -> RunAnswer:
        usage = ProcessUsage()
        try:
            try:
                pickled = pickle.dumps(self._call_function(request))
            finally:
                # The answer is the last frame of the run.
                if self._lines is not None:
                    self._lines.finish()
                self._writer.finish()
                with self._lock:
                    self._context = None
            if len(pickled) > self._setup.answer_limit:
                raise ResultTooLarge(request.task, size=len(pickled), limit=self._setup.answer_limit)
            is_error = False
        except BaseException as error:  # noqa: BLE001 - the task's failure, whatever it is, belongs to the worker
            is_error, pickled = True, _pickle(error)
        return RunAnswer(
            is_error,
            pickled,
            request.number,
            os.getpid(),
            processor=usage.processor,
            peak_memory=usage.peak_memory,
        )

    def _call_function(self, request: Request) -> object:
        """Return the function's value; a fork of it never returns from here."""
        try:
            value = self._call(request)
        except BaseException as error:
            self._leave_fork(error)
            raise
        self._leave_fork(None)
        return value

    def _leave_fork(self, error: BaseException | None) -> None:
        # Also for a fork that Python does not know, for example from a C library.
        if os.getpid() != self._process:
            leave_fork(error)

    def _call(self, request: Request) -> object:
        task = self._app.tasks.get(request.task)
        if task is None:
            raise UnknownTask(f"task {request.task!r} is not registered in the executor's process")
        context = self._new_context(request)
        arguments = task.signature.decode(
            msgspec.Raw(request.args), msgspec.Raw(request.kwargs), request.content_type
        )
        args, kwargs = task.signature.with_context(arguments, context)
        current_context.set(context)
        call = partial(task.call, *args, **kwargs)
        with _environment(request), attach_all(self._app.producer.middleware, request.carry):
            if request.soft_timeout is None:
                value = call()
            else:
                words = f"task {request.task} ran longer than its soft_timeout of {request.soft_timeout:g} s"
                value = call_with_alarm(call, request.soft_timeout, words=words)
        # Here, where a coroutine can be closed; coroutines cannot be pickled.
        if (error := check_is_done(value, request.task)) is not None:
            raise error
        return value

    def _new_context(self, request: Request) -> Context:
        envelope = Envelope(
            id=request.job_id,
            task=request.task,
            attempt=request.attempt,
            root=request.root,
            meta=request.meta,
            tenant=request.tenant,
            order_key=request.order_key,
            step_of=request.step_of,
            key=request.key,
        )
        context = Context(
            envelope,
            job_id=request.job_id,
            max_attempts=request.max_attempts,
            queue=request.queue,
            redelivered=request.redelivered,
            _deadline=request.deadline,
            _writer=self._writer,
            started=request.started,
            _grant=None if request.amounts is None else Grant(request.amounts, request.devices),
            fence=request.fence,
            _is_stored=request.is_stored,
        )
        self._writer.open(context.open_journal())
        if self._lines is not None and request.is_logged:
            self._lines.open(context)
        with self._lock:
            self._context, self._number = context, request.number
            self._mark(context)
        return context


class OwnPipes:
    """The process's ends of the pipes to its worker, which a task's code may close, and which forks inherit."""

    def __init__(self, descriptors: tuple[int, ...]) -> None:
        self._known = {descriptor: _identity(descriptor) for descriptor in descriptors}

    @property
    def are_unchanged(self) -> bool:
        """Whether each descriptor is unchanged; one that a task closed may be reused for a file of its own."""
        return all(_identity(descriptor) == known for descriptor, known in self._known.items())

    def detach(self) -> None:
        """Replace nothing in a fork, so that the end of a pipe is the end of this process."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor, known in self._known.items():
            if _identity(descriptor) == known:
                os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _environment(request: Request) -> contextlib.AbstractContextManager[None]:
    """Return a context that sets environment variables of the run's resources for libraries and processes."""
    if not request.amounts and not request.devices:
        return _NOTHING
    return _changed_environment(request)


@contextlib.contextmanager
def _changed_environment(request: Request) -> Generator[None]:
    changes: dict[str, str] = {}
    if request.devices:
        changes["CUDA_VISIBLE_DEVICES"] = ",".join(request.devices)
    if request.amounts and "cpu" in request.amounts:
        changes |= dict.fromkeys(_THREADS, str(max(int(request.amounts["cpu"]), 1)))
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _pickle(error: BaseException) -> bytes:
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException as failure:  # noqa: BLE001 - the task's own classes, which may do anything
        text = f"(its traceback cannot be written: {type(failure).__name__})"
    with contextlib.suppress(BaseException):
        error.add_note(f"In the task's process:\n{text}")
        pickled = pickle.dumps(error)
        # Some exceptions can be pickled but not unpickled, or change; detect that on this side.
        if isinstance(pickle.loads(pickled), BaseException):  # noqa: S301 - written one line above
            return pickled
    return pickle.dumps(TaskMQError(f"{type(error).__qualname__}: {_message(error)}\n{text}"))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:  # noqa: BLE001 - the task's own class
        return f"(its message cannot be read: {type(failure).__name__})"


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _die_first() -> None:
    """Make the system end this process when memory runs out, and not the worker with all its other runs."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
