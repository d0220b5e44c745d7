"""Processor time and peak memory of runs in threads and processes."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from taskmq.executors import ProcessExecutor, ThreadExecutor
from taskmq.model.envelope import JSON, Envelope
from taskmq.run.context import Context
from taskmq.run.execution import Execution
from tests.unit.executors.kit import execution, run

_TASKS = """
import time
from taskmq import TaskMQ

app = TaskMQ("memory://usage")

@app.task(name="fill", executor="process", result=False)
def fill(size: int) -> None:
    filled = bytearray(size)
    for at in range(0, size, 4096):
        filled[at] = 1
    until = time.process_time() + 0.03
    while time.process_time() < until:
        pass
"""
_MIB = 1 << 20


def _burn() -> None:
    until = time.thread_time() + 0.03
    while time.thread_time() < until:
        pass


def test_a_run_in_a_thread_knows_its_own_processor_time() -> None:
    burning, idle = execution(_burn), execution(lambda: None)

    async def main() -> None:
        executor = ThreadExecutor()
        await asyncio.gather(executor.run(burning), executor.run(idle))
        await executor.aclose()

    run(main())

    assert burning.processor is not None
    assert burning.processor >= 29
    assert idle.processor is not None
    assert idle.processor < 29
    assert burning.peak_memory is idle.peak_memory is None


def _fill(size: int) -> Execution:
    message = Envelope(task="fill", args=msgspec.Raw(b"[%d]" % size), kwargs=msgspec.Raw(b"{}"))
    context = Context(message, job_id="job-1", max_attempts=1, queue="work", redelivered=False)
    return Execution(context, print, (size,), {}, message, JSON, None)


def test_each_run_in_a_reused_process_knows_its_own_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "usage_tasks.py").write_text(_TASKS)
    monkeypatch.chdir(tmp_path)
    large, small = _fill(200 * _MIB), _fill(0)

    async def main() -> None:
        executor = ProcessExecutor("usage_tasks:app", size=1, url="memory://given", state=None)
        try:
            await executor.run(large)
            await executor.run(small)
        finally:
            await executor.aclose()

    run(main())

    assert large.processor is not None
    assert large.processor >= 30
    assert large.peak_memory is not None
    assert large.peak_memory > 200 * _MIB
    # A kernel that cannot reset the peak leaves it unknown.
    assert small.peak_memory is None or small.peak_memory < 200 * _MIB
