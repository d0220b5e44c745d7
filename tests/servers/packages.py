"""The machine's own packages: which are missing, and their installation by apt without starting services."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

from tests.servers.errors import ServerFailed, ServerUnavailable
from tests.servers.installation import find_rabbitmq
from tests.servers.pgbouncer import find_pgbouncer
from tests.servers.postgres import is_postgres_installed
from tests.servers.redis import find_redis

# What to install, divided by spaces, and whether it is there.
_PACKAGES: dict[str, tuple[str, Callable[[], bool]]] = {
    "rabbitmq": ("rabbitmq-server", lambda: find_rabbitmq(None) is not None),
    "redis": ("redis-server", lambda: find_redis() is not None),
    "postgres": ("postgresql", is_postgres_installed),
    "pgbouncer": ("pgbouncer", lambda: find_pgbouncer() is not None),
    "amqp-tools": ("amqp-tools", lambda: shutil.which("amqp-publish") is not None),
    "chromium": ("chromium-headless-shell", lambda: find_chromium() is not None),
    # What pictures of pages are compared in.
    "fonts": ("fonts-dejavu-core", lambda: Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf").exists()),
    # Networks of its containers are made by the last two.
    "podman": (
        "podman runc netavark iptables",
        lambda: all(map(_is_program, ("podman", "runc", "netavark", "iptables"))),
    ),
    "prometheus": ("prometheus", lambda: shutil.which("prometheus") is not None),
    "debootstrap": ("debootstrap", lambda: shutil.which("debootstrap", path="/usr/sbin:/sbin") is not None),
}

INSTALLABLE = tuple(_PACKAGES)
# The cheapest first: it has no windows.
_BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")

_POLICY = Path("/usr/sbin/policy-rc.d")


def find_chromium() -> str | None:
    """The browser that the tests open pages in; None where there is none."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


def _is_program(name: str) -> bool:
    places = (os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/lib/podman")
    return shutil.which(name, path=os.pathsep.join(places)) is not None


def missing(names: tuple[str, ...]) -> list[str]:
    """The apt packages that are still to be installed for these names."""
    wanted = [packages for packages, is_installed in (_PACKAGES[name] for name in names) if not is_installed()]
    return " ".join(wanted).split()


def install(packages: list[str]) -> None:
    """Install packages by apt; no service of theirs is started.

    Raises:
        ServerUnavailable: we are not root, or there is no apt; the message has the command to run.
        ServerFailed: apt failed.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServerUnavailable(f"run as root: apt-get update && apt-get install -y {' '.join(packages)}")
    with _no_service_starts():
        _apt("update")
        _apt("install", "-y", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    result = subprocess.run(
        # Others may be installing at the same time: wait for their lock.
        ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if result.returncode != 0:
        raise ServerFailed(f"apt-get {' '.join(arguments)} failed with exit code {result.returncode}")


@contextlib.contextmanager
def _no_service_starts() -> Generator[None, None, None]:
    """Debian asks this program before it starts a service; one that is there already is left alone."""
    try:
        with _POLICY.open("x") as policy:
            policy.write("#!/bin/sh\nexit 101\n")
    except FileExistsError:
        yield
        return
    try:
        _POLICY.chmod(0o755)
        yield
    finally:
        _POLICY.unlink(missing_ok=True)
