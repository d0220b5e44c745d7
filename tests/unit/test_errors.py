import copy
import pickle

import pytest

from taskmq import errors
from taskmq.errors import (
    Ignore,
    PartlySent,
    QueueMissing,
    Reject,
    ResultTimeout,
    Retry,
    SendError,
    Snooze,
    TaskControl,
    TaskFailed,
    TaskMQError,
    TooLarge,
    Unroutable,
)

_CLASSES = [getattr(errors, name) for name in errors.__all__]
_WITH_FACTS: list[Exception] = [
    Unroutable("images"),
    Unroutable("images", "declare it"),
    TooLarge(5_000, 1_000, "the message of a"),
    QueueMissing("images"),
    TaskFailed("job 1", type_name="ValueError", message="no", traceback="here", attempts=3),
    PartlySent({2: Unroutable("images"), 7: TooLarge(2, 1, "it")}, 5),
    SendError("plain"),
    ResultTimeout("late"),
    Retry(),
    Retry("5s", "not yet"),
    Snooze(5),
    Snooze("1m", "busy"),
    Reject("never"),
    Ignore(),
]


def _facts(error: BaseException) -> dict[str, object]:
    return {name: str(value) for name, value in vars(error).items() if not name.startswith("__")}


def test_every_error_has_the_one_root_and_every_control_flow_exception_has_not() -> None:
    controls = {TaskControl, Retry, Snooze, Reject, Ignore}

    for each in _CLASSES:
        assert issubclass(each, TaskControl if each in controls else TaskMQError), each
        assert not (issubclass(each, TaskControl) and issubclass(each, TaskMQError)), each


def test_every_class_is_documented_and_exported() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__.startswith("taskmq.")
    }

    assert defined == set(errors.__all__)
    assert all(each.__doc__ for each in _CLASSES)


@pytest.mark.parametrize("error", _WITH_FACTS, ids=lambda error: f"{type(error).__name__}: {error}")
def test_an_exception_keeps_message_and_facts_between_processes_and_in_copies(error: Exception) -> None:
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(same) is type(error)
        assert str(same) == str(error)
        assert _facts(same) == _facts(error)


def test_a_message_says_what_happened_to_what() -> None:
    assert str(Unroutable("images")) == (
        "queue 'images' does not exist at the broker: start a worker for it, or declare it first"
    )
    assert str(TooLarge(5_000_000, 1_000_000, "the body")) == (
        "the body has 5,000,000 bytes, the limit is 1,000,000: store the data elsewhere and send a reference"
    )
    assert str(QueueMissing("images")) == "queue 'images' does not exist at the broker"
    assert str(TaskFailed("j", type_name="ValueError", message="no", traceback="", attempts=3)) == (
        "job j failed after 3 attempt(s): ValueError: no"
    )
    assert str(PartlySent({7: SendError("b"), 2: SendError("a")}, 5)) == ("2 of 7 calls were not sent; number 2: a")


def test_control_flow_without_a_reason_still_says_something() -> None:
    for control in (Retry(), Snooze(1), Ignore()):
        assert str(control)
    assert (Retry().delay, Retry().reason, Snooze("1m").delay) == (None, "", "1m")
