"""docs/api.md names the members of the public classes."""

import re
from pathlib import Path

import pytest

from taskmq import Context, Job, TaskMQ
from taskmq.model.values.return_type import ReturnType

_PAGE = Path(__file__).parents[2] / "docs" / "api.md"
_MOST_NAMES_OF_THE_APP = 23

app = TaskMQ("memory://api")


@app.task
def nothing() -> None: ...


_THINGS = {
    "TaskMQ": app,
    "Task": nothing,
    "Job": Job[None]("1", task="", jobs=lambda: app.jobs, returns=ReturnType(None)),
    "Context": Context.create_detached("nothing"),
}


@pytest.mark.parametrize("name", _THINGS)
def test_the_page_lists_the_names_of_the_class(name: str) -> None:
    there = {each for each in dir(_THINGS[name]) if not each.startswith("_")}

    assert _names_in(name) == there


def test_the_app_has_few_names() -> None:
    assert len(_names_in("TaskMQ")) <= _MOST_NAMES_OF_THE_APP


def _names_in(section: str) -> set[str]:
    _, _, text = _PAGE.read_text().partition(f"\n## {section}\n")
    text = text.partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    cells += re.findall(r"Internal: (.*?)\.\n", text, re.DOTALL)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
