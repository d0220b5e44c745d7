import logging
import signal
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from taskmq.run.signal_handlers import contain_signal_handlers


@pytest.fixture(autouse=True)
def earlier() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _raising(error: BaseException) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        raise error

    return handle


def test_an_error_of_a_signal_handler_is_logged_and_contained(caplog: pytest.LogCaptureFixture) -> None:
    signal.signal(signal.SIGUSR2, _raising(RuntimeError("not now")))
    contain_signal_handlers()

    with caplog.at_level(logging.ERROR):
        signal.raise_signal(signal.SIGUSR2)

    (record,) = caplog.records
    assert record.getMessage() == "the app's handler of SIGUSR2 raised; the worker continues"
    assert "RuntimeError: not now" in caplog.text


def test_a_handler_may_still_end_the_process() -> None:
    signal.signal(signal.SIGUSR2, _raising(SystemExit(3)))
    contain_signal_handlers()

    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGUSR2)


def test_python_handlers_and_later_ones_are_not_replaced() -> None:
    ignored = signal.getsignal(signal.SIGPIPE)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    contain_signal_handlers()
    signal.signal(signal.SIGUSR2, _raising(RuntimeError("mine")))

    with pytest.raises(RuntimeError, match="mine"):
        signal.raise_signal(signal.SIGUSR2)
    assert signal.getsignal(signal.SIGPIPE) == ignored
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
