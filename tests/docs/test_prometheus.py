"""The rules and dashboards of contrib/deploy at a real Prometheus that scrapes a worker, a scheduler and a server."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.cli.kit import Started
from tests.docs.test_deploy_files import DEPLOY
from tests.servers import ServerUnavailable, eventually
from tests.servers.ports import PortLease
from tests.servers.process import Command, Keeper, LocalProcess

pytestmark = [pytest.mark.campaign, pytest.mark.rabbitmq, pytest.mark.timeout(300)]

_PATIENCE: Final = timedelta(seconds=120)
_RULES: Final = DEPLOY / "prometheus" / "taskmq.rules.yml"
_SHOP: Final = """\
from taskmq import TaskMQ

app = TaskMQ()


@app.every("1s", name="tick")
@app.task(name="report", queue="work")
def report() -> None: ...


@app.task(name="idle", queue="idle")
def idle() -> None: ...


@app.task(name="fails", queue="work", retry=None)
def fails() -> None:
    raise ValueError("on purpose")
"""
# Metrics that need a failure which does not happen here: ended worker processes, beats.
_QUIET: Final = re.compile(r"taskmq_worker_process_ends|taskmq_beat_")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServerUnavailable(f"no {name} here: run as root: .venv/bin/python -m tests.servers install prometheus")
    return found


def _check_with_promtool(*words: str | Path) -> None:
    done = subprocess.run([_program("promtool"), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid_for_prometheus() -> None:
    _check_with_promtool("check", "rules", _RULES)


def test_an_alert_fires_when_all_schedulers_are_gone(tmp_path: Path) -> None:
    told = {"exp_labels": {"severity": "critical"}, "exp_annotations": {"summary": _summary("TaskmqPartitionsFree")}}
    cases = [([], [told]), (["8x10"], []), (["3x10"], [told])]
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": "taskmq_scheduler_partitions", "values": value} for value in values],
            "alert_rule_test": [{"eval_time": "5m", "alertname": "TaskmqPartitionsFree", "exp_alerts": expected}],
        }
        for values, expected in cases
    ]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": [str(_RULES)], "tests": tests}))

    _check_with_promtool("test", "rules", tmp_path / "tests.yml")


def _summary(alert: str) -> str:
    (group,) = yaml.safe_load(_RULES.read_text())["groups"]
    (found,) = [rule["annotations"]["summary"] for rule in group["rules"] if rule.get("alert") == alert]
    return str(found)


@pytest.fixture
def prometheus(tmp_path: Path, amqp_url: str, job_store_url: str) -> Iterator[httpx.Client]:
    """Start a Prometheus that scrapes each process each second, while jobs run, fail and are fired; yield its API."""
    (tmp_path / "shop.py").write_text(_SHOP)
    environment = {"TASKMQ_URL": amqp_url, "TASKMQ_STORE": job_store_url, "TASKMQ_APP": "shop:app"}
    with ExitStack() as stack:
        ports = stack.enter_context(PortLease(3)).ports
        options: dict[str, list[str]] = {"worker": ["-Q", "work"], "scheduler": [], "server": ["--port", "0"]}
        for port, (name, more) in zip(ports, options.items(), strict=True):
            started = Started(tmp_path, name, "--health-port", str(port), *more, env=environment)
            stack.enter_context(started).says("health at")
            if name == "server":
                started.says("at http://")
                (address,) = re.findall(r"at (http://[0-9.:]+)", started.said)
                assert httpx.get(f"{address}/api/v1/health/live", timeout=30).status_code == 200
        # One that fails, and one in flight without a worker.
        for call in (["send", "fails"], ["job", "submit", "idle"]):
            assert stack.enter_context(Started(tmp_path, *call, env=environment)).process.wait(60) == 0
        lease = PortLease(1)
        (own,) = lease.ports
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(_RULES)],
            "scrape_configs": [
                {"job_name": "taskmq", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
            ],
        }
        keeper = Keeper("prometheus")
        (keeper.directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        told = {
            "config.file": keeper.directory / "prometheus.yml",
            "storage.tsdb.path": keeper.directory / "data",
            "web.listen-address": f"127.0.0.1:{own}",
        }
        command = Command((_program("prometheus"), *(f"--{name}={value}" for name, value in told.items())))
        server = LocalProcess(keeper, command, lease=lease)
        stack.callback(server.close)
        server.start()
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{own}/api/v1", timeout=30))
        eventually(lambda: _is_ready(client), "Prometheus has opened its data", within=_PATIENCE)
        eventually(lambda: len(_up(client)) == len(ports), "all processes scraped", within=_PATIENCE)
        # Prometheus sees no growth in a counter that starts at 1.
        assert stack.enter_context(Started(tmp_path, "send", "fails", env=environment)).process.wait(60) == 0
        yield client


def _query_api(client: httpx.Client, path: str, **query: str) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def _is_ready(client: httpx.Client) -> bool:
    """Whether Prometheus answers queries: it listens before it has opened its data, and answers 503 until then."""
    try:
        return client.get(client.base_url.join("/-/ready")).status_code == 200
    except httpx.TransportError:
        return False


def _up(client: httpx.Client) -> list[Any]:
    found: list[Any] = _query_api(client, "/query", query="up == 1")["result"]
    return found


def _boards() -> Iterator[tuple[str, str]]:
    for board in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")):
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{board.stem}: {panel['title']}", target["expr"].replace("$__rate_interval", "1m")


def test_each_expression_of_rules_and_dashboards_has_an_answer(prometheus: httpx.Client) -> None:
    expressions = dict(_boards())
    assert len(expressions) > 10

    def empty() -> list[str]:
        return [
            where
            for where, expression in _boards()
            if _QUIET.search(expression) is None and not _query_api(prometheus, "/query", query=expression)["result"]
        ]

    try:
        eventually(lambda: not empty(), "every panel with figures", within=_PATIENCE)
    except TimeoutError as error:
        raise AssertionError(f"without figures: {empty()}") from error

    rules = [rule for group in _query_api(prometheus, "/rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 10
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    failing = 'taskmq:failure_rate:5m{task="fails"} == 1'
    eventually(lambda: _query_api(prometheus, "/query", query=failing)["result"], "a failing task", within=_PATIENCE)
