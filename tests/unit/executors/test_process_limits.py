"""Limits of a run in a separate process, and of the processes."""

import asyncio
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskmq.errors import MemoryExceeded, ResultTooLarge, SoftTimeout, TaskMQError, TaskTimeout, WorkerLost
from taskmq.executors import ProcessExecutor
from taskmq.executors.memory import MemoryGroup
from taskmq.model.resources import Grant
from tests.coroutines import run_by
from tests.servers.waiting import until
from tests.unit.executors.kit import run
from tests.unit.executors.test_process import _children, _execution

TASKS = """
import ctypes, logging, os, sys, time
from pathlib import Path
from taskmq import Context, SoftTimeout, TaskMQ

app = TaskMQ("memory://in-the-code")

def task(function):
    return app.task(name=function.__name__, executor="process", result=False)(function)

class Broken(Exception):
    def __str__(self): raise RuntimeError("no words")
    def __repr__(self): raise RuntimeError("no words either")
    def __reduce__(self): raise SystemExit("nor a form")

class Changeling(Exception):
    def __reduce__(self): return str, ("not an exception any more",)

class Unreadable:
    def __reduce__(self): return eval, ("1 / 0",)

@task
def pid() -> int: return os.getpid()

@task
def add(a: int, b: int = 1) -> int: return a + b

@task
def broken() -> None: raise Broken()

@task
def changeling() -> None: raise Changeling("was one")

@task
def unreadable() -> object: return Unreadable()

@task
def huge(size: int) -> bytes: return bytes(size)

@task
def grow(size: int) -> int:
    data = bytearray(size)
    for at in range(0, size, 4096):
        data[at] = 1
    time.sleep(0.3)
    return len(data)

@task
def keep(size: int) -> int:
    app.kept = bytearray(size)
    for at in range(0, size, 4096):
        app.kept[at] = 1
    return os.getpid()

@task
def softly() -> str:
    try:
        time.sleep(30)
    except SoftTimeout as error:
        return str(error)

@task
def soft_in_python() -> None:
    while True:
        pass

@task
def swallows() -> None:
    while True:
        try:
            time.sleep(30)
        except SoftTimeout:
            pass

@task
def stops(context: Context, started: str) -> str:
    Path(started).touch()
    while not context.cancelled:
        time.sleep(0.005)
    return "asked to stop"

@task
def yields(context: Context, started: str) -> str:
    Path(started).touch()
    while context.preempted is None:
        time.sleep(0.005)
    return f"{context.preempted}, {context.cancelled}"

@task
def is_preempted(context: Context) -> str | None: return context.preempted

@task
def closes() -> None: os.closerange(3, 256)

@task
def says() -> None:
    logging.getLogger("shop").info("a word from the task")
    print("printed")

@task
def given(context: Context) -> object:
    return dict(context.resources.amounts), context.resources.devices

@task
def environment() -> object:
    return [os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")]
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "limited_tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    yield
    assert _children() == []


def _executor(size: int = 1, **options: Any) -> ProcessExecutor:
    return ProcessExecutor("limited_tasks:app", size=size, url="memory://", state=None, **options)


def _run_limited(task: str, *args: Any, grant: Grant | None = None, soft: float | None = None, **options: Any) -> Any:
    it = _execution(task, *args, **options)
    it.grant = grant
    it.soft_timeout = soft
    return it


def _in_loop(test: Callable[[ProcessExecutor], Any], **options: Any) -> None:
    async def main() -> None:
        executor = _executor(**options)
        try:
            await test(executor)
        finally:
            await executor.aclose()

    run(main())


@run_by(_in_loop)
async def test_an_unencodable_or_undecodable_value_is_an_error(executor: ProcessExecutor, /) -> None:
    before = await executor.run(_run_limited("pid"))
    for task, words in (
        ("broken", r"Broken: \(its message cannot be read: RuntimeError\)"),
        ("changeling", "Changeling: was one"),
        ("unreadable", "cannot be sent between processes: ZeroDivisionError: division by zero"),
    ):
        with pytest.raises(TaskMQError, match=words):
            await executor.run(_run_limited(task))
        assert await executor.run(_run_limited("pid")) == before


@run_by(_in_loop)
async def test_a_large_value_is_transferred(executor: ProcessExecutor, /) -> None:
    await _check_transfer(executor, 20_000_000)


@pytest.mark.nightly("tests/unit/executors/test_process_limits.py::test_a_large_value_is_transferred")
@run_by(_in_loop)
async def test_a_huge_value_is_transferred(executor: ProcessExecutor, /) -> None:
    await _check_transfer(executor, 200_000_000)


async def _check_transfer(executor: ProcessExecutor, size: int) -> None:
    value = await executor.run(_run_limited("huge", size))
    assert isinstance(value, bytes)
    assert len(value) == size


@run_by(_in_loop)
async def test_the_process_refuses_a_value_beyond_the_limit(executor: ProcessExecutor, /) -> None:
    executor._setup.answer_limit = 1000
    with pytest.raises(ResultTooLarge, match=r"the result of task huge has 1,0.. bytes, the limit is 1,000"):
        await executor.run(_run_limited("huge", 1000))
    assert await executor.run(_run_limited("add", 1)) == 2


@run_by(_in_loop)
async def test_a_soft_timeout_interrupts_the_main_thread_even_in_a_system_call(executor: ProcessExecutor, /) -> None:
    await executor.run(_run_limited("pid"))
    words = await executor.run(_run_limited("softly", soft=0.1, timeout=20))
    assert words == "task softly ran longer than its soft_timeout of 0.1 s"
    with pytest.raises(SoftTimeout, match="soft_in_python"):
        await executor.run(_run_limited("soft_in_python", soft=0.1, timeout=20))
    before = await executor.run(_run_limited("pid"))
    with pytest.raises(TaskTimeout) as caught:
        await executor.run(_run_limited("swallows", soft=0.1, timeout=0.3))
    assert not isinstance(caught.value, SoftTimeout)
    assert await executor.run(_run_limited("pid")) != before


@run_by(_in_loop)
async def test_runs_that_end_exactly_at_their_soft_timeout_leave_no_alarm_behind(
    executor: ProcessExecutor, /
) -> None:
    before = await executor.run(_run_limited("pid"))
    for number in range(300):
        try:
            assert await executor.run(_run_limited("add", 1, soft=1e-6 * (1 + number))) == 2
        except SoftTimeout:
            continue
    await asyncio.sleep(0.01)
    assert await executor.run(_run_limited("pid")) == before


@run_by(_in_loop)
async def test_a_run_in_a_process_is_asked_to_stop_and_may_end_by_itself(
    executor: ProcessExecutor, /, tmp_path: Path
) -> None:
    started = tmp_path / "started"

    it = _run_limited("stops", str(started))
    running = asyncio.ensure_future(executor.run(it))
    await until(started.exists)
    executor.ask_to_stop(it)
    assert await running == "asked to stop"
    executor.ask_to_stop(it)
    assert await executor.run(_run_limited("add", 1)) == 2


@run_by(_in_loop)
async def test_a_run_in_a_process_is_told_of_its_preemption_and_the_next_one_is_not(
    executor: ProcessExecutor, /, tmp_path: Path
) -> None:
    started = tmp_path / "started"

    it = _run_limited("yields", str(started))
    running = asyncio.ensure_future(executor.run(it))
    await until(started.exists)
    executor.preempt(it, "preempted by pool acme")
    assert await running == "preempted by pool acme, False"

    assert await executor.run(_run_limited("is_preempted")) is None
    assert await executor.run(_run_limited("add", 1)) == 2


@run_by(_in_loop)
async def test_a_task_that_closes_all_descriptors_loses_only_its_own_run(executor: ProcessExecutor, /) -> None:
    with pytest.raises(WorkerLost):
        await executor.run(_run_limited("closes"))
    assert await executor.run(_run_limited("add", 1)) == 2


def test_processes_log_like_the_worker_and_print_to_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def test(executor: ProcessExecutor) -> None:
        executor._setup.log_level = logging.INFO
        await executor.run(_run_limited("says"))

    _in_loop(test)
    out, error = capfd.readouterr()
    assert out == ""
    assert re.search(r"INFO +\d+ shop: a word from the task", error)
    assert "printed" in error


def test_the_time_to_import_the_app_does_not_count_as_run_time(tmp_path: Path) -> None:
    (tmp_path / "limited_tasks.py").write_text(f"import time; time.sleep(1)\n{TASKS}")

    async def test(executor: ProcessExecutor) -> None:
        assert await executor.run(_run_limited("add", 1, timeout=0.8)) == 2

    _in_loop(test)


@run_by(_in_loop)
async def test_a_process_is_started_ahead_and_replaced_after_its_end(executor: ProcessExecutor, /) -> None:
    executor.warm()
    await until(lambda: len(_children()) == 1)
    (spare,) = _children()
    assert await executor.run(_run_limited("pid")) == spare

    with pytest.raises(WorkerLost):
        await executor.run(_run_limited("closes"))
    await until(lambda: len(_children()) == 1 and _children() != [spare])
    (other,) = _children()
    assert await executor.run(_run_limited("pid")) == other


@run_by(_in_loop, max_tasks=2)
async def test_a_process_is_replaced_after_a_number_of_runs(executor: ProcessExecutor, /) -> None:
    pids = [await executor.run(_run_limited("pid")) for _ in range(6)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 2, 2]


@run_by(_in_loop, max_memory=120 * 2**20)
async def test_a_process_that_has_grown_is_replaced_after_its_run(executor: ProcessExecutor, /) -> None:
    first = await executor.run(_run_limited("pid"))
    assert await executor.run(_run_limited("pid")) == first
    assert await executor.run(_run_limited("keep", 150 * 2**20)) == first
    assert await executor.run(_run_limited("pid")) != first


@pytest.fixture(params=["group", "looks"])
def memory_kept_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "looks":
        monkeypatch.setattr(MemoryGroup, "around", lambda _: None)
    else:
        group = MemoryGroup.around(os.getpid()) if sys.platform == "linux" else None
        if group is None:
            pytest.skip("no control groups for memory here")
        _leave(group)
    return str(request.param)


def _leave(group: MemoryGroup) -> None:
    """Move this process, which only probes the control group, out of it."""
    (group.folder.parent / "cgroup.procs").write_text(str(os.getpid()))
    group.remove()


@pytest.mark.usefixtures("memory_kept_by")
@run_by(_in_loop)
async def test_a_run_beyond_its_memory_limit_is_killed_and_reported(executor: ProcessExecutor, /) -> None:
    grant = Grant({"memory": 128 * 2**20})
    assert await executor.run(_run_limited("grow", 2**20, grant=grant)) == 2**20
    with pytest.raises(MemoryExceeded, match="task grow used more than its memory of 128M") as caught:
        await executor.run(_run_limited("grow", 512 * 2**20, grant=grant))
    assert caught.value.limit == 128 * 2**20
    # The limit applied to that run.
    assert await executor.run(_run_limited("grow", 256 * 2**20)) == 256 * 2**20
    assert await executor.run(_run_limited("grow", 2**20, grant=grant)) == 2**20


def test_the_next_worker_removes_the_control_groups_of_a_killed_one() -> None:
    group = MemoryGroup.around(os.getpid())
    if group is None:
        pytest.skip("no control groups for memory here")
    _leave(group)
    left = group.folder.with_name("taskmq-4194305-1")  # no process has such an id
    left.mkdir()

    async def test(executor: ProcessExecutor) -> None:
        assert await executor.run(_run_limited("grow", 2**20, grant=Grant({"memory": 2**28}))) == 2**20

    _in_loop(test)
    assert not left.exists()


@pytest.mark.usefixtures("memory_kept_by")
@run_by(_in_loop)
async def test_a_run_is_not_killed_for_memory_kept_by_an_earlier_one(executor: ProcessExecutor, /) -> None:
    first = await executor.run(_run_limited("keep", 150 * 2**20))
    grant = Grant({"memory": 128 * 2**20})
    assert await executor.run(_run_limited("grow", 2**20, grant=grant)) == 2**20
    assert await executor.run(_run_limited("pid")) != first


@run_by(_in_loop)
async def test_a_run_sees_its_devices_and_processors_and_processes_keep_theirs(executor: ProcessExecutor, /) -> None:
    grant = Grant({"gpu": 2, "cpu": 2.5}, ("0", "2"))
    assert await executor.run(_run_limited("environment")) == [os.environ.get("CUDA_VISIBLE_DEVICES"), None]
    assert await executor.run(_run_limited("environment", grant=grant)) == ["0,2", "2"]
    assert await executor.run(_run_limited("given", grant=grant)) == ({"gpu": 2, "cpu": 2.5}, ("0", "2"))
    first = await executor.run(_run_limited("pid", grant=grant))
    assert await executor.run(_run_limited("pid", grant=grant)) == first
    assert await executor.run(_run_limited("pid", grant=Grant({"gpu": 1}, ("1",)))) != first
