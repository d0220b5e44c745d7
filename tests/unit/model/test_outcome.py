import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn, get_args

import msgspec
import pytest

from taskmq.model.outcome import (
    OUTCOME_NAMES,
    AlreadyDone,
    Cancelled,
    Dead,
    DeadReason,
    Interrupted,
    Outcome,
    Parked,
    Retried,
    Snoozed,
    Succeeded,
    error_line,
    frames_of,
    message_of,
    type_name,
)

_ERROR = ValueError("no")
_ALL: list[Outcome] = [
    Succeeded(5),
    AlreadyDone("application/json", b"5"),
    Retried(timedelta(seconds=1), _ERROR),
    Snoozed(timedelta(seconds=1)),
    Dead("rejected", _ERROR),
    Cancelled("expired"),
    Interrupted(),
    Parked("unknown task"),
    Parked("unknown task", timedelta(seconds=5)),
]


def test_the_outcomes_are_a_closed_set() -> None:
    assert {type(outcome) for outcome in _ALL} == set(get_args(Outcome)) == set(OUTCOME_NAMES)


@pytest.mark.parametrize("outcome", _ALL, ids=repr)
def test_an_outcome_is_a_frozen_value(outcome: Outcome) -> None:
    assert outcome == msgspec.structs.replace(outcome)
    for field in msgspec.structs.fields(outcome):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(outcome, field.name, None)


def test_outcomes_of_different_kinds_are_never_equal() -> None:
    for one in _ALL:
        assert [other for other in _ALL if other == one] == [one]


def test_a_parked_message_waits_for_an_operator_unless_it_has_a_delay() -> None:
    assert Parked("unknown task").delay is None


def test_an_outcome_without_an_error_can_be_pickled() -> None:
    for outcome in (Succeeded({"a": 1}), Snoozed(timedelta(1)), Cancelled("x"), Interrupted(), Parked("x")):
        assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_the_reasons_of_a_death_are_words() -> None:
    assert all(reason.replace("_", "").isalpha() for reason in get_args(DeadReason))


@pytest.mark.parametrize(
    ("type_name", "message", "line"),
    [
        ("ValueError", "no\nand more", "ValueError: no"),
        ("ValueError", "  \n no \n", "ValueError: no"),
        ("ValueError", "", "ValueError"),
        ("", "because", "because"),
        ("", "", ""),
        ("E", "x" * 200, f"E: {'x' * 196}…"),
    ],
)
def test_an_error_is_one_line_of_bounded_length(type_name: str, message: str, line: str) -> None:
    assert error_line(type_name, message) == line
    assert len(error_line(type_name, message)) <= 200


def _closed_error() -> Exception:
    """Return an error without any readable attribute, not even its class."""

    class Nameless(type):
        def __getattribute__(cls, name: str) -> NoReturn:
            raise SystemExit(4)

    class Closed(Exception, metaclass=Nameless):
        def __getattribute__(self, name: str) -> NoReturn:
            raise RuntimeError(name)

        def __str__(self) -> str:
            raise KeyError(3)

    return Closed()


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (lambda: ValueError("no"), "ValueError", "no"),
        (lambda: msgspec.ValidationError("no"), "msgspec.ValidationError", "no"),
        (_closed_error, "(an error without a name)", "(its message cannot be read: KeyError)"),
    ],
)
def test_an_error_has_a_name_and_a_message_for_any_class(
    make: Callable[[], Exception], name: str, message: str
) -> None:
    error = make()

    assert (type_name(error), message_of(error)) == (name, message)


def test_the_frames_of_an_error_match_the_interpreter() -> None:
    try:
        raise _closed_error()
    except Exception as error:
        frames = frames_of(error)

    assert frames is not None
    assert frames.tb_frame.f_code.co_name == "test_the_frames_of_an_error_match_the_interpreter"
