from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.app_api.workflow_files.call_checks import find_call_faults
from taskmq.app_api.workflow_files.reader import read_workflow
from taskmq.stored_jobs.task_catalogue import catalogue_of
from taskmq.tasks.registration import registrations_of


def _app() -> TaskMQ:
    app = TaskMQ("memory://call-checks")

    @app.task(name="extract")
    async def extract(day: str, *, rows: int = 10) -> list[str]:
        return [day] * rows

    @app.task(name="page")
    async def page(url: str, number: int, /) -> str:
        return url * number

    @app.task(name="free")
    async def free(*parts: str, **names: int) -> str:
        return f"{parts} {names}"

    return app


@pytest.mark.parametrize(
    ("step", "faults"),
    [
        ("{task: extract, with: {day: x}}", []),
        ("{task: extract, args: [x], with: {rows: 3}}", []),
        ("{task: extract, args: ['${params.x}'], with: {rows: '${params.x}'}}", []),
        ("{task: free, args: [a, b, '${params.x}'], with: {c: 1}}", []),
        ("{task: page, each: [a], args: [1]}", []),
        ("{task: page, each: [a], args: ['${item}', 1]}", []),
        ("{task: page, each: [[a, 1]], spread: true}", []),
        ("{task: extract, each: [1], with: {day: '${item}'}}", []),
        ("{wait: go}", []),
        ("{workflow: other, with: {x: 1}}", []),
        ("{task: extrct}", ["step a, task: no task 'extrct': did you mean 'extract'?"]),
        ("{task: extract}", ["step a, with: task extract needs 'day'"]),
        ("{task: extract, args: [x, y]}", ["step a, args: too many arguments, it takes 1"]),
        ("{task: extract, args: [x], with: {day: y}}", ["step a, args: 'day' is passed twice"]),
        ("{task: extract, with: {day: x, row: 1}}", ["step a, with: unknown field `row`: did you mean 'rows'?"]),
        ("{task: extract, with: {day: 3}}", ['step a, with: the value is not of type "string" - at `day`']),
        ("{task: page, each: [a]}", ["step a, with: task page needs 'number'"]),
        ("{task: page, each: [[a, 1]], spread: true, with: {x: 1}}", ["step a, with: unknown field `x`"]),
        ("{task: free, with: {c: '$${x}'}}", ['step a, with: the value is not of type "integer" - at `c`']),
    ],
)
async def test_calls_are_checked_by_the_signature_of_the_task(step: str, faults: list[str]) -> None:
    text = f"workflow: w\nparams: {{x: {{}}}}\nsteps:\n  a: {step}"

    found = await find_call_faults(_app(), read_workflow(text.encode(), "yaml").content)

    assert [str(fault)[: len(expected)] for fault, expected in zip(found, faults, strict=True)] == faults


async def test_without_tasks_the_fault_names_the_remedy() -> None:
    content = read_workflow(b"workflow: w\nsteps: {a: {task: t}}", "yaml").content

    (fault,) = await find_call_faults(TaskMQ("memory://no-tasks"), content)

    assert str(fault) == "step a, task: no task 't': start its worker first"


@pytest.mark.real_time
async def test_tasks_of_other_apps_are_found_in_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    other = TaskMQ("memory://other", store=url)

    @other.task(name="etl.load")
    async def load(day: str) -> None: ...

    @other.task(name="etl.once", unique=True)
    async def once(day: str) -> None: ...

    text = b"workflow: w\nsteps: {a: {task: etl.load, with: {day: 3}}, b: {task: etl.once, with: {day: x}}}"
    content = read_workflow(text, "yaml").content
    async with other, TaskMQ("memory://here", store=url) as here:
        await catalogue_of(other.sessions).tasks.register(registrations_of(other.tasks), origin="app")

        faults = await find_call_faults(here, content)

    assert [str(fault) for fault in faults] == [
        'step a, with: the value is not of type "string" - at `day`',
        "step b, task: the task has unique=, which needs the app that defines it",
    ]
