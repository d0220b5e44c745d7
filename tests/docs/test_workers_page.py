"""The example of `docs/workers.md`, and its table of prefetch."""

import re

import pytest

from taskmq import TaskMQ
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.prefetch import prefetch_for
from tests.docs.blocks import ROOT, blocks_of

_PAGE = ROOT / "docs" / "workers.md"


def test_the_example_is_an_app_whose_worker_provides_what_its_tasks_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_URL", "memory://workers-page")
    (block,) = [block for block in blocks_of(_PAGE) if block.language == "python"]
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(block.text, str(_PAGE), "exec"), names)
    app = names["app"]
    assert isinstance(app, TaskMQ)

    worker = Worker(app, WorkerConfig(resources={"licence": 3.0, "cpu": 2.0}))

    assert sorted(queue.name for queue in worker.queues) == ["images", "models"]


@pytest.mark.parametrize(
    ("seconds", "row"), [(0.01, "up to 10 ms"), (0.1, "100 ms"), (1.0, "1 s"), (10.0, "10 s and more")]
)
def test_the_prefetch_table_matches_the_code(seconds: float, row: str) -> None:
    found = re.search(rf"^\| {re.escape(row)} \| (\d+) \|$", _PAGE.read_text(), re.MULTILINE)

    assert found is not None
    assert int(found[1]) == prefetch_for(32, seconds=seconds)
