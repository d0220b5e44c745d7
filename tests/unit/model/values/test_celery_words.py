"""Celery names in the wrong place: the error names the taskmq equivalent."""

from typing import Any

import pytest

from taskmq import Context, Job, TaskMQ, chord, group
from taskmq.errors import InvalidOption
from taskmq.model.values.celery_words import CELERY_WORDS, celery_hint
from taskmq.model.values.return_type import ReturnType
from taskmq.options.task_options import TaskOptions
from taskmq.tasks.job_options import JobOptions

app = TaskMQ("memory://celery-words")


@app.task
def resize(photo: int) -> int:
    return photo


@app.task
def total(photos: list[int]) -> int:
    return sum(photos)


_THINGS: dict[str, Any] = {
    "TaskMQ": app,
    "Call": resize,
    "Job": Job[None]("1", task="", jobs=lambda: app.jobs, returns=ReturnType(None)),
    "Workflow": group(resize.s(1), resize.s(2)),
    "Context": Context.create_detached("resize"),
}


@pytest.mark.parametrize(
    ("place", "word"), [(place, word) for place in _THINGS for word in CELERY_WORDS[place]], ids=" ".join
)
def test_a_celery_attribute_names_its_taskmq_equivalent(place: str, word: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(_THINGS[place], word)

    assert f"{word!r} is Celery's word; in taskmq it is " in str(caught.value)
    assert caught.value.name == word


@pytest.mark.parametrize("word", CELERY_WORDS["option"])
def test_a_celery_option_names_its_taskmq_equivalent(word: str) -> None:
    known = {*TaskOptions.__annotations__, *JobOptions.__annotations__}
    assert word not in known
    define: Any = app.task
    for refused in (lambda: define(**{word: 1})(lambda: None), lambda: resize.with_options({word: 1})):
        with pytest.raises(InvalidOption, match=f"unknown option '{word}'; '{word}' is Celery's word"):
            refused()


def test_a_chord_in_two_calls_names_the_single_call() -> None:
    header = [resize.s(1), resize.s(2)]

    with pytest.raises(InvalidOption, match=r"chord\(header, body\)"):
        chord(header)(total.s())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_an_unknown_attribute_is_an_ordinary_error() -> None:
    assert celery_hint("Job", "resullt") == celery_hint("nowhere", "get") == ""
    for thing in _THINGS.values():
        with pytest.raises(AttributeError, match=r"object has no attribute 'no_such_name'$"):
            _ = thing.no_such_name
        assert not hasattr(thing, "no_such_name")
