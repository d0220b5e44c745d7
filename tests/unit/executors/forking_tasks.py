"""Tasks that fork their process, each in its own way."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time

from taskmq import TaskMQ

app = TaskMQ("memory://forks")


def _returns() -> None:
    os.fork()


def _raises() -> None:
    if os.fork() == 0:
        os.execvp("no-such-program", ["x"])


def _leaves() -> None:
    if os.fork() == 0:
        sys.exit(7)


def _is_unknown_to_python() -> None:
    """Fork like a C library."""
    ctypes.CDLL(None).fork()


def _forks_twice() -> None:
    os.fork()
    os.fork()


def _stays() -> None:
    if os.fork() == 0:
        time.sleep(60)


def _computes() -> None:
    forked = multiprocessing.get_context("fork")
    with forked.Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]


def _writes() -> None:
    for descriptor in (1, 2):
        os.write(descriptor, b"\0\0\0\0\0\0\0\1x")


FORKS = {
    "returns": _returns,
    "raises": _raises,
    "leaves": _leaves,
    "is unknown to Python": _is_unknown_to_python,
    "forks twice": _forks_twice,
    "stays": _stays,
    "computes": _computes,
    "writes": _writes,
}


@app.task(name="fork", executor="process")
def fork(how: str) -> str:
    """Return `how` in the process itself; its forks end before it does."""
    me = os.getpid()
    FORKS[how]()
    if os.getpid() == me and how != "stays":
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
    return how


@app.task(name="exit_code", executor="process")
def exit_code(how: str) -> int:
    """Return the exit code of the fork."""
    pid = os.fork()
    if pid == 0:
        if how == "leaves":
            sys.exit(7)
        if how == "raises":
            raise ValueError("in the fork")
        return 1
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.task(name="close_pipes", executor="process")
def close_pipes(replaced: bool) -> str:
    """Close all open files like a daemon; some tests open others in their place."""
    os.closerange(3, 256)
    if replaced:
        for _ in range(16):
            os.open(os.devnull, os.O_RDWR)
    return "closed"


@app.task(name="echo", executor="process")
def echo(text: str) -> str:
    return text


@app.task(name="pid", executor="process")
def pid() -> int:
    return os.getpid()
