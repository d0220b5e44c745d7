"""The text of an error in records, reports and headers."""

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from taskmq.model.history.redaction import Redactor
from taskmq.model.outcome import type_name
from taskmq.worker.settlement.error_text import ErrorTexts, substitute

_SECRET = "hunter2-hunter2"
_TEXTS = ErrorTexts(Redactor())


@pytest.mark.parametrize(
    "text",
    [
        f"cannot reach amqp://shop:{_SECRET}@broker/",
        f"password={_SECRET}",
        f"refused: Authorization: Bearer {_SECRET}",
        f'{{"api_key": "{_SECRET}"}}',
    ],
)
def test_secrets_in_an_error_are_in_no_text_about_it(text: str) -> None:
    plain, chained = ConnectionError(text), ConnectionError("it failed")
    chained.__cause__ = plain

    told = (_TEXTS.summary(plain), *(_TEXTS.record(each) for each in (plain, chained)))

    assert _SECRET not in str(told)
    assert "[redacted]" in str(told)
    assert "ConnectionError" in str(told)


def test_a_secret_whose_name_would_be_truncated_is_not_in_a_long_traceback() -> None:
    error = ValueError(f"password={_SECRET * 2_000}")

    assert _SECRET not in _TEXTS.record(error).traceback
    assert not _TEXTS.is_plain(error)


def test_an_error_without_secrets_is_unchanged() -> None:
    error = KeyError("order 17")

    assert _TEXTS.record(error).message == "'order 17'"
    assert _TEXTS.is_plain(error)


class ApiError(Exception):
    """An error like those of client libraries: missing attributes are looked up in its body."""

    def __init__(self, body: dict[str, object]) -> None:
        super().__init__("no")
        self.body = body

    def __getattr__(self, name: str) -> object:
        return self.__dict__["body"][name]


class Causeless(Exception):
    @property
    def __cause__(self) -> NoReturn:  # type: ignore[override]
        raise SystemExit


class Undecided(Exception):
    def __bool__(self) -> NoReturn:
        raise RuntimeError


class Closed(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise KeyboardInterrupt

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Nameless(type):
    def __getattribute__(cls, name: str) -> object:
        if name in {"__qualname__", "__module__"}:
            raise ValueError
        return super().__getattribute__(name)


class Anonymous(Exception, metaclass=Nameless):
    pass


class Text(str):
    __slots__ = ()

    def __getitem__(self, key: Any) -> NoReturn:
        raise ValueError

    def isascii(self) -> NoReturn:
        raise ValueError


class Worded(Exception):
    def __str__(self) -> str:
        return Text("its own words")


class Noted(Exception):
    @property
    def __notes__(self) -> NoReturn:  # type: ignore[override]
        raise ValueError


def bad_template(offset: Any, text: Any) -> SyntaxError:
    """Return the error of a library that sets attributes unexpected by Python."""
    return SyntaxError("bad template", ("page.html", 3, offset, text))


UNWRITABLE: list[Callable[[], BaseException]] = [
    lambda: ApiError({"code": 7}),
    lambda: bad_template(4, b"{% if %}"),
    lambda: bad_template("4", "{% if %}"),
    Causeless,
    Undecided,
    Closed,
    Anonymous,
    Worded,
    Noted,
    lambda: ExceptionGroup("some", [ApiError({}), ValueError("plain")]),
]


def raise_error(make: Callable[[], BaseException]) -> BaseException:
    def within_the_task() -> NoReturn:
        raise make()

    try:
        within_the_task()
    except BaseException as error:
        return error


@pytest.mark.parametrize("make", UNWRITABLE)
def test_an_unprintable_error_is_reported_with_its_frames(make: Callable[[], BaseException]) -> None:
    error = raise_error(make)

    told = _TEXTS.record(error)

    assert "within_the_task" in told.traceback
    assert told.type_name
    assert _TEXTS.summary(error).startswith(told.type_name)
    assert type(told.message) is str


def test_an_error_unprintable_for_python_is_withheld_from_handlers() -> None:
    error = raise_error(lambda: bad_template("4", "{% if %}"))

    assert not _TEXTS.is_plain(error)
    assert "SyntaxError: (what else there is to its traceback cannot be written)" in _TEXTS.traceback_of(error)


def test_an_unreadable_error_has_a_substitute_with_its_frames() -> None:
    found = substitute(raise_error(Closed), "charge")

    assert str(found) == f"task charge raised {__name__}.Closed, an error whose class raises when it is looked at"
    assert "within_the_task" in _TEXTS.traceback_of(found)
    assert type_name(Anonymous()) == "(an error without a name)"
