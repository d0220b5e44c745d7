"""What is said of an error in records, reports and headers."""

import pytest

from taskmq.model.history.redaction import Redactor
from taskmq.worker.settlement.error_text import ErrorTexts

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


def test_a_secret_whose_name_would_be_cut_off_is_not_in_a_long_traceback() -> None:
    error = ValueError(f"password={_SECRET * 2_000}")

    assert _SECRET not in _TEXTS.record(error).traceback
    assert not _TEXTS.is_plain(error)


def test_an_error_without_secrets_is_told_as_it_is() -> None:
    error = KeyError("order 17")

    assert _TEXTS.record(error).message == "'order 17'"
    assert _TEXTS.is_plain(error)
