"""Forks of a worker leave the event loop to it."""

import subprocess
import sys

import pytest

_SCRIPT = """
import asyncio, os, socket, sys
from taskmq.run.forks import end_forks
from taskmq.worker.host.event_loop import loop_factory

here, there = socket.socketpair()


def note(what):
    os.write(1, f"{what}\\n".encode())


async def main():
    loop = asyncio.get_running_loop()
    end_forks(loop)
    _, broker = await asyncio.open_connection(sock=here)

    async def fork():
        broker.write(b"ack")
        if (pid := os.fork()) == 0:
            END
        else:
            os.waitpid(pid, 0)

    forking = asyncio.create_task(fork())
    loop.call_soon(note, "next job")
    await forking
    note(there.recv(100))


with asyncio.Runner(loop_factory=FACTORY) as runner:
    runner.run(main())
"""


_LATER = pytest.mark.nightly(
    "tests/unit/run/test_forks.py::test_a_fork_in_an_asyncio_task_of_its_own_does_nothing_more_of_the_loop"
)


@pytest.mark.parametrize("factory", ["loop_factory()", pytest.param("asyncio.new_event_loop", marks=_LATER)])
@pytest.mark.parametrize(
    "end",
    ["return", pytest.param("await asyncio.sleep(0)", marks=_LATER), pytest.param("raise ValueError", marks=_LATER)],
)
def test_a_fork_in_an_asyncio_task_of_its_own_does_nothing_more_of_the_loop(factory: str, end: str) -> None:
    script = _SCRIPT.replace("FACTORY", factory).replace("END", end)

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert sorted(run.stdout.splitlines()) == ["b'ack'", "next job"], run.stderr


_PROCESS = """
import asyncio, multiprocessing, sys
from taskmq.run.forks import end_forks
from taskmq.worker.host.event_loop import loop_factory


def work():
    print(sys.getprofile(), flush=True)


async def main():
    end_forks(asyncio.get_running_loop())

    async def start():
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()

    await asyncio.create_task(start())


with asyncio.Runner(loop_factory=FACTORY) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("factory", ["loop_factory()", pytest.param("asyncio.new_event_loop", marks=_LATER)])
def test_a_process_of_multiprocessing_runs_without_a_profile_function(factory: str) -> None:
    script = _PROCESS.replace("FACTORY", factory)

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert run.stdout == "None\n", run.stderr
