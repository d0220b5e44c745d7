"""Sending programs as separate processes."""

import os
import subprocess
import sys
from pathlib import Path

from taskmq import TaskMQ
from tests.e2e.kit import until

QUEUE = "leaving"
BRIEFLY = 20.0

APP = f"""
import os
from taskmq import TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], send_timeout=5)

@app.task(name="count", queue="{QUEUE}", result=False)
def count(number: int) -> None: ...
"""


class Producer:
    """A folder with an app, and programs that use it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "jobs.py").write_text(APP)

    def start(self, code: str) -> "subprocess.Popen[str]":
        (self.folder / "main.py").write_text(code)
        return subprocess.Popen(
            [sys.executable, "main.py"],
            cwd=self.folder,
            env={**os.environ, "JOBS_URL": self.url, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str) -> tuple[int, str, str]:
        """Run a program that has to end soon; return its exit code and output."""
        process = self.start(code)
        try:
            out, err = process.communicate(timeout=BRIEFLY)
        finally:
            process.kill()
        return process.returncode, out, err

    def expect_waiting(self, count: int, *, at_least: bool = False) -> None:
        """Wait until that many jobs wait at the broker."""
        app = TaskMQ(self.url)
        with app:

            async def waiting() -> int:
                broker = app.sessions.current().broker
                await broker.connect(timeout=10)
                return sum(entry.ready for entry in await broker.stats([QUEUE]))

            until(
                lambda: (
                    (found := app.sessions.run_sync(waiting(), instead="")) == count or (at_least and found >= count)
                ),
                f"{count} jobs wait",
            )
