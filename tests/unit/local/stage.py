"""Starting and stopping of actors."""

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.waiting import eventually
from tests.unit.local.kit import PATIENCE

_ROOT = Path(__file__).parents[3]


class Actor:
    """A process of `tests.unit.local.actors` and its output."""

    def __init__(self, role: str, url: str, *arguments: object) -> None:
        self.lines: list[list[str]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.local.actors", role, url, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": ".:brokers"},
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def texts(self) -> list[str]:
        """Return the second word of each line that has one."""
        return [line[1] for line in self.lines if len(line) > 1]

    def has_printed(self, count: int, *, within: float = PATIENCE) -> None:
        """Wait until it has printed `count` lines."""
        try:
            eventually(lambda: len(self.lines) >= count, within=timedelta(seconds=within))
        except TimeoutError as error:
            raise AssertionError(f"said {len(self.lines)} of {count} lines: {self.lines[-3:]}") from error

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Let it end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE * 2) == 0
        self._close()

    def finish(self) -> None:
        """Wait until it ends."""
        assert self._process.wait(PATIENCE * 6) == 0
        self._close()

    def kill(self) -> None:
        """Send SIGKILL; earlier output is in `lines`."""
        self._process.kill()
        self._process.wait()
        self._close()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                self.lines.append(line.decode().split())

    def _close(self) -> None:
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
