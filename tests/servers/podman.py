"""A private Podman with Docker's API: its images, containers, network and files are gone once it ends."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
from typing import Final

from tests.servers.errors import ServerFailed, ServerUnavailable
from tests.servers.images import Image
from tests.servers.ports import PortLease
from tests.servers.process import Command, Keeper, LocalProcess
from tests.servers.server import Server, Source

# All its mounts are in a separate namespace and gone with its last process, images and containers first of all.
_START: Final = 'mount -t tmpfs -o exec tmpfs "$1" && exec podman system service --time=0 "$2"'
_STORAGE: Final = """\
[storage]
driver = "vfs"
runroot = "{room}/run"
graphroot = "{room}/images"
"""
_CONTAINERS: Final = """\
[containers]
# The defaults are more than a process in a container may ask for.
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
cgroups = "enabled"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
[network]
default_network = "{network}"
network_config_dir = "{directory}/networks"
"""


class Podman(Server):
    """An engine without any image; needs root, `podman`, `runc`, `netavark` and `iptables`.

    Several engines on one machine are independent.

    Attributes:
        network: the name of its network, and of the interface on this machine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.network = f"tmq{secrets.token_hex(4)}"
        self._url = ""
        self._env: dict[str, str] = {}

    @property
    def url(self) -> str:
        """Return the address of Docker's API in the form of $DOCKER_HOST."""
        self._running_source()
        return self._url

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which testcontainers finds it."""
        return {
            "DOCKER_HOST": self.url,
            # If the tests run in a container, this engine does so too.
            "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
            # Its usual cleaner is an image of a registry; here the keeper cleans up.
            "TESTCONTAINERS_RYUK_DISABLED": "true",
        }

    def add_image(self, image: Image, *names: str) -> None:
        """Add an image under names such as `redis:7`."""
        changes = [f"--change={change}" for change in image.changes]
        name, *others = (f"docker.io/library/{name}" for name in names)
        command = ["podman", "--url", self.url, "import", "--quiet", *changes, "-", name]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._env
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            with contextlib.suppress(BrokenPipeError):
                image.write(process.stdin)
                process.stdin.close()
            said = process.stderr.read().decode()
        if process.returncode != 0:
            raise ServerFailed(f"podman did not take the image {name}: {said}")
        for other in others:
            self._podman("tag", name, other)

    def close(self) -> None:
        """Remove its containers, and so its network, then itself."""
        if self._source is not None and self._source.failure() is None:
            with contextlib.suppress(ServerFailed):
                self._podman("rm", "--all", "--force", "--time", "0")
        super().close()

    def __repr__(self) -> str:
        return f"<Podman {self._url}>"

    def _open(self) -> Source:
        missing = [name for name in ("podman", "runc") if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            raise ServerUnavailable(
                f"{' and '.join(missing) or 'the right to start containers'} is missing: as root, run "
                "`python -m tests.servers install podman` (or `apt-get install podman runc netavark iptables`)"
            )
        keeper = Keeper("podman")
        room, networks = keeper.directory / "room", keeper.directory / "networks"
        room.mkdir()
        networks.mkdir()
        (networks / f"{self.network}.json").write_text(json.dumps(_network(self.network)))
        (keeper.directory / "storage.conf").write_text(_STORAGE.format(room=room))
        settings = _CONTAINERS.format(network=self.network, directory=keeper.directory)
        (keeper.directory / "containers.conf").write_text(settings)
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(keeper.directory),
            "CONTAINERS_STORAGE_CONF": str(keeper.directory / "storage.conf"),
            "CONTAINERS_CONF": str(keeper.directory / "containers.conf"),
        }
        self._url = f"unix://{keeper.directory}/docker.sock"
        argv = ("unshare", "--mount", "sh", "-c", _START, "sh", str(room), self._url)
        return LocalProcess(keeper, Command(argv, self._env), lease=PortLease(0))

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self._url.removeprefix("unix://"))
            except OSError:
                return False
        return True

    def _podman(self, *arguments: str) -> None:
        result = subprocess.run(
            ["podman", "--url", self._url, *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if result.returncode != 0:
            raise ServerFailed(f"podman {' '.join(arguments)} failed: {result.stderr}")


def _network(name: str) -> dict[str, object]:
    """Return a bridge with a unique name and unique addresses."""
    prefix = f"10.{100 + secrets.randbelow(100)}.{secrets.randbelow(256)}"
    return {
        "name": name,
        "id": secrets.token_hex(32),
        "driver": "bridge",
        "network_interface": name,
        "created": "2026-01-01T00:00:00Z",
        "subnets": [{"subnet": f"{prefix}.0/24", "gateway": f"{prefix}.1"}],
        "ipv6_enabled": False,
        "internal": False,
        "dns_enabled": False,
        "ipam_options": {"driver": "host-local"},
    }
