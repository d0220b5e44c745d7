import json
from typing import Any

import pytest
import yaml

from taskmq.app_api.workflow_files.documents import LONGEST, DocumentError, FileFormat, read_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: 2027-01-31", "2027-01-31"),
        ("a: 12:30:45", "12:30:45"),
        ("a: 1_000", "1_000"),
        ("a: 010", 10),
        ("a: 0o17", 15),
        ("a: 0xff", 255),
        ("a: -3", -3),
        ("a: 1e3", 1000.0),
        ("a: .5", 0.5),
        ("a: '3'", "3"),
        ("a: True", True),
        ("a: false", False),
        ("a: ~", None),
        ("a:", None),
        ("a: |\n  one\n  two\n", "one\ntwo\n"),
        ("a: ${params.day}", "${params.day}"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml(text: str, value: Any) -> None:
    found = read_document(text.encode(), "yaml").value["a"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_json_text_reads_the_same_as_yaml_and_as_json(form: FileFormat) -> None:
    value = {"a": [1, -2.5, 1e30, "x\n\"'ü\t", None, True, {}], "b": {"c": [], "d": [[{"e": 0}]]}, "": ""}

    assert read_document(json.dumps(value, indent=2).encode(), form).value == value


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_each_value_has_the_line_of_its_key(form: FileFormat) -> None:
    text = '{\n"a": 1,\n"b":\n {"c":\n [2,\n 3]},\n"d": {"e": "{[,:"},\n"f": 4}\n'

    lines = read_document(text.encode(), form).lines

    assert lines == {
        (): 1,
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "c", 0): 5,
        ("b", "c", 1): 6,
        ("d",): 7,
        ("d", "e"): 7,
        ("f",): 8,
    }


def test_a_value_that_does_not_exist_has_the_line_of_the_nearest_one_around_it() -> None:
    document = read_document(b"a: 1\nb:\n  c:\n    - 2\n", "yaml")

    assert document.line_of(("b", "c", 7, "x")) == 3
    assert document.line_of(("nothing",)) == 1


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"", 1, "Expecting value"),
        (b'{"a": 1,\n}', 2, "malformed JSON: Expecting property name enclosed in double quotes (column 1)"),
        (b'{"a": 1}\n{"b": 2}', 2, "malformed JSON: Extra data"),
        (b'{"a":\n NaN}', 2, "NaN is not a number of JSON"),
        (b'{"a":\n -Infinity}', 2, "-Infinity is not a number of JSON"),
        (b'{"a":\n 1e999}', 2, "the number 1e999 is too large"),
        (b'{"a": 1,\n "a": 2}', 2, "the key 'a' occurs twice"),
        (b'{"a": "\\ud800"}', 1, "half a surrogate pair"),
        (b'{"a": "\\u0000"}', 1, "a NUL character"),
        (b'{"a": ' + b"9" * 5000 + b"}", 1, "does not fit into 64 bits"),
        (b"[" * 100_000, 1, "nested more than 40 deep"),
        (b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}", 1, "nested more than 40 deep"),
        (b"[]", 1, "a workflow is a mapping"),
        (b'{"a": "\xff"}', 1, "the file is not UTF-8"),
        (b'{"a": "' + b"x" * LONGEST + b'"}', 1, "the maximum is 262,144"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_faulty_json_text_is_refused_with_its_line(text: bytes, line: int, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_document(text, "json")

    assert caught.value.line == line
    assert message in str(caught.value)


def test_without_the_fast_yaml_parser_the_slow_one_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"a: {b: [1, no]}\nc: 'x'\n"
    fast = read_document(text, "yaml")

    monkeypatch.delattr(yaml, "CSafeLoader")

    assert read_document(text, "yaml") == fast
    with pytest.raises(DocumentError, match="malformed YAML") as caught:
        read_document(b"a: 1\nb: \x07", "yaml")
    assert caught.value.line == 2
