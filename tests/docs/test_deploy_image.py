"""The image of contrib/deploy, built and run by Podman: it starts unprivileged, changes nothing and leaves no zombie.

A campaign. It builds on $TASKMQ_TEST_IMAGE_BASE, an image with Python and Debian's packages, by default that of the
Dockerfile; `$CONTAINERS_STORAGE_CONF` and `$CONTAINERS_CONF` configure Podman on this machine.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.kit import PATIENCE
from tests.docs.blocks import ROOT
from tests.servers import eventually

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

_NAME: Final = "taskmq-image-test:1"
_HARDENED: Final = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp:rw,mode=1777")
_APP: Final = """\
import os
import subprocess
from pathlib import Path

from taskmq import TaskMQ

app = TaskMQ("local:///tmp/jobs", state="local:///tmp/jobs")


@app.task
def look() -> None:
    # What it leaves in the background is given to process 1.
    subprocess.run(["sh", "-c", "sleep 0.1 & sleep 0.1 &"], check=True)
    first = Path("/proc/1/cmdline").read_bytes().split(b"\\0")[0].decode()
    denied = []
    for path in ("/app/shop.py", "/opt/venv/new", "/etc/new"):
        try:
            Path(path).open("ab").close()
        except OSError:
            denied.append(path)
    print("found", os.getuid(), os.getgid(), os.path.basename(first), len(denied), flush=True)


@app.task
def count() -> None:
    states = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0]
              for each in os.listdir("/proc") if each.isdigit()]
    print("zombies", states.count("Z"), flush=True)
"""


def _podman(*words: str, timeout: float = 400) -> str:
    done = subprocess.run(["podman", *words], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the image of a project as deploy.md describes."""
    if shutil.which("podman") is None:
        pytest.fail("the image is built by podman: apt-get install podman runc")
    project = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "contrib" / "deploy", project / "deploy")
    (project / "shop.py").write_text(_APP)
    (project / "deploy" / ".env").write_text("OWNER_PASSWORD=secret")
    wheel = [
        str(ROOT / ".tools" / "bin" / "pip"),
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(project / "deploy" / "wheels"),
    ]
    subprocess.run([*wheel, str(ROOT)], check=True, timeout=300)
    base = os.environ.get("TASKMQ_TEST_IMAGE_BASE")
    chosen = () if base is None else (f"--build-arg=PYTHON={base}",)
    # Local packages of this machine beside its index.
    shared = [f"--volume={path}:{path}:ro" for path in ("/opt/pypi", "/opt/wheels") if Path(path).is_dir()]
    _podman(
        *("build", "--network=host", "--isolation=chroot", *shared, *chosen),
        *("-f", str(project / "deploy" / "Dockerfile"), "-t", _NAME, str(project)),
        timeout=800,
    )
    return _NAME


@pytest.fixture
def container(image: str) -> Iterator[str]:
    """Run a worker in the image, with as few privileges as in the files."""
    name = f"taskmq-image-test-{os.getpid()}"
    _podman("run", "--detach", "--name", name, *_HARDENED, image, "worker", "shop:app")
    yield name
    subprocess.run(["podman", "rm", "--force", name], check=True, capture_output=True, timeout=60)


def test_a_worker_of_the_image_works_without_any_capability(container: str) -> None:
    def logs() -> str:
        done = subprocess.run(["podman", "logs", container], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout + done.stderr

    eventually(lambda: "waiting for jobs" in logs(), "a worker in a container", within=PATIENCE)
    for _ in range(5):
        _podman("exec", container, "taskmq", "send", "shop.look", "--app", "shop:app")
    eventually(lambda: logs().count("found") == 5, "five jobs", within=PATIENCE)
    assert logs().count("found 10001 10001 tini 3") == 5

    def counts_none() -> bool:
        _podman("exec", container, "taskmq", "send", "shop.count", "--app", "shop:app")
        return "zombies 0" in logs()

    eventually(counts_none, "no process that has ended is left", within=PATIENCE)
    _podman("stop", "--time", "30", container)
    assert "drained in" in logs()


def test_the_image_has_no_secret_and_no_code_of_its_user(image: str) -> None:
    found = _podman("run", "--rm", "--entrypoint", "find", image, "/app", "/opt", "-user", "10001")
    files = _podman("run", "--rm", "--entrypoint", "find", image, "/app", "/opt", "-name", ".env")

    assert found == ""
    assert files == ""


def test_the_image_contains_the_program_that_creates_accounts(image: str) -> None:
    done = subprocess.run(
        ["podman", "run", "--rm", *_HARDENED, "--entrypoint", "python", image, "/opt/accounts.py"],
        capture_output=True,
        text=True,
        # Without an overlay file system, Podman copies the image for each container.
        timeout=400,
    )

    assert "taskmq-worker, role worker" in done.stderr, (done.stderr, sys.version)
