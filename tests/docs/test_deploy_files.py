"""The files of contrib/deploy are valid, and their metrics and commands exist."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
import yaml

from taskmq.cli.exits import exit_code
from taskmq.errors import StoreMismatch, StoreWentBack
from taskmq.model.telemetry.metrics import (
    BeatSnapshot,
    Count,
    Histogram,
    ProcessGauges,
    RequestCount,
    ScheduleCount,
    SchedulerSnapshot,
    ServerSnapshot,
    Snapshot,
)
from taskmq_prometheus import open_exporter
from tests.cli.kit import Here
from tests.docs.blocks import ROOT

DEPLOY: Final = ROOT / "contrib" / "deploy"
_BOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
_UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
_YAML = sorted(DEPLOY.rglob("*.yml"))
_METRIC = re.compile(r"\btaskmq_[a-z_]+")

_BOARD: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "title": {"type": "string", "minLength": 1},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["id", "type", "title", "gridPos", "targets", "datasource", "fieldConfig"],
                "properties": {
                    "id": {"type": "integer"},
                    "type": {"enum": ["timeseries", "stat", "table"]},
                    "gridPos": {
                        "type": "object",
                        "required": ["h", "w", "x", "y"],
                        "properties": {
                            "w": {"type": "integer", "minimum": 1, "maximum": 24},
                            "x": {"type": "integer", "minimum": 0, "maximum": 23},
                        },
                    },
                    "targets": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["refId", "expr", "legendFormat"],
                            "properties": {"expr": {"type": "string", "minLength": 1}},
                        },
                    },
                },
            },
        },
    },
}


def _emitted_series() -> set[str]:
    """Return the names of all series in a scrape of every kind of process."""
    histogram = Histogram()
    histogram.add(0.1)
    schedules = [ScheduleCount("t", {"due": 1}, 1, histogram)]
    gauges = ProcessGauges(0, "running", 1, 0, 0, 0, 0, 1, 1, 0.0, 0.0)
    snapshots = (
        Snapshot("1", [Count("t", "q", {"succeeded": 1}, histogram, histogram)], [gauges], 1, {"exit": 1}, {"q": 1}),
        BeatSnapshot("1", schedules, 1, 0.0),
        SchedulerSnapshot("1", 8, {"q": 1}, 1, 1, 1, {"accepted": 1}, 0.0, schedules, 0, {"q": {"store": 1}}),
        ServerSnapshot("1", [RequestCount("op", {"200": 1}, histogram)], 1),
    )
    found: set[str] = set()
    for snapshot in snapshots:
        page = open_exporter(lambda snapshot=snapshot: snapshot)("text/plain")  # type: ignore[misc]
        found |= {
            re.split(r"[{ ]", line, maxsplit=1)[0]
            for line in page.body.decode().splitlines()
            if line and not line.startswith("#")
        }
    return found


def _expressions() -> Iterator[tuple[str, str]]:
    """Return each expression of rules and dashboards with its location."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "taskmq.rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]
    for board in _BOARDS:
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{board.stem}: {panel['title']}", target["expr"]


def test_a_scheduler_that_refuses_its_store_is_not_restarted() -> None:
    units = {path.stem: path.read_text() for path in _UNITS}

    assert f"RestartPreventExitStatus={exit_code(StoreWentBack('it went back'))}\n" in units["taskmq-scheduler"]


def test_a_scheduler_started_before_the_tables_exist_is_restarted() -> None:
    unit = (DEPLOY / "systemd" / "taskmq-scheduler.service").read_text()
    (prevented,) = re.findall(r"^RestartPreventExitStatus=(.+)$", unit, re.MULTILINE)

    assert "Restart=always\n" in unit
    assert str(exit_code(StoreMismatch("it has no tables yet"))) not in prevented.split()


def test_every_metric_of_rules_and_dashboards_exists() -> None:
    emitted = _emitted_series()
    named = {(where, name) for where, text in _expressions() for name in _METRIC.findall(text)}

    assert len(named) > 30
    assert [(where, name) for where, name in sorted(named) if name not in emitted] == []


@pytest.mark.parametrize("board", _BOARDS, ids=lambda path: path.stem)
def test_grafana_can_load_every_dashboard(board: Path) -> None:
    content = json.loads(board.read_text())

    jsonschema_rs.validate(_BOARD, content)
    ids = [panel["id"] for panel in content["panels"]]
    assert len(ids) == len(set(ids))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in content["panels"]]
    assert len(places) == len(set(places))
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in content["panels"])
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in content["panels"])


def test_every_prometheus_rule_has_a_severity_and_a_description() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "taskmq.rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]

    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 10
    for rule in alerts:
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
    for where, text in _expressions():
        assert text.count("(") == text.count(")"), where
        assert text.count("{") == text.count("}"), where


def _commands() -> Iterator[list[str]]:
    """Return each command line of taskmq in the files, without `taskmq`."""
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    for service in compose["services"].values():
        if "build" in service and "entrypoint" not in service:
            yield [str(word) for word in service["command"]]
    for part in yaml.safe_load_all((DEPLOY / "kubernetes" / "taskmq.yml").read_text()):
        pod = part.get("spec", {}).get("template")
        if pod is not None:
            for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
                if "command" not in container:
                    yield [str(word) for word in container["args"]]
    for unit in _UNITS:
        (line,) = re.findall(r"^ExecStart=\S+/taskmq (.+)$", unit.read_text(), re.MULTILINE)
        yield shlex.split(line)


