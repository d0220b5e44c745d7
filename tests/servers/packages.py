"""The machine's packages: missing ones, and their installation by apt without starting services."""

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

# The packages, separated by spaces, and the check for them.
_PACKAGES: dict[str, tuple[str, Callable[[], bool]]] = {
    "rabbitmq": ("rabbitmq-server", lambda: find_rabbitmq(None) is not None),
    "redis": ("redis-server", lambda: find_redis() is not None),
    "postgres": ("postgresql", is_postgres_installed),
    "pgbouncer": ("pgbouncer", lambda: find_pgbouncer() is not None),
    "amqp-tools": ("amqp-tools", lambda: shutil.which("amqp-publish") is not None),
    "chromium": ("chromium-headless-shell", lambda: find_chromium() is not None),
    # For comparing pictures of pages.
    "fonts": ("fonts-dejavu-core", lambda: Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf").exists()),
    # The last two create the networks of its containers.
    "podman": (
        "podman runc netavark iptables",
        lambda: all(map(_is_program, ("podman", "runc", "netavark", "iptables"))),
    ),
    "prometheus": ("prometheus", lambda: shutil.which("prometheus") is not None),
    "debootstrap": ("debootstrap", lambda: shutil.which("debootstrap", path="/usr/sbin:/sbin") is not None),
}

INSTALLABLE = tuple(_PACKAGES)
# The smallest one: it has no windows.
_BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")

_POLICY = Path("/usr/sbin/policy-rc.d")


def find_chromium() -> str | None:
    """Return the browser of the tests; None if there is none."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


def _is_program(name: str) -> bool:
    places = (os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/lib/podman")
    return shutil.which(name, path=os.pathsep.join(places)) is not None


def missing(names: tuple[str, ...]) -> list[str]:
    """Return the missing apt packages for these names."""
    wanted = [packages for packages, is_installed in (_PACKAGES[name] for name in names) if not is_installed()]
    return " ".join(wanted).split()


def install(packages: list[str]) -> None:
    """Install packages by apt without starting their services.

    Raises:
        ServerUnavailable: not root, or no apt; the message has the command to run.
        ServerFailed: apt failed.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServerUnavailable(f"run as root: apt-get update && apt-get install -y {' '.join(packages)}")
    with _no_service_starts():
        _apt("update")
        _apt("install", "-y", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    result = subprocess.run(
        # Other installations may be running: wait for their lock.
        ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if result.returncode != 0:
        raise ServerFailed(f"apt-get {' '.join(arguments)} failed with exit code {result.returncode}")


@contextlib.contextmanager
def _no_service_starts() -> Generator[None, None, None]:
    """Prevent service starts: Debian asks this program first; an existing one is left alone."""
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
