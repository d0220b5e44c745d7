"""A slot whose process cannot even be started."""

import asyncio
import errno
import logging

import pytest

from taskmq.supervisor.child_process import ChildProcess
from taskmq.supervisor.exit_reason import ExitReason
from taskmq.supervisor.process_slot import ProcessSlot


class Full:
    """A system that cannot create processes."""

    def __init__(self) -> None:
        self.tries = 0

    async def start(self, slot: ProcessSlot) -> ChildProcess:
        self.tries += 1
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    def slot(self) -> ProcessSlot:
        return ProcessSlot(0, start=self.start, judge=ExitReason, proven=lambda: True, burst=False)


async def test_a_failing_process_restarts_with_growing_pauses_and_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = Full()
    slot = full.slot()

    with caplog.at_level(logging.ERROR):
        running = asyncio.create_task(slot.run())
        for tries in (1, 2, 3):
            async with asyncio.timeout(10):
                while full.tries < tries or slot.next_try is None:
                    await asyncio.sleep(0.01)
            assert slot.failures == tries
            # Twice as long each time; not waited for here.
            slot.restart_now()
            await asyncio.sleep(0)
        slot.retire()
        assert await running == "done"

    assert [record.getMessage().partition("unavailable ")[2] for record in caplog.records][:3] == [
        "(once); starting another in 0.5 s",
        "(2 times in a row); starting another in 1.0 s",
        "(3 times in a row); starting another in 2.0 s",
    ]
    assert "cannot start a worker process" in caplog.text


@pytest.mark.real_time
async def test_an_empty_slot_replaces_nothing() -> None:
    assert await Full().slot().replace("restarting") is None
