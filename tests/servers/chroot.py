"""Servers of newer Debian releases, each in a separate directory tree below the cache directory.

A tree contains only programs: servers run in it by `chroot`, keep their files in our directories, which a private
mount namespace shows inside at the same paths, and share the machine's network. No mount outlives them.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.errors import ServerFailed, ServerUnavailable
from tests.servers.room import room_for_servers

SUITES = {"4.0": "trixie", "4.3": "forky"}
REDISES = {"8.0": "redis-8.0", "valkey": "valkey-8.1"}
"""The tree of each server that speaks Redis' protocol."""
_TREES = {
    **{f"rabbitmq-{version}": (suite, "rabbitmq-server") for version, suite in SUITES.items()},
    "redis-8.0": ("trixie", "redis-server"),
    "valkey-8.1": ("trixie", "valkey-server"),
}
TREES = tuple(_TREES)

_DEBOOTSTRAP_SCRIPT = "/usr/share/debootstrap/scripts/sid"


def chroot_of(tree: str) -> Path:
    """Return the path of a tree, such as rabbitmq-4.3, existing or not."""
    cache = os.environ.get("TASKMQ_TEST_CACHE")
    return (Path(cache) if cache else Path.home() / ".cache" / "taskmq-tests") / tree


def provision(tree: str) -> Path:
    """Create the tree unless it exists (30 to 60 s, 300 MB); concurrent calls create it once."""
    if tree not in _TREES:
        raise ServerUnavailable(f"{tree} is not on offer; there are {', '.join(_TREES)}")
    target = chroot_of(tree)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(f"{target.suffix}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(*_TREES[tree], target)
    return target


def debian_mirror() -> str:
    """Return the package mirror of this machine's apt; $TASKMQ_TEST_DEBIAN_MIRROR overrides it."""
    if given := os.environ.get("TASKMQ_TEST_DEBIAN_MIRROR"):
        return given
    apt = Path("/etc/apt")
    sources = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for source in sources:
        if source.suffix in {".list", ".sources"} and source.is_file():
            for uri in _uris(source.read_text()):
                if "security" not in uri:
                    return uri
    raise ServerUnavailable("no mirror in apt's sources; set TASKMQ_TEST_DEBIAN_MIRROR to a Debian mirror")


def enter(root: Path, *argv: str) -> tuple[str, ...]:
    """Return the command that runs `argv` inside the tree, with /proc, our temporary directory and the room for
    servers.
    """
    ours = (tempfile.gettempdir(), str(room_for_servers()))
    return ("unshare", "--mount", "sh", "-c", _ENTER, "sh", str(root), *ours, *argv)


_ENTER = """
set -e
root=$1 tmp=$2 room=$3; shift 3
mount -t proc proc "$root/proc"
for directory in "$tmp" "$room"; do
    mkdir -p "$root$directory"
    mount --bind "$directory" "$root$directory"
done
exec chroot "$root" "$@"
"""


def _uris(sources: str) -> list[str]:
    deb822 = re.findall(r"(?m)^URIs:\s*(\S+)", sources)
    one_line = re.findall(r"(?m)^deb\s+(?:\[[^]]*]\s+)?(\S+)", sources)
    return [uri for uri in (*deb822, *one_line) if re.match(r"https?://|ftp://|file:", uri)]


def _build(suite: str, package: str, target: Path) -> None:
    if os.geteuid() != 0:
        raise ServerUnavailable("a chroot can only be made and used by root; use a container instead")
    mirror = debian_mirror()
    unfinished = Path(tempfile.mkdtemp(prefix=f"{target.name}-", suffix=".unfinished", dir=target.parent))
    log = target.with_name(f"{target.name}.log")
    try:
        with log.open("wb") as output:
            # In a mount namespace: an interrupted debootstrap leaves /proc mounted inside.
            command = ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={package}"]
            result = subprocess.run(
                [*command, suite, str(unfinished), mirror, _DEBOOTSTRAP_SCRIPT],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        if result.returncode != 0:
            raise ServerFailed(f"debootstrap of {suite} from {mirror} failed:\n{log.read_text()[-2000:]}")
        _finish(unfinished)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _finish(root: Path) -> None:
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    for name in ("hosts", "resolv.conf"):
        shutil.copy(Path("/etc") / name, root / "etc" / name)
    root.chmod(0o755)
