"""The poll of the worker processes, once a second: it survives a failure."""

import asyncio
import logging

import pytest

from taskmq.supervisor import Supervisor
from taskmq.supervisor.config import SupervisorConfig
from taskmq.worker import WorkerConfig
from taskmq.worker.child_protocol import ChildSpec


class Hanging:
    """A process that is silent; reading its silence fails at first.

    Args:
        failures: number of failing polls.
    """

    pid = 4711
    consumes = True
    is_paused = False

    def __init__(self, *, failures: int) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.failures = failures
        self.looks = 0
        self.is_killed = False

    @property
    def silent(self) -> float:
        self.looks += 1
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError
        return 100.0

    def kill(self) -> None:
        self.is_killed = True


def _supervisor(child: Hanging) -> Supervisor:
    order = ChildSpec(target="shop:app", config=WorkerConfig())
    supervisor = Supervisor(order, SupervisorConfig(unresponsive_after=10))
    supervisor._children.add(child)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return supervisor


async def test_a_failed_poll_is_logged_and_the_next_one_kills_hanging_processes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = Hanging(failures=2)
    looking = asyncio.create_task(_supervisor(child)._check_repeatedly())
    await asyncio.sleep(2.5)
    assert (child.looks, child.is_killed) == (2, False)

    await asyncio.sleep(1)
    assert child.is_killed
    looking.cancel()
    await asyncio.wait((looking,))

    failed = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert [record.getMessage() for record in failed] == [
        "checking the worker processes failed; next check in 1 s"
    ] * 2


async def test_a_stopping_supervisor_polls_nothing() -> None:
    child = Hanging(failures=0)
    supervisor = _supervisor(child)
    supervisor._signals = 1
    looking = asyncio.create_task(supervisor._check_repeatedly())
    await asyncio.sleep(5)
    looking.cancel()
    await asyncio.wait((looking,))

    assert child.looks == 0
