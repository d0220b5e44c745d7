"""`taskmq probe`: exit codes, at almost no cost."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq.probe import main

HEAVY = (
    "typing",
    "asyncio",
    "cyclopts",
    "rich",
    "msgspec",
    "logging",
    "taskmq.cli",
    "taskmq.errors",
    "socket",
    "json",
)


class Server:
    """Gives every request the same answer."""

    def __init__(self, answer: bytes, address: tuple[str, int] | str) -> None:
        self.requests: list[bytes] = []
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self._socket.bind(address)
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self.requests.append(connection.recv(1000))
                connection.sendall(self._answer)


@pytest.fixture
def yes() -> Iterator[Server]:
    server = Server(b"HTTP/1.1 200 OK\r\n\r\n{}", ("127.0.0.1", 0))
    yield server
    server.close()


@pytest.fixture
def no() -> Iterator[Server]:
    server = Server(b'HTTP/1.1 503 Service Unavailable\r\n\r\n{"reason":"stopping"}\n', ("127.0.0.1", 0))
    yield server
    server.close()


def test_a_positive_answer_is_exit_code_zero(yes: Server) -> None:
    assert main(["ready", "--port", str(yes.port)]) == 0
    assert main([f"--port=127.0.0.1:{yes.port}", "live"]) == 0
    assert [request.split()[1] for request in yes.requests] == [b"/ready", b"/live"]


def test_a_negative_answer_is_exit_code_one_with_the_reason(no: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ready", "--port", str(no.port)]) == 1
    assert capsys.readouterr().err == 'taskmq probe: not ready: {"reason":"stopping"}\n'


def test_an_unreachable_server_is_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["live", "--socket", "/nowhere/health"]) == 1
    assert "/nowhere/health does not answer" in capsys.readouterr().err


def test_a_slow_answer_is_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert main(["live", "--port", str(silent.getsockname()[1]), "--timeout", "0.1"]) == 1
    assert "does not answer" in capsys.readouterr().err


def test_a_socket_can_be_probed_too() -> None:
    path = Path(tempfile.gettempdir(), f"taskmq-probe-{os.getpid()}")
    server = Server(b"HTTP/1.1 200 OK\r\n\r\n{}", str(path))
    try:
        assert main(["live", "--socket", str(path)]) == 0
    finally:
        server.close()
        path.unlink()


def test_the_environment_may_set_the_port(yes: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_HEALTH_PORT", str(yes.port))

    assert main(["ready"]) == 0


@pytest.mark.parametrize(
    "tokens",
    [[], ["ready"], ["alive", "--port", "1"], ["ready", "--port"], ["ready", "--port", "1", "--timeout", "x"]],
)
def test_wrong_usage_is_exit_code_two(tokens: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tokens) == 2
    assert "Usage: taskmq probe" in capsys.readouterr().err


def test_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: taskmq probe")


def test_a_probe_imports_nothing_of_the_other_commands(yes: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "taskmq", "probe", "ready", "--port", str(yes.port)],
        capture_output=True,
        text=True,
        timeout=30,
        # Coverage is loaded into every process, and imports a lot.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")},
    )

    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "taskmq.probe" in imported
    assert not imported.intersection(HEAVY)


def test_global_options_may_precede_the_probe(yes: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "taskmq", "--quiet", "probe", "ready", "--port", str(yes.port)], timeout=30
    )

    assert done.returncode == 0
