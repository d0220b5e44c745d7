"""The Python of `docs/store.md`, run as one program, and the filters of `docs/finding-jobs.md`."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from taskmq import TaskMQ
from taskmq.errors import UnsupportedFeature
from taskmq.model.jobs.call_schemas import flaw_of
from taskmq.model.jobs.filter_text import parse_filter
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.jobs.registrations import decode_told
from tests.docs.blocks import ROOT, blocks_of

_STORE = ROOT / "docs" / "store.md"
_FILTERS = ROOT / "docs" / "finding-jobs.md"
_WIRE = ROOT / "docs" / "wire.md"
_CHECKS = """
records = app.jobs.list().jobs
print(len(records), sorted((one.priority, one.detail.definition_version) for one in records if one.detail))
print([one.version for one in app.definitions.versions("monthly-eu")], app.definitions.list().definitions)
"""


def test_the_python_code_on_the_page_runs_and_definitions_work_as_described(tmp_path: Path) -> None:
    program = "\n".join(block.text for block in blocks_of(_STORE) if block.language == "python")
    (tmp_path / "page.py").write_text(program + _CHECKS)

    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.stdout, done.stderr) == ("11 [(3, 1), (4, 0), (4, 0), (4, 0), (4, 0), (8, 1)]\n[2, 1] []\n", "")


def test_the_task_reports_on_the_page_are_accepted_unchanged() -> None:
    (body,) = [block.text for block in blocks_of(_WIRE) if '"tasks"' in block.text]

    (task,) = decode_told(body.encode()).tasks

    assert flaw_of(task) == ""
    assert (task.task, task.positional) == ("shop.report", ("month",))


@pytest.mark.real_time
async def test_a_job_exists_if_the_transaction_of_its_submission_commits(job_store_url: str) -> None:
    app = TaskMQ("memory://", store=job_store_url)

    @app.task(queue="reports")
    def report(month: str) -> None: ...

    @app.task(queue="reports")
    def post(month: str) -> None: ...

    (block,) = [block.text for block in blocks_of(_STORE) if "connection=session" in block.text]
    names: dict[str, Any] = {"app": app, "report": report, "post": post}
    exec(block, names)

    engine = create_async_engine(job_store_url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.begin() as connection:
            await connection.execute(text("create table closed (month text)"))
        async with app:
            async with AsyncSession(engine) as session, session.begin():
                await names["close_month"](session, "2027-01")
            async with AsyncSession(engine) as session:
                await names["close_month"](session, "2027-02")
                await session.rollback()
                month = await session.scalar(text("select string_agg(month, ',') from closed"))
            async with engine.connect() as connection:
                await app.jobs.asubmit(report, "2027-03", job_id="report-2027-03", connection=connection)
                await connection.commit()
            with pytest.raises(UnsupportedFeature, match="connection=str"):
                await app.jobs.asubmit(report, "2027-04", connection="mine")
            found = [(job.key, job.state) for job in (await app.jobs.alist()).jobs]
    finally:
        await engine.dispose()
    assert (month, found) == (
        "2027-01",
        [("report-2027-03", "queued"), (None, "waiting"), ("report-2027-01", "queued")],
    )


def test_every_field_of_a_filter_is_on_the_page_and_its_examples_are_valid() -> None:
    table = _FILTERS.read_text().partition("## Filters")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    examples = [example for cell in cells for example in re.findall("`(.+?)`", cell)]
    examples += re.findall('`(key:"[^`]+)`', table)

    found = [parse_filter(example, 1_800_000_000_000) for example in examples]

    said = {
        name
        for one in found
        for name in JobFilter.__struct_fields__
        if getattr(one, name) != getattr(EVERYTHING, name)
    }
    # The counterpart of the page's example.
    assert said | {"submitted_before", "due_from", "finished_before"} == {*JobFilter.__struct_fields__}
