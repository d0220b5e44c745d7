"""docs/first-hour.md, done as written, except for apt, pip and systemd."""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from tests.cli.kit import Result, Started, environment, run_here
from tests.docs.blocks import ROOT, Block, blocks_of, write_files
from tests.docs.page_shell import PYTEST
from tests.servers import RabbitMQ, Redis, eventually
from tests.servers.ports import PortLease

_PAGE = ROOT / "docs" / "first-hour.md"
_PATIENCE = timedelta(seconds=40)
_SECOND = timedelta(seconds=1)
_USER, _VHOST = "shop", "shop"
# Commands of root, of the environment, and those already done by the test.
_NOT_RUN = ("sudo ", "python3 -m venv", "venv/bin/pip", ". venv", "export ")


def _commands() -> list[str]:
    return [command for block in blocks_of(_PAGE) if block.language == "console" for command in block.commands]


def _units() -> dict[str, str]:
    """Return the command of each unit, by the name of the unit."""
    found = [block.text for block in blocks_of(_PAGE) if block.language == "ini"]
    names = re.compile(r"# /etc/systemd/system/taskmq-(\w+)@\.service")
    return {name[1]: _started_by(text) for text in found if (name := names.match(text))}


def _started_by(unit: str) -> str:
    (command,) = re.findall(r"^ExecStart=/srv/shop/venv/bin/taskmq (.*)$", unit, re.MULTILINE)
    return str(command)


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Start Redis, configured as on the page."""
    (conf,) = [block.text for block in blocks_of(_PAGE) if block.text.startswith("appendonly")]
    words = [shlex.split(line) for line in conf.splitlines()]
    assert words[0] == ["appendonly", "yes"]
    with Redis(options=[each for key, *values in words[1:] for each in (f"--{key}", *values)]) as server:
        yield server


@pytest.fixture
def settings(rabbitmq_server: RabbitMQ, redis: Redis) -> Iterator[dict[str, str]]:
    """Return the variables on the page, for prepared servers."""
    exported = dict(command.removeprefix("export ").split("=", 1) for command in _commands() if "export" in command)
    for command in _commands():
        if command.startswith("sudo rabbitmqctl "):
            rabbitmq_server.ctl(*shlex.split(command)[2:])
    broker, state = urlsplit(rabbitmq_server.url), urlsplit(redis.url)
    try:
        yield {
            "TASKMQ_URL": exported["TASKMQ_URL"].replace("@localhost", f"@{broker.hostname}:{broker.port}"),
            "TASKMQ_STATE": exported["TASKMQ_STATE"].replace("localhost", f"{state.hostname}:{state.port}"),
        }
    finally:
        rabbitmq_server.ctl("delete_vhost", _VHOST)
        rabbitmq_server.ctl("delete_user", _USER)


class _Terminal:
    """Runs the commands on the page in order."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = env
        self._left = list(_commands())

    def up_to(self, last: str) -> dict[str, str]:
        """Run the next commands up to one; return their outputs. The test does the steps of root."""
        said: dict[str, str] = {}
        while self._left:
            command = self._left.pop(0)
            if not (command.startswith(_NOT_RUN) or command.endswith(" &")):
                said[command] = self._run(command)
            if command == last:
                return said
        raise AssertionError(f"no command {last!r}")

    def use_ports(self, ports: Sequence[int]) -> None:
        """Replace the ports on the page by those of the test."""
        for number, port in enumerate(ports, 1):
            self._left = [command.replace(f"--port 946{number}", f"--port {port}") for command in self._left]

    def _run(self, command: str) -> str:
        program, *words = shlex.split(command)
        if program == "taskmq":
            done = run_here(self._folder, *words, env=self._env)
        else:
            more = PYTEST if program == "pytest" else ()
            assert program in {"pytest", "python"}
            ended = subprocess.run(
                [sys.executable, *more, *words],
                cwd=self._folder,
                env=environment(**self._env),
                capture_output=True,
                text=True,
                timeout=60,
            )
            done = Result(ended.returncode, ended.stdout, ended.stderr)
        assert done.code == 0, f"{command}\n{done.out}{done.err}"
        return done.out


