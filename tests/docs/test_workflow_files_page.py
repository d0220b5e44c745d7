"""The example of docs/workflow-files.md."""

import re

from taskmq import TaskMQ
from taskmq.app_api.workflow_files.call_checks import find_call_faults
from taskmq.app_api.workflow_files.reader import read_workflow
from tests.docs.blocks import ROOT


async def test_the_example_fits_tasks_of_an_app() -> None:
    text = (ROOT / "docs" / "workflow-files.md").read_text()
    (example,) = re.findall(r"^This is `nightly.yaml`:\n\n```yaml\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    app = TaskMQ("memory://workflow-files")

    @app.task(name="etl.extract")
    async def extract(day: str) -> list[str]:
        return [day]

    @app.task(name="etl.page")
    async def page(name: str) -> str:
        return name

    @app.task(name="etl.merge")
    async def merge(pages: list[str]) -> str:
        return "".join(pages)

    for name in ("etl.publish", "etl.cleanup"):

        @app.task(name=name)
        async def finish() -> None: ...

    content = read_workflow(example.encode(), "yaml").content

    assert list(content.steps) == ["extract", "pages", "merge", "approve", "publish", "cleanup"]
    assert await find_call_faults(app, content) == []
