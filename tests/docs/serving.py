"""Web servers and other processes beside the commands of taskmq, for the pages that show them."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx2

from tests.cli.kit import environment
from tests.servers import eventually
from tests.servers.ports import PortLease

_PATIENCE = timedelta(seconds=30)


@contextmanager
def process(folder: Path, *command: str, env: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Run a Python module until the block ends; its output goes to the file."""
    log = folder / f"{command[0]}.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            env=environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ) as running,
    ):
        try:
            yield log
        finally:
            running.terminate()
            try:
                running.wait(40)
            except subprocess.TimeoutExpired:
                running.kill()


@contextmanager
def uvicorn(folder: Path, target: str, *, env: Mapping[str, str] | None = None) -> Iterator[httpx2.Client]:
    """Start an ASGI application; yield a client for it."""
    with PortLease(1) as lease:
        port = lease.ports[0]
        with (
            process(folder, "uvicorn", target, "--port", str(port), "--lifespan", "on", env=env) as log,
            httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        ):

            def has_printed() -> bool:
                return "Uvicorn running on" in log.read_text()

            eventually(has_printed, "a web server that answers", within=_PATIENCE)
            yield client
