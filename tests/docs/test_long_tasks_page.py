"""The example of `docs/long-tasks.md`: it resumes where it was."""

import importlib
from pathlib import Path

import pytest

from taskmq.testing import Harness
from tests.docs.blocks import ROOT, write_files


def test_the_task_on_the_page_resumes_at_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_files(ROOT / "docs" / "long-tasks.md", tmp_path) == {"archive.py"}
    monkeypatch.syspath_prepend(str(tmp_path))
    archive = importlib.import_module("archive")
    sent: list[int] = []

    async def send_page(number: int) -> None:
        if len(sent) in {105, 110}:
            sent.append(-1)
            raise ConnectionError("the archive is away")
        sent.append(number)

    monkeypatch.setattr(archive, "send_page", send_page)
    monkeypatch.setattr(archive, "PAGES", 200)

    with Harness(archive.app) as harness:
        job = archive.archive.send()
        harness.drain()

        assert job.result() == 100
        assert job.progress().done == 200
    # It started at the last tenth page, twice.
    assert sent == [*range(105), -1, *range(100, 104), -1, *range(100, 200)]
