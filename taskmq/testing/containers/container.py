"""A server in a container, with ports that stay the same across restarts."""

import contextlib
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from taskmq.errors import UnsupportedFeature

_UNIX: Final = "unix://"
_USUAL_ADDRESS: Final = "npipe:////./pipe/docker_engine" if sys.platform == "win32" else "unix:///var/run/docker.sock"
_LOOKS_EVERY: Final = 0.1
_STARTS_WITHIN: Final = timedelta(seconds=120)
_STOPS_WITHIN: Final = timedelta(seconds=30)
_LOG_LINES: Final = 50


def engine_answers() -> bool:
    """Whether testcontainers is installed and a container engine answers it."""
    try:
        _engine()
    except UnsupportedFeature:
        return False
    return True


class Container(ABC):
    """A server in a container; a context manager that starts it and removes it.

    Ports and data survive `stop`, `kill` and `start`, so a test can take a server away from its clients and give it
    back. Ports are published on 127.0.0.1; if the engine runs on another machine or the tests run in a container, as
    testcontainers finds it.

    Args:
        image: the image.
        inner_ports: the ports on which the server listens inside.
        ports: as many ports of this machine; free ones unless given.
        env: the container's environment.
        command: the command line, instead of the image's.
    """

    def __init__(
        self,
        image: str,
        *,
        inner_ports: Sequence[int],
        ports: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
    ) -> None:
        self.image = image
        self._inner_ports = tuple(inner_ports)
        self._ports = tuple(ports) or tuple(_free_port() for _ in inner_ports)
        self._env = dict(env or {})
        self._command = [*command]
        self._container: Any = None
        self._addresses = tuple(("127.0.0.1", port) for port in self._ports)

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of the server, as an app takes it."""

    @abstractmethod
    def fresh(self) -> AbstractContextManager[str]:
        """Provide the URL of an empty part of the server for one test."""

    def start(self) -> Self:
        """Start it, also after `stop` or `kill`, and return when the server answers.

        Raises:
            UnsupportedFeature: testcontainers is not installed, or no container engine answers.
            TimeoutError: the server did not answer within two minutes; the message contains the end of its log.
        """
        if self._container is None:
            engine = _engine()
            self._container = self._create(engine)
            self._container.start()
        else:
            self._handle().start()
        self._addresses = tuple(self._address(port) for port in self._inner_ports)
        self._wait_until_ready()
        return self

    def stop(self, patience: timedelta = _STOPS_WITHIN) -> None:
        """Shut the server down within `patience`; `start` restarts it."""
        self._handle().stop(timeout=int(patience.total_seconds()))

    def kill(self) -> None:
        """Kill the server (SIGKILL); `start` restarts it."""
        self._handle().kill()

    def pause(self) -> None:
        """Freeze the server: connections stay open, but nothing answers."""
        self._handle().pause()

    def resume(self) -> None:
        """Unfreeze the server after `pause`."""
        self._handle().unpause()

    def failure(self) -> str | None:
        """Return why the server cannot answer any more, or None while its container runs."""
        handle = self._handle()
        handle.reload()
        return "has exited" if handle.status == "exited" else None

    def log(self) -> str:
        """Return the end of the server's log."""
        text: bytes = self._handle().logs(tail=_LOG_LINES)
        return text.decode(errors="replace")

    def run(self, *argv: str) -> str:
        """Run a program inside the container and return its output.

        Raises:
            RuntimeError: it failed; the message has its exit code and output.
        """
        code, output = self._handle().exec_run([*argv])
        text: str = output.decode(errors="replace")
        if code != 0:
            raise RuntimeError(f"{argv[0]} in {self.image} failed with exit code {code}: {text}")
        return text

    def close(self) -> None:
        """Remove the container and its data; may be called twice."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.image}>"

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether a client would be served now; an `OSError` means no."""

    def _at(self, index: int) -> tuple[str, int]:
        """Return the host and port of one of the inner ports."""
        return self._addresses[index]

    def _create(self, engine: Any) -> Any:
        container = engine(self.image, env=self._env, command=self._command or None)
        # Published on the loopback if its programs are the clients: testcontainers publishes to the network.
        is_local = self._is_local(container)
        for inside, outside in zip(self._inner_ports, self._ports, strict=True):
            container.ports[f"{inside}/tcp"] = ("127.0.0.1", outside) if is_local else outside
        return container

    @staticmethod
    def _is_local(container: Any) -> bool:
        client = container.get_docker_client()
        host: str = client.host()
        mode: str = client.get_connection_mode().value
        return host in {"localhost", "127.0.0.1"} and mode == "docker_host"

    def _address(self, port: int) -> tuple[str, int]:
        host: str = self._container.get_container_host_ip()
        published: int = self._container.get_exposed_port(port)
        return ("127.0.0.1" if host == "localhost" else host), published

    def _handle(self) -> Any:
        if self._container is None:
            raise RuntimeError(f"{self!r} is not started; use it as a context manager or call start()")
        return self._container.get_wrapped_container()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN.total_seconds()
        while True:
            with contextlib.suppress(OSError):
                if self._answers():
                    return
            if (failure := self.failure()) is not None:
                raise TimeoutError(f"{self!r} {failure}:\n{self.log()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self!r} did not answer within {_STARTS_WITHIN}:\n{self.log()}")
            time.sleep(_LOOKS_EVERY)


def _engine() -> Any:
    """Return testcontainers' container class once an engine answers."""
    try:
        from docker.errors import DockerException
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.docker_client import DockerClient, get_docker_host
    except ImportError as error:
        raise UnsupportedFeature(f"containers need {error.name}: pip install 'taskmq[testcontainers]'") from error
    address = get_docker_host() or _USUAL_ADDRESS
    if not Path(address.removeprefix(_UNIX)).exists() and address.startswith(_UNIX):
        # The Docker client would leave a socket open.
        raise _no_engine(address)
    try:
        client: Any = DockerClient()
        client.client.close()
    except DockerException as error:
        raise _no_engine(address) from error
    return DockerContainer


def _no_engine(address: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"no container engine answers at {address}: start Docker, or Podman by "
        "`podman system service --time=0 unix:///run/podman.sock` with DOCKER_HOST=unix:///run/podman.sock"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
