"""The examples and numbers of `docs/limits.md`."""

import re
from typing import get_args

from taskmq import SoftTimeout, TaskMQ
from taskmq.model.outcome import DeadReason
from taskmq.worker.config import WorkerConfig
from taskmq_rabbitmq.model.url import parse_url
from tests.docs.blocks import ROOT

_TEXT = (ROOT / "docs" / "limits.md").read_text()


def test_the_examples_are_tasks_with_the_limits_that_the_page_names() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)
    names: dict[str, object] = {"__name__": "shop"}
    exec(compile(code, "limits.md", "exec"), names)
    app = names["app"]
    assert isinstance(app, TaskMQ)

    crawl, convert = (app.tasks[f"shop.{name}"].plan for name in ("crawl", "convert"))
    assert (crawl.soft_timeout, crawl.timeout) == (50, 60)
    assert (convert.executor, convert.resources) == ("process", {"memory": 2**30})
    assert names["SoftTimeout"] is SoftTimeout


def test_the_reasons_and_defaults_are_those_of_the_code() -> None:
    config = WorkerConfig()

    assert set(re.findall(r"\| `(\w+)` \|$", _TEXT, re.MULTILINE)) <= {*get_args(DeadReason)}
    assert config.result_limit == 16 * 2**20
    assert config.slow_loop_warning == 1
    assert config.max_crashes == 3
    assert parse_url("amqp://localhost").heartbeat == 45
