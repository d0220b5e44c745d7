"""The listeners of docs/events.md, with a worker that sends events."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskmq.testing import Harness
from tests.cli.kit import PATIENCE, Started, environment, run_here
from tests.docs.blocks import ROOT, write_files
from tests.servers import eventually

_SHOP = """\
from taskmq import TaskMQ

app = TaskMQ()


@app.task(queue="images", name="resize")
def resize(photo: int) -> None: ...


@app.task(queue="images", name="fails", retry=None)
def fails() -> None:
    raise ValueError
"""


@contextmanager
def _listening(folder: Path, script: str, url: str) -> Iterator[Path]:
    """Return the output of a script on the page."""
    said = folder / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, script], cwd=folder, env=environment(TASKMQ_URL=url), stdout=output, stderr=output
        )
    try:
        eventually(lambda: "listening" in said.read_text(), f"{script} listens", within=PATIENCE)
        yield said
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param(
            "watch.py",
            ("dead fails ValueError", "succeeded resize "),
            marks=pytest.mark.nightly("tests/docs/test_events.py::test_a_listener_on_the_page_hears_of_jobs"),
        ),
        pytest.param("plain.py", ("job.succeeded.images ", "job.dead.images "), marks=pytest.mark.rabbitmq),
    ],
)
def test_a_listener_on_the_page_hears_of_jobs(
    tmp_path: Path, request: pytest.FixtureRequest, script: str, words: tuple[str, ...]
) -> None:
    url = request.getfixturevalue("amqp_url") if script == "plain.py" else f"local://{tmp_path}/queue"
    assert script in write_files(ROOT / "docs" / "events.md", tmp_path)
    (tmp_path / "shop.py").write_text(_SHOP)

    with Started(tmp_path, "worker", "shop:app", env={"TASKMQ_URL": url}) as worker:
        worker.says("waiting for jobs")
        with _listening(tmp_path, script, url) as said:
            for task, arguments in (("resize", "[7]"), ("fails", "[]")):
                sent = run_here(tmp_path, "--url", url, "send", task, "--args", arguments, "--queue", "images")
                assert sent.code == 0, sent.err
            eventually(
                lambda: all(word in said.read_text() for word in words), f"{words} in what it says", within=PATIENCE
            )


def test_the_middleware_on_the_page_wraps_sending_and_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(ROOT / "docs" / "events.md", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    app = importlib.import_module("failing").app

    with Harness(app) as harness:
        divide = app.tasks["divide"]
        divide.send(2)
        failing = divide.send(0)
        harness.drain(raise_errors=False)

    assert [sent.headers for sent in harness.sent] == [{"release": "2027.1"}] * 2
    said = capsys.readouterr().out
    assert f"divide {failing.id}, attempt 1: ZeroDivisionError('division by zero')\n" in said
    assert said.count("divide took ") == 2
