"""Notifications for systemd."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq.supervisor.systemd import Systemd


class Ear:
    """A systemd that receives notifications."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)

    @property
    def heard(self) -> list[str]:
        said: list[str] = []
        while True:
            try:
                said.append(self._socket.recv(1000).decode())
            except BlockingIOError:
                return said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s") / "n"


@pytest.fixture
def ear(path: Path) -> Iterator[Ear]:
    ear = Ear(str(path))
    yield ear
    ear.close()


def test_systemd_is_told_when_the_service_is_ready_and_its_status_and_its_stop(path: Path, ear: Ear) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": str(path)})

    systemd.ready()
    systemd.status("1 of 2 processes take jobs")
    systemd.status("1 of 2 processes take jobs")
    systemd.reloading()
    systemd.stopping()

    first, second, third, fourth = ear.heard
    assert (first, second, fourth) == ("READY=1", "STATUS=1 of 2 processes take jobs", "STOPPING=1")
    assert third.startswith("RELOADING=1\nMONOTONIC_USEC=")


def test_the_watchdog_is_fed_if_systemd_requests_it(path: Path, ear: Ear) -> None:
    given = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "30000000"}

    Systemd({"NOTIFY_SOCKET": str(path)}).alive()
    Systemd({**given, "WATCHDOG_PID": "1"}).alive()
    assert ear.heard == []

    systemd = Systemd({**given, "WATCHDOG_PID": str(os.getpid())})
    systemd.alive()
    assert systemd.watchdog == 30
    assert ear.heard == ["WATCHDOG=1"]


def test_an_abstract_address_works_too() -> None:
    name = f"taskmq-test-{os.getpid()}"
    ear = Ear(f"\0{name}")
    try:
        Systemd({"NOTIFY_SOCKET": f"@{name}"}).ready()

        assert ear.heard == ["READY=1"]
    finally:
        ear.close()


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_nothing_happens_without_systemd(environment: dict[str, str]) -> None:
    systemd = Systemd(environment)

    systemd.ready()
    systemd.alive()

    assert systemd.watchdog is None
