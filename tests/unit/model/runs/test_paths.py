from typing import Any

import msgspec
import pytest

from taskmq.model.runs.paths import Path, PathError, find_value, parse_path, paths_in, resolve


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("params.day", ("params", "", ("day",))),
        (" params.day.x-y[0][12] ", ("params", "", ("day", "x-y", 0, 12))),
        ("steps.a-b.result", ("steps", "a-b", ())),
        ("steps.a.result.pages[0].url", ("steps", "a", ("pages", 0, "url"))),
        ("steps.a.state", ("state", "a", ())),
        ("run.scheduled_for", ("run", "", ("scheduled_for",))),
        ("item", ("item", "", ())),
        ("item.url", ("item", "", ("url",))),
    ],
)
def test_a_path_has_a_root_a_step_and_keys(text: str, path: tuple[Any, ...]) -> None:
    assert parse_path(text)[1:] == path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not begin with"),
        ("env.HOME", "does not begin with"),
        ("params", "names no params"),
        ("params.", "cannot be parsed from '.'"),
        ("params.a[x]", r"cannot be parsed from '\[x\]'"),
        ("params.a[01]", "cannot be parsed"),
        ("steps.a", "neither steps.NAME.result nor steps.NAME.state"),
        ("steps.a.state.x", "neither"),
        ("steps[0].result", "neither"),
    ],
)
def test_a_wrong_path_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(PathError, match=reason):
        parse_path(text)


def test_a_path_leads_into_objects_and_lists() -> None:
    assert find_value({"a": [1, {"b": 2}]}, parse_path("params.a[1].b")) == 2


@pytest.mark.parametrize("text", ["params.b", "params.a[3]", "params.a.b", "params.a[0].x", "params[0]"])
def test_a_path_that_leads_to_nothing_is_an_error(text: str) -> None:
    with pytest.raises(PathError, match="leads to nothing"):
        find_value({"a": [1]}, parse_path(text))


def test_a_reference_that_is_the_whole_text_keeps_its_kind() -> None:
    assert resolve({"x": ["${params.n}", 1, None]}, _look_up) == {"x": [7, 1, None]}


def test_references_inside_a_text_become_text() -> None:
    template = "n=${params.n} t=${params.text} raw=${steps.a.result} $${params.n}"

    assert resolve(template, _look_up) == 'n=7 t=plain raw={"k":1} ${params.n}'


def test_an_encoded_text_is_inserted_without_quotes() -> None:
    assert resolve("<${steps.b.result}>", _look_up) == "<quoted>"


def test_all_paths_of_a_template_are_found() -> None:
    template = {"a": ["${params.n} ${steps.a.result.x}", 3], "b": ("${item}",)}

    assert [path.text for path in paths_in(template)] == ["params.n", "steps.a.result.x", "item"]


def test_a_reference_that_is_not_closed_is_refused() -> None:
    with pytest.raises(PathError, match="not closed"):
        list(paths_in("a ${params.n"))


def _look_up(path: Path) -> Any:
    values = {
        "params.n": 7,
        "params.text": "plain",
        "steps.a.result": msgspec.Raw(b'{"k":1}'),
        "steps.b.result": msgspec.Raw(b'"quoted"'),
    }
    return values[path.text]


def test_a_long_template_is_resolved_like_a_short_one() -> None:
    text = "x" * 2_000 + "${params.a} $${b}"

    assert resolve(text, lambda _: 5) == "x" * 2_000 + "5 ${b}"
