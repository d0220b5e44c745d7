"""docs/lanes.md: its example sends each call through the documented lane."""

from pathlib import Path
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import QueueStats
from tests.docs.blocks import ROOT, blocks_of


async def _stats(app: TaskMQ) -> list[QueueStats]:
    return await app.sessions.current().broker.stats(["mail"])


@pytest.mark.real_time
def test_each_call_of_the_example_uses_its_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASKMQ_URL", "memory://lanes-page")
    (block,) = [block.text for block in blocks_of(ROOT / "docs" / "lanes.md") if block.language == "python"]
    names: dict[str, Any] = {"__name__": "shop"}
    exec(block, names)

    with names["app"] as app:
        names["place_order"](17, 7)
        stored = sorted(job.task for job in app.jobs.list().jobs)
        (mails,) = app.sessions.run_sync(_stats(app), instead="")

    assert stored == ["shop.invoice", "shop.remind"]
    assert mails.ready == 1
