"""The pages about logs, figures and alerts: their files work, and their tables match the code."""

import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from taskmq.cli.exits import OK
from taskmq.cli.history.rule_file import read_rules
from taskmq.model.history.alerts import METRICS, check_rule
from taskmq.model.history.channels import Kind, parse_channel
from tests.cli.kit import PATIENCE, Started, run_here
from tests.docs.blocks import ROOT, blocks_of, write_files
from tests.servers import eventually

_HISTORY, _ALERTS = (ROOT / "docs" / f"{name}.md" for name in ("history", "alerts"))


@pytest.mark.nightly("tests/docs/test_history_pages.py::test_the_rules_on_the_page_are_valid")
@pytest.mark.timeout(300)
def test_a_job_is_charged_logged_counted_and_reported_as_the_pages_say(tmp_path: Path) -> None:
    write_files(_HISTORY, tmp_path)
    (tmp_path / "alerts.toml").write_text(_rules())
    expected = [
        line.partition(" ")[2]
        for block in blocks_of(_HISTORY)
        for line in block.output.splitlines()
        if re.match(r"\S+Z [A-Z]+ ", line)
    ]

    def taskmq(*words: str) -> str:
        done = run_here(tmp_path, *words, "--app", "shop:app")
        assert done.code == OK, done.err
        return done.out

    with Started(tmp_path, "scheduler", "shop:app") as scheduler:
        scheduler.says("taskmq scheduler")
        with Started(tmp_path, "worker", "shop:app", "--capture-logs", "info", "--events", "on") as worker:
            worker.says("waiting for jobs")
            taskmq("job", "submit", "charge", "--args", "[13]", "--job-id", "order-13")

            followed = taskmq("job", "logs", "order-13", "--follow")

            assert [line.partition(" ")[2] for line in followed.splitlines()] == expected
            assert taskmq("job", "logs", "order-13", "--level", "error").count("\n") == 1
            second = timedelta(seconds=1)
            eventually(lambda: "charge" in taskmq("stats"), "the run is counted", within=PATIENCE, every=second)
        taskmq("alert", "apply", "alerts.toml")
        assert "charges-fail" in taskmq("alert", "rules")
        taskmq("alert", "test", "charges-fail")
        assert "mailto:ops@example.com" in taskmq("alert", "notices")
        silence = taskmq("alert", "silence", "2h", "--rule", "charges-*").split()[1]
        assert silence in taskmq("alert", "silences")
        taskmq("alert", "unsilence", silence)
        taskmq("alert", "apply", "alerts.toml", "--prune")
        taskmq("alert", "remove", "no-workers", "--yes")
        assert "no-workers" not in taskmq("alert", "rules")


def _rules() -> str:
    return _tables()[0]


def _tables() -> list[str]:
    return [block.text for block in blocks_of(_ALERTS) if block.language == "toml"]


def test_the_rules_on_the_page_are_valid() -> None:
    rules = read_rules(tomllib.loads(_rules())["rule"])

    assert [rule.name for rule in rules] == ["charges-fail", "no-workers"]
    for rule in rules:
        check_rule(rule)


def test_the_channels_on_the_page_are_valid_and_complete() -> None:
    kinds = {parse_channel(channel).kind for text in _tables() for channel in tomllib.loads(text)["channels"]}

    named = {
        kind for kind in get_args(Kind) if kind in {"mail", "webhook"} or f"| `{kind}+https://" in _ALERTS.read_text()
    }
    assert named == set(get_args(Kind))
    assert kinds >= named - {"alertmanager"}


def test_the_page_of_alerts_lists_every_metric_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", _ALERTS.read_text(), re.MULTILINE)

    assert dict(rows) == dict(METRICS)
