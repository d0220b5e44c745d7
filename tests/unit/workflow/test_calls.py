"""Calls of tasks by runs and their sub-workflows."""

from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.model.runs.graphs import load_graph
from taskmq.testing.job_store_suite.runs.kit import content_of
from taskmq.workflow.runs.calls import find_calls
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time


async def test_calls_of_sub_workflows_are_found_ten_levels_deep(tmp_path: Path) -> None:
    app = TaskMQ(new_url(), store=f"sqlite:///{tmp_path}/jobs.db")
    contents = [
        content_of({"call": {"task": f"t{level}"}, "sub": {"workflow": f"w{level + 1}"}}) for level in range(13)
    ]
    async with app:
        runs = app.sessions.store().runs
        for level, content in enumerate(contents):
            await runs.put_workflow("", f"w{level}", content)

        found = await find_calls(runs, "", load_graph(contents[0]).content)

    # A run that is nested ten times starts no other one.
    assert [(one.name, one.step.task) for one in found] == [
        ("sub." * level + "call", f"t{level}") for level in range(11)
    ]


async def test_a_workflow_that_calls_itself_or_is_missing_is_read_once(tmp_path: Path) -> None:
    app = TaskMQ(new_url(), store=f"sqlite:///{tmp_path}/jobs.db")
    content = content_of({"call": {"task": "t"}, "again": {"workflow": "loop"}, "gone": {"workflow": "missing"}})
    async with app:
        runs = app.sessions.store().runs
        await runs.put_workflow("", "loop", content)

        found = await find_calls(runs, "", load_graph(content).content)

    assert [one.name for one in found] == ["call", "again.call"]
