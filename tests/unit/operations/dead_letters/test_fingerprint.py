"""Identity of failures."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.operations.dead_letters import fingerprint

_HEAD = "Traceback (most recent call last):\n"

names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
folders = st.lists(names, max_size=4).map(lambda parts: "".join(f"/{part}" for part in parts))
frames = st.lists(st.tuples(names, names), min_size=1, max_size=8)
numbers = st.integers(0, 10**9)


def of(traceback: str = "", **fields: str) -> str:
    known = {"task": "shop.resize", "reason": "error", "error_type": "ValueError", "message": "", **fields}
    return fingerprint(traceback=traceback, **known)


def trace(
    where: list[tuple[str, str]], *, folder: str = "/app", line: int = 1, source: str = "call()", said: str = "no"
) -> str:
    lines = [
        f'  File "{folder}/{file}.py", line {line + at}, in {function}\n    {source}\n'
        for at, (file, function) in enumerate(where)
    ]
    return f"{_HEAD}{''.join(lines)}ValueError: {said}\n"


def caught(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("it did not fail")


@given(frames, folders, folders, numbers, numbers, st.text(max_size=30), st.text(max_size=30))
def test_line_numbers_folders_and_messages_do_not_change_the_fingerprint(
    where: list[tuple[str, str]], here: str, there: str, line: int, other: int, said: str, says: str
) -> None:
    one = trace(where, folder=here, line=line, source="a", said=said.replace("\n", " ").replace('"', ""))
    two = trace(where, folder=there, line=other, source="b", said=says.replace("\n", " ").replace('"', ""))

    assert of(one, message="a 1") == of(two, message="b 2")


@given(frames, names)
def test_a_different_last_function_is_a_different_failure(where: list[tuple[str, str]], name: str) -> None:
    changed = [*where[:-1], (where[-1][0], f"{where[-1][1]}{name}")]

    assert of(trace(where)) != of(trace(changed))


@given(st.lists(st.tuples(names, names), min_size=5, max_size=5), frames)
def test_the_path_to_the_innermost_code_does_not_matter(
    innermost: list[tuple[str, str]], before: list[tuple[str, str]]
) -> None:
    assert of(trace([*before, *innermost])) == of(trace(innermost))


@given(frames, st.integers(0, 300))
def test_a_traceback_with_a_truncated_beginning_is_the_same_failure(where: list[tuple[str, str]], cut: int) -> None:
    whole = trace([*([("outer", "outer")] * 20), *where[-5:], *[("inner", "inner")] * 5])

    assert of(whole[cut:]) == of(whole)


@given(numbers, numbers)
def test_numbers_in_generated_names_do_not_matter(one: int, two: int) -> None:
    first, second = ([(f"job{number}", f"wrapper_{number}")] for number in (one, two))

    assert of(trace(first)) == of(trace(second))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("row 17 is bad", "row 4711 is bad"),
        ("<Photo object at 0x7f1c2b3a>", "<Photo object at 0x7fdeadbeef>"),
        ("job 0190f3c2-7d5e-7a11-8f00-3c1d2e4f5a6b failed", "job 0190f3c2-9999-7abc-8123-aaaabbbbcccc failed"),
        ("no such key: 'alice'", "no such key: 'bob and carol'"),
        ('"a" is not known', '"b c" is not known'),
        ("commit 3f2a9c1e missing", "commit 99aa00ff missing"),
        ("after 1.5 s", "after 22.75 s"),
        ("two\n  lines", "two lines"),
    ],
)
def test_variable_parts_of_a_message_do_not_matter(one: str, two: str) -> None:
    assert of(message=one) == of(message=two)


@pytest.mark.parametrize(("one", "two"), [("disk full", "disk gone"), ("", "x"), ("can't open", "can't close")])
def test_without_a_traceback_a_different_message_is_a_different_failure(one: str, two: str) -> None:
    assert of(message=one) != of(message=two)


@pytest.mark.parametrize("field", ["task", "reason", "error_type"])
def test_task_reason_and_error_type_distinguish_failures(field: str) -> None:
    assert of(trace([("a", "b")]), **{field: "other"}) != of(trace([("a", "b")]))


def test_the_reason_of_a_parked_message_counts_without_its_values() -> None:
    assert of(reason="no task 'shop.a' here") == of(reason="no task 'shop.b' here")


@given(st.text(max_size=200), st.text(max_size=50), st.text(max_size=50), st.text(max_size=50), st.text(max_size=50))
def test_any_text_has_a_fingerprint_of_twelve_hexadecimal_digits(
    trace_text: str, task: str, reason: str, error_type: str, message: str
) -> None:
    found = fingerprint(task=task, reason=reason, error_type=error_type, message=message, traceback=trace_text)

    assert len(found) == 12
    assert int(found, 16) >= 0


# Python tracebacks


def fail() -> None:
    raise ValueError("no")


def fail_otherwise() -> None:
    raise ValueError("no")


def fail_because(cause: type[Exception]) -> None:
    try:
        raise cause("first")
    except cause as error:
        raise ValueError("no") from error


def fail_meanwhile(number: int) -> None:
    try:
        _ = [][number]
    except IndexError:
        fail()


def fail_together(*calls: Callable[[], None]) -> None:
    errors: list[Exception] = []
    for call in calls:
        try:
            call()
        except ValueError as error:
            errors.append(error)
    raise ExceptionGroup("some failed", errors)


def test_different_code_that_fails_with_the_same_message_is_a_different_failure() -> None:
    assert of(caught(fail)) == of(caught(fail))
    assert of(caught(fail)) != of(caught(fail_otherwise))


def test_the_final_exception_counts_and_its_causes_do_not() -> None:
    assert of(caught(lambda: fail_because(KeyError))) == of(caught(lambda: fail_because(OSError)))
    assert of(caught(lambda: fail_meanwhile(3))) != of(caught(lambda: fail_because(OSError)))


def test_the_exceptions_of_a_group_count_in_any_order() -> None:
    def together(*calls: Any) -> str:
        return caught(lambda: fail_together(*calls))

    assert "ExceptionGroup" in together(fail)
    assert of(together(fail, fail_otherwise)) == of(together(fail_otherwise, fail))
    assert of(together(fail, fail)) == of(together(fail))
    assert of(together(fail)) != of(together(fail_otherwise))


def test_a_syntax_error_has_a_frame_without_a_function() -> None:
    text = caught(lambda: compile("1 +", "/tmp/task_12.py", "exec"))

    assert of(text, error_type="SyntaxError") == of(text.replace("task_12", "task_7"), error_type="SyntaxError")
