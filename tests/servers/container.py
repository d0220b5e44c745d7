"""Servers in Docker, for machines that have it and not the binaries; testcontainers removes what we leave."""

import importlib
import shutil
import subprocess
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol, Self, cast

from tests.servers.errors import ServerFailed
from tests.servers.ports import PortLease


class _DockerHandle(Protocol):
    """What we use of docker-py's container."""

    status: str

    def start(self) -> None: ...
    def stop(self, *, timeout: int) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def unpause(self) -> None: ...
    def reload(self) -> None: ...
    def logs(self, *, tail: int) -> bytes: ...
    def exec_run(self, cmd: list[str]) -> tuple[int, bytes]: ...


class _DockerContainer(Protocol):
    """What we use of testcontainers' container."""

    ports: dict[str, tuple[str, int]]

    def with_env(self, key: str, value: str) -> Self: ...
    def with_command(self, command: str) -> Self: ...
    def start(self) -> Self: ...
    def stop(self) -> None: ...
    def get_wrapped_container(self) -> _DockerHandle: ...


def docker_answers() -> bool:
    """Whether there is a Docker daemon that we may use."""
    if shutil.which("docker") is None:
        return False
    try:
        subprocess.run(["docker", "info"], capture_output=True, timeout=5, check=True)
    except (subprocess.SubprocessError, OSError):
        return False
    return True


class Container:
    """One container with fixed ports on 127.0.0.1, so that it comes back on the same ones."""

    def __init__(
        self, image: str, *, ports: tuple[int, ...], env: Mapping[str, str] | None = None, command: str = ""
    ) -> None:
        self._lease = PortLease(len(ports))
        self.ports = self._lease.ports
        module = importlib.import_module("testcontainers.core.container")
        self._container = cast("_DockerContainer", module.DockerContainer(image))
        for inside, outside in zip(ports, self.ports, strict=True):
            # with_bind_ports knows no host address, and would open the port to the network.
            self._container.ports[f"{inside}/tcp"] = ("127.0.0.1", outside)
        for key, value in (env or {}).items():
            self._container.with_env(key, value)
        if command:
            self._container.with_command(command)
        self._handle: _DockerHandle | None = None

    def start(self) -> None:
        if self._handle is None:
            self._handle = self._container.start().get_wrapped_container()
        else:
            self._handle.start()

    def stop(self, patience: timedelta) -> None:
        self._running().stop(timeout=int(patience.total_seconds()))

    def kill(self) -> None:
        self._running().kill()

    def pause(self) -> None:
        self._running().pause()

    def resume(self) -> None:
        self._running().unpause()

    def failure(self) -> str | None:
        handle = self._running()
        handle.reload()
        return "has exited" if handle.status == "exited" else None

    def log(self) -> str:
        return self._running().logs(tail=50).decode(errors="replace")

    def run(self, *argv: str) -> str:
        """Run a program inside and return its output."""
        code, output = self._running().exec_run([*argv])
        if code != 0:
            raise ServerFailed(f"{argv[0]} in the container failed ({code}): {output.decode(errors='replace')}")
        return output.decode()

    def pids(self) -> list[int]:
        return []

    def close(self) -> None:
        if self._handle is not None:
            self._container.stop()
            self._handle = None
        self._lease.close()

    def _running(self) -> _DockerHandle:
        if self._handle is None:
            raise ServerFailed("the container is not started")
        return self._handle