def _output_of(command: str) -> str:
    """Return the output of a command on the page."""
    (block,) = [block for block in blocks_of(_PAGE) if command in block.commands]
    _, _, after = block.text.partition(f"$ {command}\n")
    return after.partition("$ ")[0]


def _toml() -> Block:
    (block,) = [block for block in blocks_of(_PAGE) if block.language == "toml"]
    return block


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert write_files(_PAGE, tmp_path) == {"shop.py", "place_order.py", "test_shop.py"}
    (tmp_path / "taskmq.toml").write_text(_toml().text)
    return tmp_path


def _mend_source(source: str) -> str:
    (diff,) = [block.text for block in blocks_of(_PAGE) if block.language == "diff"]
    gone = "".join(f"{line.removeprefix('-')}\n" for line in diff.splitlines())
    assert gone in source
    return source.replace(gone, "")


@pytest.mark.nightly("tests/docs/test_readme.py::test_the_first_example_runs_on_rabbitmq_unchanged")
@pytest.mark.rabbitmq
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_first_hour_page_works_as_written(folder: Path, settings: dict[str, str]) -> None:
    with PortLease(2) as lease, ExitStack() as services:
        env = settings | {"TASKMQ_HEALTH_PORT": ""}
        terminal = _Terminal(folder, env)
        with Started(folder, "worker", env=env) as worker, Started(folder, "beat", env=env):
            worker.says("waiting for jobs")
            place_order, look_ahead = "python place_order.py", "taskmq schedule next shop.report"
            said = terminal.up_to("pytest -q test_shop.py")
            assert said[place_order] == _output_of(place_order)
            (printed,) = [text for command, text in said.items() if command.startswith(look_ahead)]
            (shown,) = [block for block in blocks_of(_PAGE) if look_ahead in block.text]
            assert printed == shown.output
            assert '"result": "order 8 is confirmed"' in said["taskmq send shop.confirm --args '[8]' --wait -o json"]
            assert "2 passed" in said["pytest -q test_shop.py"]

        workers = [
            services.enter_context(
                Started(folder, *shlex.split(_units()["worker"].replace("946%i", str(port))), env=env)
            )
            for port in lease.ports
        ]
        beats = [services.enter_context(Started(folder, *shlex.split(_units()["beat"]), env=env)) for _ in range(2)]
        for service in workers:
            service.says("waiting for jobs")
        eventually(
            lambda: len(_rows(folder, env, "workers")) == 4,
            "two processes of each worker",
            within=_PATIENCE,
            every=_SECOND,
        )
        terminal.use_ports(lease.ports)
        terminal.up_to("taskmq send shop.confirm --args '[-1]'")
        eventually(
            lambda: _rows(folder, env, "dlq", "list", "orders"), "a dead letter", within=_PATIENCE, every=_SECOND
        )
        said = terminal.up_to("taskmq dlq list orders")
        assert said["taskmq dlq list orders"].count("there is no order -1") == 1

        (folder / "shop.py").write_text(_mend_source((folder / "shop.py").read_text()))
        for service in workers:
            service.process.send_signal(signal.SIGHUP)
        for service in workers:
            service.says("all processes were replaced")
        for number in range(2):
            beats[number].process.send_signal(signal.SIGTERM)
            assert beats[number].process.wait(40) == 0
            beats[number] = services.enter_context(Started(folder, *shlex.split(_units()["beat"]), env=env))
        said = terminal.up_to("taskmq dlq list orders")
        assert "order -1" not in said["taskmq dlq list orders"]
        eventually(lambda: not _waiting(folder, env), "queues without jobs", within=_PATIENCE, every=_SECOND)


def _rows(folder: Path, env: dict[str, str], *command: str) -> list[dict[str, Any]]:
    done = run_here(folder, "-o", "json", *command, env=env)
    assert done.code == 0, done.err
    return cast("list[dict[str, Any]]", done.data)


def _waiting(folder: Path, env: dict[str, str]) -> int:
    return sum(row["ready"] for row in _rows(folder, env, "queue", "list") if row["queue"].startswith("orders"))
