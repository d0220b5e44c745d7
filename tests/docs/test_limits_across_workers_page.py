"""The examples and numbers of `docs/limits-across-workers.md`."""

import re
import uuid

from taskmq import TaskMQ
from taskmq.options.limits import RateLimit
from taskmq.run.locks import Lock
from taskmq.worker import Worker, WorkerConfig
from taskmq_local.rules.limits import _LONGEST_LINE, _MISSED, _SLACK
from tests.docs.blocks import ROOT

_TEXT = (ROOT / "docs" / "limits-across-workers.md").read_text()


def test_the_examples_are_tasks_with_the_limits_that_the_page_names() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)
    names: dict[str, object] = {"__name__": "shop"}
    exec(compile(code, "limits-across-workers.md", "exec"), names)
    app = names["app"]
    assert isinstance(app, TaskMQ)
    app.sessions.configure(url=f"memory://{uuid.uuid4().hex}")

    keys = {
        name: [
            limit.demand(("ann", "may")[:count], {}, tenant=None).key for limit in app.tasks[f"shop.{name}"].limits
        ]
        for name, count in (("geocode", 1), ("export", 2), ("charge", 1), ("refund", 1), ("settle", 1))
    }
    assert keys == {
        "geocode": ["rate:shop.geocode"],
        "export": ["rate:shop.export:ann", "places:shop.export:ann"],
        "charge": ["rate:stripe"],
        "refund": ["rate:stripe", "places:shop.refund"],
        "settle": [],
    }
    Worker(app, WorkerConfig())
    assert isinstance(app.lock("name", timeout="30s", lease="30s"), Lock)


def test_the_rates_and_numbers_on_the_page_are_those_of_the_code() -> None:
    for rate in re.findall(r'"(\d+/\w+)"', _TEXT):
        assert RateLimit(rate).interval > 0
    assert (_SLACK, _MISSED, _LONGEST_LINE) == (0.25, 1.0, 10_000)
    assert WorkerConfig().lease == 60
