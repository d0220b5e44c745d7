"""`taskmq demo` as a whole, and failures of its checks."""

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from taskmq.demo.measure import FileReport, measure, source_files, totals
from taskmq.demo.run import Findings, Outcome, checks, run_demo
from taskmq.demo.stored import StoredFindings
from taskmq.demo.tasks import is_busy
from taskmq.errors import TaskMQError
from taskmq.model.states import JobState
from taskmq.schedules.triggers import Trigger, instants_after
from tests.cli.kit import PATIENCE, Result, Started, run_here, run_process_on_terminal
from tests.servers import eventually

_ODD = {
    "no_python.py": b"def f(:\n    return\n",
    "latin.py": b'# -*- no coding -*-\nx = "\xe9\xff"\n',
    "empty.py": b"",
    "no_newline.py": b"x = 1",
    "null.py": b"x = 1\n\0\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write 30 Python files, some of them odd, at least two of them "busy", and some to be skipped."""
    root = tmp_path / "sources"
    (root / "package").mkdir(parents=True)
    for name, content in _ODD.items():
        (root / name).write_bytes(content)
    busy = number = 0
    while busy < 2 or number < 25:
        path = root / "package" / f"module_{number}.py"
        if number < 23 or is_busy(path.resolve()):
            busy += is_busy(path.resolve())
            path.write_text(f"def function_{number}(x: int) -> int:\n" + "    x += 1\n" * number + "    return x\n")
        number += 1
    for name in ("tests/test_it.py", "__pycache__/cached.py", "readme.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("this is left out\n")
    (root / "folder.py").mkdir()
    return root


def _demo(folder: Path, *tokens: str) -> Result:
    return run_here(folder.parent, "-o", "json", *tokens, "demo", str(folder))


def _expect_right(result: Result, folder: Path) -> None:
    assert result.code == 0, result.out + result.err
    files = source_files(folder)
    wanted = totals([measure(path) for path in files])
    assert result.data["totals"] == asdict(wanted)
    assert result.data["totals"]["bytes"] == sum(path.stat().st_size for path in files)
    assert [check["is_right"] for check in result.data["checks"]] == [True] * 8
    assert result.data["is_right"] is True
    assert result.data["largest"][0]["lines"] > 20


def test_the_demo_is_correct_on_the_embedded_broker_and_leaves_nothing(folder: Path) -> None:
    result = _demo(folder)

    _expect_right(result, folder)
    assert "Traceback" not in result.err
    assert sorted(path.name for path in folder.parent.iterdir()) == ["sources"]


@pytest.mark.nightly("tests/e2e/test_demo.py::test_the_demo_is_correct_on_the_embedded_broker_and_leaves_nothing")
def test_the_demo_prints_tables_on_a_terminal(folder: Path) -> None:
    result = run_process_on_terminal(folder.parent, "demo", str(folder), columns=120)

    lines = [line.rstrip() for line in result.out.splitlines()]
    assert result.code == 0
    assert ["bytes", "lines", "tokens", "seconds"] in [line.split()[-4:] for line in lines]
    assert sum(line.endswith(" right") for line in lines) == 8


@pytest.mark.nightly("tests/e2e/test_demo.py::test_the_demo_is_correct_on_the_embedded_broker_and_leaves_nothing")
def test_the_demo_prints_lines_for_programs(folder: Path) -> None:
    result = run_here(folder.parent, "demo", str(folder))

    lines = result.out.splitlines()
    assert (result.code, lines[0].split()) == (0, ["files", "bytes", "lines", "tokens", "seconds"])
    assert sum(line.endswith(" right") for line in lines) == 8
    count = len(source_files(folder))
    assert f"{count} of {count} files" in result.err
    assert "stopping" not in result.err


@pytest.mark.nightly("tests/e2e/test_demo.py::test_the_demo_is_correct_on_the_embedded_broker_and_leaves_nothing")
@pytest.mark.rabbitmq
def test_the_demo_is_correct_on_rabbitmq(folder: Path, amqp_url: str) -> None:
    _expect_right(_demo(folder, "--url", amqp_url), folder)


@pytest.mark.nightly("tests/e2e/test_demo.py::test_the_demo_is_correct_on_the_embedded_broker_and_leaves_nothing")
def test_the_demo_is_correct_if_its_beat_starts_last(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, late = tmp_path / "go", tmp_path / "late"
    os.mkfifo(go)
    late.write_text(
        f'#!/bin/sh\ncase " $* " in *" beat "*) read -r _ < {go} ;; esac\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    late.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(late))

    def instants(trigger: Trigger, now_ms: int) -> Iterator[int]:
        # One is due before beat starts, and is never emitted.
        threading.Timer(1.1, go.write_text, ["\n"]).start()
        return instants_after(trigger, now_ms)

    monkeypatch.setattr("taskmq.demo.run.instants_after", instants)

    outcome = run_demo(folder, url=None, advance=lambda done, of: None)

    assert [check.is_right for check in outcome.checks] == [True] * 8


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_a_folder_without_python_files_is_an_error_that_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "readme.txt").touch()

    result = _demo(tmp_path / name)

    assert (result.code, result.out) == (1, "")
    assert "no Python files" in result.err
    assert name in result.err


def test_a_demo_that_cannot_run_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(TaskMQError, match="no Python files"):
        run_demo(tmp_path, url=None, advance=lambda done, total: None)


def test_odd_files_are_measured_as_far_as_possible(folder: Path) -> None:
    found = {path.name: measure(path) for path in source_files(folder)}

    assert set(_ODD) <= set(found)
    assert "folder.py" not in found
    assert "test_it.py" not in found
    assert "cached.py" not in found
    assert (found["empty.py"].bytes, found["empty.py"].lines) == (0, 0)
    for name in ("no_python.py", "latin.py", "null.py"):
        assert found[name].largest == ()
        assert found[name].bytes == len(_ODD[name])


def test_totals_do_not_depend_on_the_order(folder: Path) -> None:
    reports = [measure(path) for path in source_files(folder)]

    assert totals(reversed(reports)) == totals(reports)
    assert totals(reports[1:]) != totals(reports)


# Checks


def _right(folder: Path) -> tuple[Findings, list[Path], list[FileReport]]:
    files = source_files(folder.resolve())
    expected = [measure(path) for path in files]
    busy = sum(map(is_busy, files))
    stored = StoredFindings(expected[:20], len(expected[:20]) + 2, JobState.SUCCEEDED, JobState.CANCELLED, again=True)
    return Findings(list(expected), totals(expected), busy, 0.1, [0.0, 0.1, 0.2], stored), files, expected


def _outcome(found: Findings, files: list[Path], expected: list[FileReport]) -> Outcome:
    return Outcome(found.summary, [], checks(found, files, expected), 1.0)


def test_an_outcome_is_correct_if_everything_equals_the_plain_loop(folder: Path) -> None:
    assert _outcome(*_right(folder)).is_right


def _store_findings(found: Findings, **changes: Any) -> Findings:
    return found._replace(stored=replace(found.stored, **changes))


_WRONG: dict[str, Callable[[Findings], Findings]] = {
    "a total of the bytes": lambda found: found._replace(
        summary=replace(found.summary, bytes=found.summary.bytes + 1)
    ),
    "a total of the lines": lambda found: found._replace(
        summary=replace(found.summary, lines=found.summary.lines - 1)
    ),
    "a total of the tokens": lambda found: found._replace(
        summary=replace(found.summary, tokens=found.summary.tokens + 1)
    ),
    "the number of files": lambda found: found._replace(summary=replace(found.summary, files=0)),
    "the digest": lambda found: found._replace(summary=replace(found.summary, digest="0" * 64)),
    "one report": lambda found: found._replace(reports=[replace(found.reports[0], tokens=-1), *found.reports[1:]]),
    "a missing report": lambda found: found._replace(reports=found.reports[1:]),
    "two reports in each other's place": lambda found: found._replace(
        reports=[found.reports[1], found.reports[0], *found.reports[2:]]
    ),
    "no retries": lambda found: found._replace(retried=0),
    "a retry too many": lambda found: found._replace(retried=found.retried + 1),
    "an early reminder": lambda found: found._replace(lateness=-0.001),
    "a reminder half a minute late": lambda found: found._replace(lateness=30.0),
    "a missing tick": lambda found: found._replace(ticks=found.ticks[1:]),
    "an early tick": lambda found: found._replace(ticks=[-0.001, *found.ticks[1:]]),
    "no tick at all": lambda found: found._replace(ticks=[]),
    "no job of the store": lambda found: _store_findings(found, reports=[], listed=2),
    "another report from the store": lambda found: _store_findings(found, reports=found.stored.reports[::-1]),
    "a job that is not listed": lambda found: _store_findings(found, listed=found.stored.listed - 1),
    "a job that still waits": lambda found: _store_findings(found, brought_forward=JobState.SCHEDULED),
    "a cancelled job that ran": lambda found: _store_findings(found, cancelled=JobState.SUCCEEDED),
    "a job that did not run again": lambda found: _store_findings(found, again=False),
}


@pytest.mark.parametrize("what", _WRONG)
def test_an_outcome_is_wrong_if_one_value_differs(folder: Path, what: str) -> None:
    found, files, expected = _right(folder)

    outcome = _outcome(_WRONG[what](found), files, expected)

    assert not outcome.is_right
    assert sum(not check.is_right for check in outcome.checks) == 1


@pytest.mark.nightly("tests/e2e/test_demo.py::test_the_demo_is_correct_on_the_embedded_broker_and_leaves_nothing")
def test_a_shop_is_served_with_a_day_of_history_until_it_is_stopped(tmp_path: Path) -> None:
    with Started(tmp_path, "demo", "--serve", "--port", "0", env={"TMPDIR": str(tmp_path)}) as demo:
        demo.says("taskmq server")
        (address,) = re.findall(r"at (http://[0-9.:]+)/", demo.said)

        def read(path: str, **query: str) -> Any:
            return httpx.get(f"{address}/api/v1/{path}", params=query).json()

        def has_run() -> bool:
            return bool(read("jobs/count", filter="status:succeeded ended:>-1m task:images.resize")["count"] > 0)

        failed = read("jobs", filter="status:failed ended:<-1h task:orders.charge", limit="200")
        day = read("metrics/query", metric="succeeded", since=_hours_ago(23), step="3600")["items"][0]["points"]
        alerts = read("alerts", states="firing")["items"]
        eventually(has_run, "a job that has run", within=PATIENCE, every=timedelta(seconds=1))

        # All kinds of errors, not only those of the bad release.
        assert {job["error"]["type"].rpartition(".")[2] for job in failed} > {"ProviderTimeoutError"}
        assert sum(point["value"] is not None for point in day) >= 23
        assert [(alert["rule"], alert["severity"]) for alert in alerts] == [("payments-fail", "critical")]
        assert httpx.get(f"{address}/ui/").status_code == 200
        assert demo.signal_and_wait(signal.SIGINT) in (0, 130)

    assert list(tmp_path.glob("taskmq-demo-*")) == []


def _hours_ago(hours: int) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
