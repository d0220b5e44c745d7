"""The examples of docs/celery.md, with Celery itself."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from taskmq.cli import run
from tests.cli.kit import Started, environment, exists, names_in
from tests.docs.blocks import ROOT, write_files
from tests.docs.serving import process
from tests.servers import eventually

_PAGE = ROOT / "docs" / "celery.md"
_PATIENCE = timedelta(seconds=30)
_CALLS = """\
from both import app, celery, close, new_resize, old_resize

print(old_resize.delay(7).get(timeout=30))
print(new_resize.delay(7).result(timeout=30))
print(celery.AsyncResult(close.delay("may").result(timeout=30)).get(timeout=30))
"""
_ASTRAY = """\
from kombu import Queue

from both import celery

celery.send_task("shop.resize", [7], queue=Queue("pictures", no_declare=True))
"""


@pytest.fixture
def env(amqp_url: str, redis_url: str) -> dict[str, str]:
    return {
        "TASKMQ_URL": amqp_url,
        "TASKMQ_STATE": redis_url,
        "CELERY_BROKER_URL": amqp_url,
        "CELERY_RESULT_BACKEND": redis_url,
    }


@contextmanager
def _celery_worker(folder: Path, target: str, queues: str, env: dict[str, str]) -> Iterator[None]:
    command = ("celery", "-A", target, "worker", "-Q", queues, "-c", "1", "-P", "solo", "-l", "INFO")
    with process(folder, *command, env=env) as log:
        eventually(lambda: " ready." in log.read_text(), "a Celery worker that is ready", within=_PATIENCE)
        yield


def _output_of(folder: Path, *command: str, env: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment(**env), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.nightly("tests/docs/test_readme.py::test_the_first_example_runs_on_rabbitmq_unchanged")
@pytest.mark.rabbitmq
@pytest.mark.slow
def test_a_task_has_the_same_meaning_before_and_after(tmp_path: Path, env: dict[str, str]) -> None:
    write_files(_PAGE, tmp_path)

    with _celery_worker(tmp_path, "before", "images", env):
        before = _output_of(tmp_path, "before.py", env=env)
    with Started(tmp_path, "worker", "after:app", env=env) as worker:
        worker.says("waiting for jobs")
        after = _output_of(tmp_path, "after.py", env=env)

    assert before == after == ["photo 7 at 128, attempt 1"]
    assert f"Both print `{after[0]}`" in _PAGE.read_text()


@pytest.mark.nightly("tests/docs/test_readme.py::test_the_first_example_runs_on_rabbitmq_unchanged")
@pytest.mark.rabbitmq
@pytest.mark.slow
def test_both_run_beside_each_other_and_call_each_other(tmp_path: Path, env: dict[str, str]) -> None:
    write_files(_PAGE, tmp_path)

    with (
        _celery_worker(tmp_path, "both:celery", "images,celery", env),
        Started(tmp_path, "worker", "both:app", env=env) as worker,
    ):
        worker.says("waiting for jobs")
        assert _output_of(tmp_path, "-c", _CALLS, env=env) == ["photo 7", "photo 7", "report of may"]
        _output_of(tmp_path, "old_caller.py", env=env)
        eventually(lambda: not names_in("pictures", url=env["TASKMQ_URL"]), "a queue without jobs", within=_PATIENCE)

    assert not exists("pictures.dlq", url=env["TASKMQ_URL"]), "no job has died"
    assert names_in("taskmq.parking", url=env["TASKMQ_URL"]) == []


@pytest.mark.nightly("tests/e2e/test_foreign_clients.py::test_an_invalid_body_is_parked_unchanged_with_the_reason")
@pytest.mark.rabbitmq
def test_a_message_from_celery_is_parked(tmp_path: Path, env: dict[str, str]) -> None:
    write_files(_PAGE, tmp_path)

    with Started(tmp_path, "worker", "both:app", env=env) as worker:
        worker.says("waiting for jobs")
        _output_of(tmp_path, "-c", _ASTRAY, env=env)
        eventually(lambda: names_in("taskmq.parking", url=env["TASKMQ_URL"]), "a parked message", within=_PATIENCE)

    assert len(names_in("taskmq.parking", url=env["TASKMQ_URL"])) == 1


def test_the_worker_flags_on_the_page_exist(capsys: pytest.CaptureFixture[str]) -> None:
    run(["worker", "--help"])
    shown = capsys.readouterr().out
    rows = re.findall(r"^\| [^|]*\| ([^|]*)\|", _PAGE.read_text().partition("### Workers")[2], re.MULTILINE)

    flags = {flag for row in rows for flag in re.findall(r"`[^`]*?(--[a-z-]+)", row)}

    assert flags >= {"--max-jobs", "--processes"}
    for flag in flags:
        assert f"{flag} " in shown, flag
