"""Schedulers are killed while a queue fills and empties: each change is reported once, however often they die.

$TASKMQ_TEST_ALERT_CHANGES: number of changes of the alert (default 6); a scheduler is killed at each of them.
"""

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.kit import Started, declare, fill, run_process
from tests.servers import eventually

CHANGES = int(os.environ.get("TASKMQ_TEST_ALERT_CHANGES", "6"))
# An alert changes within half a minute. A scheduler killed while it sends the notice holds it for one minute.
PATIENCE = timedelta(seconds=120)
_SHOP = """
from taskmq import TaskMQ

app = TaskMQ("local://{folder}/broker", store="sqlite:///{folder}/jobs.db")


@app.task(name="work", queue="work")
def work() -> None: ...
"""
_RULES = """
[[rule]]
name = "backlog"
metric = "depth"
threshold = 3
queue = "work"
repeat = 0
channels = ["http://127.0.0.1:{port}/hook"]
"""


@dataclass
class _Hook:
    """A receiver, and its requests.

    Attributes:
        notices: the content of each, by its id.
        times: number of deliveries of each.
    """

    notices: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    times: dict[str, int] = field(default_factory=dict[str, int])

    def take(self, notice: str, body: bytes) -> None:
        self.notices[notice] = [change["kind"] for change in json.loads(body)["changes"]]
        self.times[notice] = self.times.get(notice, 0) + 1

    @property
    def read_notices(self) -> list[str]:
        return [kind for kinds in list(self.notices.values()) for kind in kinds]


@pytest.fixture
def hook() -> Iterator[tuple[_Hook, int]]:
    found = _Hook()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.take(self.headers["Taskmq-Notice"], body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the parent's name

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found, server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.campaign
@pytest.mark.timeout(120 * CHANGES)
def test_each_change_is_reported_once_even_if_its_scheduler_is_killed(
    tmp_path: Path, hook: tuple[_Hook, int]
) -> None:
    found, port = hook
    dice = random.Random(7)
    url = f"local://{tmp_path}/broker"
    (tmp_path / "shop.py").write_text(_SHOP.format(folder=tmp_path))
    (tmp_path / "alerts.toml").write_text(_RULES.format(port=port))
    declare("work", url=url)
    assert run_process(tmp_path, "--app", "shop:app", "store", "upgrade").code == 0
    assert run_process(tmp_path, "--app", "shop:app", "alert", "apply", "alerts.toml").code == 0
    waits: list[float] = []

    with ExitStack() as stack:

        def begin() -> Started:
            env = {"TASKMQ_WEBHOOK_ALLOW_PRIVATE": "1"}
            return stack.enter_context(Started(tmp_path, "scheduler", "shop:app", env=env))

        schedulers = [begin(), begin()]
        for number in range(CHANGES):
            began = time.monotonic()
            if number % 2 == 0:
                fill("work", [f"{number}-{n}" for n in range(5)], url=url, task="work")
            else:
                assert run_process(tmp_path, "--app", "shop:app", "queue", "purge", "work", "--yes").code == 0
            # The scheduler killed then is evaluating the rule, sending the notice, or idle.
            threading.Event().wait(dice.uniform(0, 14))
            schedulers.pop(0).process.kill()
            schedulers.append(begin())
            eventually(lambda number=number: len(found.read_notices) > number, "its notice", within=PATIENCE)  # type: ignore[misc]
            waits.append(time.monotonic() - began)

    print(
        f"{CHANGES} changes, noticed after {sorted(round(wait, 1) for wait in waits)} s, sent {found.times.values()}"
    )
    assert found.read_notices == ["firing" if number % 2 == 0 else "resolved" for number in range(CHANGES)]
