"""Location of the programs of one RabbitMQ version: on this machine or in a chroot."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.chroot import SUITES, chroot_of, enter
from tests.servers.errors import ServerFailed

# The programs themselves: Debian's wrappers in /usr/sbin change to the user rabbitmq and its directories.
_DEBIAN_SCRIPTS = Path("/usr/lib/rabbitmq/bin")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Installation:
    """RabbitMQ's scripts; `root` is the tree that contains them, None for this machine."""

    scripts: Path
    root: Path | None = None

    def command(self, program: str, *arguments: str) -> tuple[str, ...]:
        """Return the command line of one of RabbitMQ's scripts."""
        return self.run(str(self.scripts / program), *arguments)

    def run(self, *argv: str) -> tuple[str, ...]:
        """Return the command line of any program of the same tree, such as epmd."""
        return argv if self.root is None else enter(self.root, *argv)

    def call(self, program: str, *arguments: str, env: dict[str, str]) -> str:
        """Run one of the scripts to its end and return its output."""
        result = subprocess.run(
            self.command(program, *arguments),
            env={"PATH": PATH, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if result.returncode != 0:
            raise ServerFailed(f"{program} {' '.join(arguments)} failed: {result.stderr or result.stdout}")
        return result.stdout


def find_rabbitmq(version: str | None) -> Installation | None:
    """Return the programs of this version; of any version if it is None or "3.10", the oldest supported one."""
    machine = _on_this_machine()
    if version not in SUITES:
        return machine
    if machine is not None and _version(machine).startswith(f"{version}."):
        return machine
    root = chroot_of(f"rabbitmq-{version}")
    return Installation(_DEBIAN_SCRIPTS, root) if os.geteuid() == 0 and root.exists() else None


def _on_this_machine() -> Installation | None:
    if (_DEBIAN_SCRIPTS / "rabbitmq-server").exists():
        return Installation(_DEBIAN_SCRIPTS)
    server = shutil.which("rabbitmq-server")
    return None if server is None else Installation(Path(server).resolve().parent)


def _version(machine: Installation) -> str:
    """Read the version from the library directory; asking the program would start an Erlang machine."""
    for library in (machine.scripts.parent / "lib").glob("rabbitmq_server-*"):
        if found := re.search(r"-([\d.]+)$", library.name):
            return found[1]
    return ""
