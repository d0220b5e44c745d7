"""The child program that owns the processes and the directory of one server.

Run by path, standard library only, in a separate session: `python -I -S keeper.py DIRECTORY PARENT_PID`.
Requests arrive as JSON lines on standard input, replies leave as JSON lines on standard output.

Nothing outlives the test process, however it ends:

* if standard input closes, or the parent is another one: kill every descendant, remove the directory, end;
* if the keeper itself is killed: the kernel kills its direct children (PR_SET_PDEATHSIG, which follows the
  thread that forked; the keeper has only one, the test process has many);
* if a server starts daemons or process groups: they stay descendants, since the keeper is the
  subreaper of everything below it.
"""

import ctypes
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Literal, TypedDict, cast


class Spawn(TypedDict):
    do: Literal["spawn"]
    name: str
    argv: list[str]
    env: dict[str, str]
    log: str
    user: str | None


class Signal(TypedDict):
    do: Literal["signal"]
    name: str
    number: int


class SignalTree(TypedDict):
    do: Literal["signal-tree"]
    name: str
    number: int


class Wait(TypedDict):
    do: Literal["wait"]
    name: str
    seconds: float


class Pids(TypedDict):
    do: Literal["pids"]


Request = Spawn | Signal | SignalTree | Wait | Pids


class Question(TypedDict):
    """A request; its number returns in the reply: an interrupted one leaves its reply in the pipe."""

    number: int
    request: Request


class Reply(TypedDict, total=False):
    """A reply; `exit` is the exit code (negative: the signal), or None while the process runs."""

    number: int
    exit: int | None
    pids: list[int]
    error: str


_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Keeper:
    def __init__(self, directory: str, parent: int) -> None:
        self._directory = Path(directory)
        self._parent = parent
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self) -> None:
        """Answer requests until the parent is gone, then leave nothing behind."""
        try:
            for line in self._lines():
                question = cast("Question", json.loads(line))
                reply = self._answer(question["request"])
                reply["number"] = question["number"]
                os.write(1, json.dumps(reply).encode() + b"\n")
        except BrokenPipeError:
            pass  # the parent ended between its question and our answer
        finally:
            self._clean_up()

    def _lines(self) -> Iterator[bytes]:
        pending = b""
        while self._has_parent():
            # The timeout is for a pipe that a forked child of the parent still holds open.
            readable, _, _ = select.select([0], [], [], 0.5)
            self._reap()
            if not readable:
                continue
            if not (chunk := os.read(0, 65536)):
                return
            *lines, pending = (pending + chunk).split(b"\n")
            yield from lines

    def _answer(self, request: Request) -> Reply:
        try:
            if request["do"] == "spawn":
                return self._spawn(request)
            if request["do"] == "pids":
                return {"pids": [os.getpid(), *_descendants(os.getpid())]}
            child = self._children[request["name"]]
            if request["do"] == "wait":
                self._wait(child, request["seconds"])
            elif child.returncode is not None:
                pass  # another process may have its number by now
            elif request["do"] == "signal":
                self._send(request["number"], [child.pid])
            else:
                self._signal_tree(child, request["number"])
        except (OSError, KeyError) as error:
            return {"error": repr(error)}
        self._reap()
        return {"exit": child.returncode}

    def _spawn(self, request: Spawn) -> Reply:
        user = request["user"]
        with Path(request["log"]).open("ab") as log:
            child = subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=request["env"],
                process_group=0,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
                preexec_fn=_die_with_keeper,  # noqa: PLW1509 - the keeper has one thread
            )
        self._children[request["name"]] = child
        return {"exit": None}

    def _signal_tree(self, child: subprocess.Popen[bytes], number: int) -> None:
        """Signal a child and all its descendants; for SIGKILL return when they are gone."""
        tree = [child.pid, *_descendants(child.pid)]
        self._send(number, tree)
        if number == signal.SIGKILL:
            self._wait(child, 10)
            deadline = time.monotonic() + 10
            while any(_is_alive(pid) for pid in tree) and time.monotonic() < deadline:
                self._reap()
                time.sleep(0.01)

    def _send(self, number: int, pids: list[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _wait(self, child: subprocess.Popen[bytes], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while child.returncode is None and time.monotonic() < deadline and self._has_parent():
            self._reap()
            time.sleep(0.01)

    def _reap(self) -> None:
        """Collect every ended descendant, including orphans, as their subreaper."""
        by_pid = {child.pid: child for child in self._children.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in by_pid:
                by_pid[pid].returncode = os.waitstatus_to_exitcode(status)

    def _has_parent(self) -> bool:
        return os.getppid() == self._parent

    def _clean_up(self) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            self._reap()
            running = [child.pid for child in self._children.values() if child.returncode is None]
            pids = {*running, *_descendants(os.getpid())}
            if not pids:
                break
            self._send(signal.SIGKILL, [*pids])
            time.sleep(0.01)
        shutil.rmtree(self._directory, ignore_errors=True)


def _descendants(ancestor: int) -> list[int]:
    """Return all descendants of a process, from /proc; none if there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "PID (NAME) STATE PPID ...", where NAME may contain anything.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, UnicodeDecodeError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(ancestor, ()))
    for pid in found:  # grows while it is walked
        found += children.get(pid, ())
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _die_with_keeper() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _ignore(_number: int, _frame: FrameType | None) -> None: ...


def _main(directory: str, parent: str) -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not SIG_IGN, which the servers would inherit.
        signal.signal(number, _ignore)
    Keeper(directory, int(parent)).serve()


if __name__ == "__main__":
    _main(*sys.argv[1:])
