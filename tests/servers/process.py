"""Servers as child processes: one keeper (see `tests.servers.keeper`) for the processes and files of each."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import cast

from tests.servers import keeper
from tests.servers.errors import ServerFailed
from tests.servers.installation import PATH
from tests.servers.ports import PortLease
from tests.servers.room import room_for_servers

_LOG_TAIL = 8000


@dataclass(frozen=True, slots=True)
class Command:
    """The start command of a process, and the signal that stops it in order."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM


class Keeper:
    """A temporary directory and the processes started for it; both end with this process at the latest."""

    def __init__(self, kind: str, *, owner: str | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"taskmq-{kind}-", dir=room_for_servers()))
        if owner is not None:
            shutil.chown(self.directory, owner)
        self._lock = threading.Lock()
        self._questions = 0
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(self.directory), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def spawn(self, name: str, command: Command) -> None:
        """Start a process in the directory, its output in `NAME.log` there."""
        self._ask(
            {
                "do": "spawn",
                "name": name,
                "argv": [*command.argv],
                "env": {"PATH": PATH, **command.env},
                "log": str(self.log_of(name)),
                "user": command.user,
            }
        )

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Signal the process itself."""
        self._ask({"do": "signal", "name": name, "number": number})

    def signal_tree(self, name: str, number: signal.Signals) -> None:
        """Signal the process and all its descendants; after SIGKILL they are gone when this returns."""
        self._ask({"do": "signal-tree", "name": name, "number": number})

    def exit_code(self, name: str, *, within: timedelta = timedelta(0)) -> int | None:
        """Return the exit code (negative: the signal), or None if it still runs after `within`."""
        return self._ask({"do": "wait", "name": name, "seconds": within.total_seconds()}).get("exit")

    def pids(self) -> list[int]:
        """Return the keeper and all its descendants."""
        return self._ask({"do": "pids"}).get("pids", [])

    def log_of(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def log_tail(self, name: str) -> str:
        """Return the end of a process's output, for error messages."""
        try:
            return self.log_of(name).read_text(errors="replace")[-_LOG_TAIL:]
        except FileNotFoundError:
            return "(no output)"

    def close(self) -> None:
        """Kill every process and remove the directory; may be called twice."""
        if self._process.returncode is None:
            # Closing its standard input makes the keeper clean up.
            self._process.communicate()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _ask(self, request: keeper.Request) -> keeper.Reply:
        with self._lock:
            try:
                reply = self._exchange(request)
            except (BrokenPipeError, ValueError) as error:
                raise ServerFailed(f"the keeper of {self.directory} has ended, its processes with it") from error
        if "error" in reply:
            raise ServerFailed(f"{request['do']} in {self.directory} failed: {reply['error']}")
        return reply

    def _exchange(self, request: keeper.Request) -> keeper.Reply:
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        self._questions += 1
        question: keeper.Question = {"number": self._questions, "request": request}
        questions.write(json.dumps(question).encode() + b"\n")
        questions.flush()
        while line := answers.readline():
            reply = cast("keeper.Reply", json.loads(line))
            if reply.get("number") == self._questions:
                return reply
        raise BrokenPipeError


class LocalProcess:
    """A server process of the tests: the source of a server if its binaries are on this machine.

    It owns its keeper and its ports: `close` releases both.
    """

    def __init__(self, kept_by: Keeper, command: Command, *, lease: PortLease) -> None:
        self._keeper = kept_by
        self._lease = lease
        self._command = command
        self._is_running = False

    def start(self) -> None:
        if not self._is_running or self.failure() is not None:
            self._keeper.spawn(_NAME, self._command)
            self._is_running = True

    def stop(self, patience: timedelta) -> None:
        if not self._is_running:
            return
        self.resume()  # a paused process would not see the next signal
        self._keeper.send_signal(_NAME, self._command.stop_signal)
        if self._keeper.exit_code(_NAME, within=patience) is None:
            raise ServerFailed(f"{self._command.argv[0]} did not stop within {patience}:\n{self.log()}")
        self._is_running = False

    def kill(self) -> None:
        if self._is_running:
            self._keeper.signal_tree(_NAME, signal.SIGKILL)
            self._is_running = False

    def pause(self) -> None:
        self._keeper.signal_tree(_NAME, signal.SIGSTOP)

    def resume(self) -> None:
        self._keeper.signal_tree(_NAME, signal.SIGCONT)

    def failure(self) -> str | None:
        if (code := self._keeper.exit_code(_NAME)) is None:
            return None
        return f"ended with exit code {code}"

    def log(self) -> str:
        return self._keeper.log_tail(_NAME)

    def pids(self) -> list[int]:
        return self._keeper.pids()

    def close(self) -> None:
        self._keeper.close()
        self._lease.close()


_NAME = "server"
