"""Text for logs and terminals: control characters are escaped, the rest is unchanged."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.telemetry.plain_text import check_line, escape_controls, escape_json, escape_line, indent_lines

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_ACTING = st.sampled_from("\x00\x07\x08\x1b\x7f\x85\x9b\x9d\r\n\t\x0b\x0c\u2028\u2029" + _BIDI)
_TEXTS = st.text(st.one_of(st.characters(), _ACTING))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ☂ é\U0001f600", "plain ☂ é\U0001f600"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b]0;PWN\x07\x1b[2J", "\\x1b]0;PWN\\x07\\x1b[2J"),
        ("\x9b2J\x7f\x85", "\\x9b2J\\x7f\\x85"),
        ("\u2028\u2029\u202e", "\\u2028\\u2029\\u202e"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert escape_line(text) == shown


@given(_TEXTS)
def test_no_text_ends_its_line_or_controls_a_terminal(text: str) -> None:
    line = escape_line(text)

    assert len(line.splitlines()) <= 1
    assert not any(unicodedata.category(char) in {"Cc", "Zl", "Zp"} for char in line)
    assert not set(line) & set(_BIDI)


@given(_TEXTS)
def test_a_text_keeps_only_its_own_newlines_and_tabs(text: str) -> None:
    found = escape_controls(text)

    assert found.split("\n") == [escape_controls(line) for line in text.split("\n")]
    assert not any(unicodedata.category(char) in {"Cc", "Zl", "Zp"} for char in found if char not in "\n\t")


@given(_TEXTS)
def test_every_line_of_a_traceback_is_indented(text: str) -> None:
    assert all(line.startswith("    ") for line in indent_lines(text).splitlines())


def test_a_message_within_a_traceback_starts_no_line() -> None:
    assert indent_lines("ValueError: x\nERROR forged\r\x1b[2J\n") == (
        "    ValueError: x\n    ERROR forged\\r\\x1b[2J"
    )


def test_a_direction_mark_in_json_is_escaped() -> None:
    assert escape_json('["a\u202eb"]') == r'["a\u202eb"]'


@given(_TEXTS)
def test_json_keeps_its_meaning_and_controls_no_terminal(text: str) -> None:
    written = escape_json(json.dumps([text], ensure_ascii=False))

    assert json.loads(written) == [text]
    assert not any(unicodedata.category(char) in {"Cc", "Zl", "Zp"} for char in written)


@pytest.mark.parametrize("text", ["", "order 17", "\u00e9\u2602 \u65e5\u672c", "a/b:c"])
def test_a_one_line_name_is_accepted(text: str) -> None:
    assert check_line("job_id", text) == text


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\x9b", "a\tb", "\u202etxt", "\u2028", "\x7f"])
def test_a_name_with_control_characters_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidOption, match=r"^job_id: '.*' contains a control character, line break or direction mark"
    ):
        check_line("job_id", text)