def test_every_command_in_the_deploy_files_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each is run with a missing app: the error must be about the app, and not about options."""
    monkeypatch.chdir(tmp_path)
    taskmq = Here(capfd)
    seen = {tuple(command) for command in _commands()}

    assert {command[0] for command in seen} == {"worker", "scheduler", "server", "beat", "store"}
    for command in sorted(seen):
        done = taskmq(*command, "--app", "nowhere:app")
        assert "nowhere" in done.err, (command, done.err)


def test_the_image_is_built_in_a_copy_of_the_files(tmp_path: Path) -> None:
    copy = shutil.copytree(DEPLOY, tmp_path / "deploy")
    build = yaml.safe_load((copy / "compose.yml").read_text())["x-taskmq"]["build"]
    dockerfile = copy / build["context"] / build["dockerfile"]

    copied = re.findall(r"^COPY (deploy/\S+)", dockerfile.read_text(), re.MULTILINE)

    assert copied == ["deploy/requirements.txt"]
    assert all((tmp_path / path).exists() for path in copied)


@pytest.mark.parametrize("file", _YAML, ids=lambda path: path.name)
def test_a_yaml_file_can_be_parsed(file: Path) -> None:
    assert all(isinstance(part, dict) for part in yaml.safe_load_all(file.read_text()))


def test_autoscaling_and_permissions_refer_to_deployed_objects() -> None:
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "taskmq.yml").read_text()))
    names = {part["metadata"]["name"] for part in parts if part["kind"] == "Deployment"}
    _, scaled = yaml.safe_load_all((DEPLOY / "kubernetes" / "keda.yml").read_text())

    assert scaled["spec"]["scaleTargetRef"]["name"] in names
    for part in parts:
        if part["kind"] == "Deployment":
            (container,) = part["spec"]["template"]["spec"]["containers"]
            assert container["securityContext"]["runAsNonRoot"]
            assert part["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 30
            ports = {port["name"] for port in container["ports"]}
            assert container["livenessProbe"]["httpGet"]["port"] in ports
            assert part["spec"]["selector"]["matchLabels"] == part["spec"]["template"]["metadata"]["labels"]


def test_kubernetes_jobs_do_not_block_the_next_version() -> None:
    """The spec of an existing job cannot be changed: it expires by itself, and the page deletes it before."""
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "taskmq.yml").read_text()))
    jobs = {part["metadata"]["name"]: part["spec"] for part in parts if part["kind"] == "Job"}
    page = (ROOT / "docs" / "deploy.md").read_text()

    assert jobs.keys() == {"taskmq-accounts", "taskmq-upgrade"}
    assert all(0 < spec["ttlSecondsAfterFinished"] <= 3_600 for spec in jobs.values())
    versions = page[page.index("## A new version") : page.index("## Prometheus")]
    deleted, applied = (versions.index(text) for text in ("kubectl delete job", "kubectl apply"))
    assert deleted < applied
    assert all(name in versions[deleted:applied] for name in jobs)
    assert "--ignore-not-found" in versions[deleted:applied]


def test_the_number_of_workers_is_left_to_the_autoscaler() -> None:
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "taskmq.yml").read_text()))
    _, scaled = yaml.safe_load_all((DEPLOY / "kubernetes" / "keda.yml").read_text())
    replicas = {
        part["metadata"]["name"]: part["spec"].get("replicas") for part in parts if part["kind"] == "Deployment"
    }

    assert replicas == {"taskmq-worker": None, "taskmq-scheduler": 2, "taskmq-server": 2}
    assert scaled["spec"]["scaleTargetRef"]["name"] == "taskmq-worker"


def test_every_server_of_the_files_drains_within_its_time_to_stop() -> None:
    drains = {
        " ".join(command): float(command[command.index("--drain") + 1])
        for command in _commands()
        if command[0] == "server"
    }
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]["server"]
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "taskmq.yml").read_text()))
    (pod,) = [
        one["spec"]["template"]["spec"]
        for one in parts
        if one["metadata"]["name"] == "taskmq-server" and one["kind"] == "Deployment"
    ]
    unit = (DEPLOY / "systemd" / "taskmq-server.service").read_text()
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)

    assert set(drains.values()) == {10.0}
    assert int(compose["stop_grace_period"].removesuffix("s")) >= 20
    assert pod["terminationGracePeriodSeconds"] >= 20
    assert int(stop) >= 20


def test_every_scheduler_of_the_files_has_time_to_stop_without_answers() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]["scheduler"]
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "taskmq.yml").read_text()))
    (pod,) = [
        one["spec"]["template"]["spec"]
        for one in parts
        if one["metadata"]["name"] == "taskmq-scheduler" and one["kind"] == "Deployment"
    ]
    unit = (DEPLOY / "systemd" / "taskmq-scheduler.service").read_text()
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)

    assert int(compose["stop_grace_period"].removesuffix("s")) >= 45
    assert pod["terminationGracePeriodSeconds"] >= 45
    assert int(stop) >= 45


def test_every_server_of_the_files_names_the_proxies_that_it_trusts() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    pods = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "taskmq.yml").read_text()))
    (server,) = [one for one in pods if one["metadata"]["name"] == "taskmq-server" and one["kind"] == "Deployment"]
    (container,) = server["spec"]["template"]["spec"]["containers"]
    unit = (DEPLOY / "systemd" / "taskmq-server.service").read_text()

    assert "TASKMQ_URL" in compose["services"]["server"]["environment"]
    assert "FORWARDED_ALLOW_IPS" in compose["services"]["server"]["environment"]
    assert "FORWARDED_ALLOW_IPS" in {one["name"] for one in container["env"]}
    assert "Environment=FORWARDED_ALLOW_IPS=127.0.0.1\n" in unit
    assert "*" not in compose["services"]["server"]["environment"]["FORWARDED_ALLOW_IPS"]


def test_a_systemd_server_may_open_many_connections() -> None:
    assert "LimitNOFILE=65536\n" in (DEPLOY / "systemd" / "taskmq-server.service").read_text()
