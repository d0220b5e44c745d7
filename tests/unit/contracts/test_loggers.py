"""No call of a contained logger raises an error of a handler, filter or formatter of the program."""

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from typing import ClassVar, NoReturn

import pytest

from taskmq.contracts.loggers import contain_below, contain_ours, contained_logger
from taskmq.errors import SoftTimeout

contain_ours()
_log = logging.getLogger("taskmq.worker")


class Unwritable(Exception):
    """An error without any readable attribute."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise KeyError(name)

    def __str__(self) -> str:
        raise KeyError("str")


FAILURES: list[Callable[[], BaseException]] = [
    lambda: ConnectionError("the chat is down"),
    lambda: SystemExit(3),
    asyncio.CancelledError,
    GeneratorExit,
    Unwritable,
]


class Chat(logging.Handler):
    """A handler without a `try`, as many programs have it."""

    def __init__(self, failure: Callable[[], BaseException]) -> None:
        super().__init__()
        self._failure = failure
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())
        raise self._failure()


@contextlib.contextmanager
def handled_by(handler: logging.Handler) -> Generator[None]:
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


class Lines(logging.Handler):
    """A handler that writes like those of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(self.format(record))


class Silent(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize("kind", [Silent, Unwritable])
def test_a_log_record_with_an_unprintable_error_is_written_without_its_text(kind: type[Exception]) -> None:
    handler = Lines()

    with handled_by(handler):
        _log.error("schedule %s is not fired: %s", "nightly", kind())

    (line,) = handler.written
    assert line.startswith("schedule nightly is not fired: (its message cannot be read: ")


@pytest.mark.parametrize("kind", [Silent, Unwritable])
@pytest.mark.parametrize("shown", ["error", "tuple", "true"])
def test_a_log_record_with_an_unprintable_traceback_keeps_its_frames(kind: type[Exception], shown: str) -> None:
    handler = Lines()

    with handled_by(handler):
        try:
            raise kind
        except BaseException as error:
            given = {"error": error, "tuple": sys.exc_info(), "true": True}[shown]
            _log.error("schedule %s is not fired", "nightly", exc_info=given)

    (line,) = handler.written
    assert line.startswith("schedule nightly is not fired\nTraceback (most recent call last):\n")
    assert f"in {test_a_log_record_with_an_unprintable_traceback_keeps_its_frames.__name__}\n" in line
    assert kind.__name__ in line


def test_a_printable_error_reaches_the_handler_unchanged() -> None:
    class Seeing(logging.Handler):
        seen: ClassVar[list[logging.LogRecord]] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.seen.append(record)

    error = ValueError("no")

    with handled_by(Seeing()):
        _log.error("schedule %s is not fired: %s", "nightly", error, exc_info=error)

    (record,) = Seeing.seen
    assert (record.args, record.exc_info) == (("nightly", error), (ValueError, error, None))


@pytest.mark.parametrize("failure", FAILURES)
def test_an_exception_in_a_log_handler_does_not_reach_the_caller(failure: Callable[[], BaseException]) -> None:
    handler = Chat(failure)

    with handled_by(handler):
        _log.warning("a job failed")

    assert handler.seen == ["a job failed"]


def test_an_exception_in_a_log_filter_does_not_reach_the_caller() -> None:
    seen: list[str] = []

    def fails(record: logging.LogRecord) -> bool:
        seen.append(record.getMessage())
        raise ValueError

    _log.addFilter(fails)
    try:
        _log.warning("a job failed")
    finally:
        _log.removeFilter(fails)

    assert seen == ["a job failed"]


def test_an_exception_in_a_record_factory_does_not_reach_the_caller() -> None:
    made: list[object] = []

    def fails(*facts: object, **_: object) -> NoReturn:
        made.append(facts[0])
        raise ValueError

    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(fails)
    try:
        _log.warning("a job failed")
    finally:
        logging.setLogRecordFactory(before)

    assert made == ["taskmq.worker"]


_FAILS_TWICE = """
import logging
from taskmq.contracts.loggers import contained_logger
class Unwritable(Exception):
    def __getattribute__(self, name): raise KeyError(name)
    def __str__(self): raise KeyError("str")
class Chat(logging.Handler):
    def emit(self, record): raise Unwritable("the secret")
logging.getLogger().addHandler(Chat())
log = contained_logger("taskmq.worker")
logging.raiseExceptions = False
log.warning("before")
logging.raiseExceptions = True
log.warning("a job failed")
log.warning("another one")
"""


def test_a_failing_handler_is_reported_once_and_without_the_text_of_the_error() -> None:
    said = subprocess.run([sys.executable, "-c", _FAILS_TWICE], capture_output=True, text=True, check=True).stderr

    assert said.count("taskmq: a log handler, filter or formatter of this program raised Unwritable at a ") == 1
    assert "in emit" in said
    assert "secret" not in said


def test_a_failing_handler_is_tolerated_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    handler = Chat(ValueError)

    with handled_by(handler):
        _log.warning("a job failed")

    assert handler.seen == ["a job failed"]


def test_a_soft_timeout_reaches_the_run_it_is_for() -> None:
    with handled_by(Chat(SoftTimeout)), pytest.raises(SoftTimeout):
        _log.warning("a job failed")


def test_ctrl_c_in_a_log_call_of_the_main_thread_is_raised() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with handled_by(Chat(KeyboardInterrupt)), pytest.raises(KeyboardInterrupt):
            _log.warning("a job failed")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_keyboard_interrupt_outside_the_main_thread_is_contained() -> None:
    ended: list[str] = []

    def log() -> None:
        _log.warning("a job failed")
        ended.append("logged")

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with handled_by(Chat(KeyboardInterrupt)):
            log()
    finally:
        signal.signal(signal.SIGINT, before)
    with handled_by(Chat(KeyboardInterrupt)):
        thread = threading.Thread(target=log)
        thread.start()
        thread.join()

    assert ended == ["logged", "logged"]


def test_a_log_record_has_the_location_of_its_caller() -> None:
    names: list[str] = []

    class Places(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            names.append(record.funcName)

    with handled_by(Places()):
        _log.warning("a job failed")
        log_for_the_caller()

    assert names == ["test_a_log_record_has_the_location_of_its_caller"] * 2


def log_for_the_caller() -> None:
    _log.warning("on behalf of the caller", stacklevel=2)


def test_a_logger_keeps_the_class_that_the_program_set() -> None:
    class Own(logging.Logger):
        def shout(self) -> str:
            return self.name.upper()

    logging.setLoggerClass(Own)
    try:
        logging.getLogger("contained_library.part")
    finally:
        logging.setLoggerClass(logging.Logger)
    contain_below("contained_library")
    logger = contained_logger("contained_library.part")

    assert isinstance(logger, Own)
    assert logger.shout() == "CONTAINED_LIBRARY.PART"
    assert logger is logging.getLogger("contained_library.part")
    handler = Chat(ValueError)
    with handled_by(handler):
        logger.warning("a library warns")
    assert handler.seen == ["a library warns"]


_EVERY_LOGGER = """
import importlib, logging, pkgutil, sys
import taskmq, taskmq_celery, taskmq_local, taskmq_otel, taskmq_prometheus, taskmq_rabbitmq, taskmq_redis, taskmq_s3
import taskmq_sql
from taskmq_rabbitmq.amqp.pika_types import silence_pika
roots = [module for name, module in sys.modules.items() if name.startswith("taskmq") and "." not in name]
for root in roots:
    for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
        if not found.name.endswith(("__main__", "migrations.env")) and ".testing" not in found.name:
            importlib.import_module(found.name)
silence_pika()
taskmq.TaskMQ("memory://")
for name, logger in logging.Logger.manager.loggerDict.items():
    is_ours = name.partition(".")[0].partition("_")[0] in ("taskmq", "pika", "asyncio")
    if is_ours and isinstance(logger, logging.Logger) and not type(logger).__name__.startswith("Contained"):
        print(name)
"""


def test_every_logger_of_taskmq_contains_errors() -> None:
    found = subprocess.run([sys.executable, "-c", _EVERY_LOGGER], capture_output=True, text=True, check=False)

    assert (found.stdout, found.returncode) == ("", 0), found.stderr
