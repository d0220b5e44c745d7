"""The behaviour in an outage described by docs/state.md."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.kit import Started
from tests.servers import Redis, eventually

_PATIENCE = timedelta(seconds=40)
_SLOTS = 2
_NOT_STORED = re.compile(r"job (\S+): storing its result failed")
_JOBS = """\
from pathlib import Path

from taskmq import TaskMQ

app = TaskMQ("local://jobs")


@app.task(result=False)
def plain(number: int) -> None:
    Path(f"plain-{number}").touch()


@app.task
def kept(number: int) -> None:
    Path(f"kept-{number}").touch()
"""


@pytest.mark.slow
def test_while_the_state_is_down_only_jobs_with_results_hold_their_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outage.py").write_text(_JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def files(pattern: str) -> int:
        return len(list(tmp_path.glob(pattern)))

    with Redis() as redis:
        env = {"TASKMQ_STATE": redis.url}
        monkeypatch.setenv("TASKMQ_STATE", redis.url)
        import outage  # type: ignore[import-not-found]  # the test has written it

        with outage.app, Started(tmp_path, "worker", "outage:app", "-c", str(_SLOTS), env=env) as worker:
            worker.says("waiting for jobs")
            redis.kill()
            for number in range(20):
                outage.plain.send(number)
            eventually(lambda: files("plain-*") == 20, "all without results", within=_PATIENCE)
            for number in range(10):
                outage.kept.send(number)
            eventually(lambda: len(set(_NOT_STORED.findall(worker.said))) == _SLOTS, "full slots", within=_PATIENCE)
            assert files("kept-*") == _SLOTS

            redis.restart()
            eventually(lambda: files("kept-*") == 10, "all others", within=_PATIENCE)
