import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.errors import InvalidArguments, Reject, TaskMQError, TaskTimeout, UnknownTask, WorkerLost
from taskmq.executors import ProcessExecutor
from taskmq.model.envelope import JSON, MSGPACK, Envelope
from taskmq.run.context import Context
from taskmq.run.execution import Execution
from taskmq.testing.runner import CancelPoint
from tests.coroutines import run_by
from tests.servers.waiting import until
from tests.unit.executors.kit import LOOPS, run

TASKS = '''
import asyncio, ctypes, os, signal, subprocess, sys, time
from datetime import datetime
from pathlib import Path
from taskmq import Context, Reject, TaskMQ
from taskmq.run.context import current_context

app = TaskMQ("memory://in-the-code")

class holder:
    app = app

class Picky(Exception):
    """Can be pickled and not unpickled."""
    def __init__(self, a, b):
        super().__init__(f"{a} {b}")

class Private(Exception):
    def __init__(self):
        super().__init__("private")
        self.secret = lambda: None

def task(function):
    return app.task(name=function.__name__, executor="process", result=False)(function)

@task
def pid() -> int: return os.getpid()

@task
def add(a: int, b: int = 1) -> int: return a + b

@task
def day(when: datetime) -> object: return when.strftime("%A"), when

@task
def echo(data: str) -> str: return data

@task
def sleep(seconds: float, started: str = "") -> None:
    if started:
        Path(started).write_text(str(os.getpid()))
    time.sleep(seconds)

@task
def fail() -> None: raise ValueError("no")

@task
def reject() -> None: raise Reject("not mine")

@task
def picky() -> None: raise Picky(1, 2)

@task
def private() -> None: raise Private()

@task
def leave(code: int) -> None: sys.exit(code)

@task
def drop_dead(code: int) -> None: os._exit(code)

@task
def kill_myself() -> None: os.kill(os.getpid(), signal.SIGKILL)

@task
def fork_and_die(started: str, leaves: bool = False) -> None:
    if os.fork() == 0:
        if leaves:
            os.setsid()
        Path(started).write_text(str(os.getpid()))
        time.sleep(60)
    while not os.path.exists(started) or not Path(started).read_text():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

@task
def spawn(started: str) -> None:
    child = subprocess.Popen(["sleep", "60"])
    Path(started).write_text(str(child.pid))
    time.sleep(60)

@task
def unpicklable() -> object: return lambda: None

@task
def noisy() -> str:
    print("x" * 100_000, flush=True)
    os.write(1, b"raw")
    os.system("echo from a shell")
    ctypes.CDLL(None).puts(b"from C")
    return sys.stdin.read()

@task
def stop_iteration() -> None: raise StopIteration("done")

@task
def cancelled() -> None: raise asyncio.CancelledError("own")

@task
def look(context: Context) -> object:
    assert current_context.get() is context
    return {
        "job_id": context.job_id, "task": context.task, "attempt": context.attempt, "queue": context.queue,
        "max_attempts": context.max_attempts, "redelivered": context.redelivered, "tenant": context.tenant,
        "root": context.root, "deadline": context.deadline, "meta": dict(context.meta),
        "schedule": context.schedule, "scheduled_for": context.scheduled_for,
        "fence": context.fence, "idempotency_key": context.idempotency_key, "fencing_token": context.fencing_token,
        "run_id": context.run_id, "started": context.started,
    }

@task
def key(context: Context) -> str | None: return context.idempotency_key

@task
def urls() -> object: return app.sessions.url, app.sessions.state_url
'''


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create a folder with the tasks' module, in which children start; none of them may remain."""
    (tmp_path / "process_tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    yield
    assert _children() == []


def _children(parent: int | None = None) -> list[int]:
    """Return the living executor processes that `parent` started."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            owner = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"taskmq.executors.child" in command and owner == (parent or os.getpid()):
            found.append(int(folder.name))
    return found


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _executor(size: int = 2, *, target: str = "process_tasks:app") -> ProcessExecutor:
    return ProcessExecutor(target, size=size, url="memory://given", state="memory://given-state")


def _execution(
    task: str, *args: Any, timeout: float | None = None, content_type: str = JSON, **envelope: Any
) -> Execution:
    encode = msgspec.json.encode if content_type == JSON else msgspec.msgpack.encode
    message = Envelope(task=task, args=msgspec.Raw(encode(args)), kwargs=msgspec.Raw(encode({})), **envelope)
    context = Context(
        message,
        job_id="job-1",
        max_attempts=4,
        queue="work",
        redelivered=True,
        _deadline=1_700_000_000.5,
        fence=("order:7", 5),
        started=1_699_999_000_000,
    )
    return Execution(context, print, args, {}, message, content_type, timeout)


def _in_loop(
    test: Callable[[ProcessExecutor], Any], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    async def main() -> None:
        executor = _executor()
        try:
            await test(executor)
        finally:
            await executor.aclose()

    run(main(), loop_factory=loop_factory)


BOTH_LOOPS = pytest.mark.parametrize(
    "loop_factory",
    [
        pytest.param(LOOPS[0], id="asyncio", marks=pytest.mark.nightly("tests/unit/executors/test_process.py")),
        pytest.param(LOOPS[1], id="uvloop"),
    ],
)
Loop = Callable[[], asyncio.AbstractEventLoop]


@BOTH_LOOPS
def test_functions_run_in_a_reused_process(loop_factory: Loop) -> None:
    async def test(executor: ProcessExecutor) -> None:
        pids = {await executor.run(_execution("pid")) for _ in range(5)}

        assert len(pids) == 1
        assert pids != {os.getpid()}
        assert await executor.run(_execution("add", 1, 2)) == 3

    _in_loop(test, loop_factory)


@run_by(_in_loop)
async def test_arguments_use_the_encoding_of_the_message_and_values_need_none(executor: ProcessExecutor, /) -> None:
    when = datetime(2026, 11, 21, tzinfo=UTC)
    data = "x" * 3_000_000

    for content_type in (JSON, MSGPACK):
        assert await executor.run(_execution("day", when, content_type=content_type)) == ("Saturday", when)
        assert await executor.run(_execution("echo", data, content_type=content_type)) == data


@pytest.mark.real_time
async def test_the_app_may_be_an_attribute_of_an_object_in_the_module() -> None:
    executor = _executor(target="process_tasks:holder.app")
    assert await executor.run(_execution("add", 1)) == 2
    await executor.aclose()


@run_by(_in_loop)
async def test_the_process_has_the_context_and_the_urls_of_the_worker(executor: ProcessExecutor, /) -> None:
    meta = {"a": "b", "taskmq.schedule": "nightly", "taskmq.scheduled_for": "1700000000000"}
    it = _execution("look", attempt=3, tenant="acme", root="root-1", meta=meta, step_of="run-1/load[2]")

    seen = await executor.run(it)

    assert isinstance(seen, dict)
    assert seen == {name: getattr(it.context, name) for name in seen}
    assert seen["run_id"] == "run-1"
    # Without a fence, the key comes from the message.
    it = _execution("key", key="order:7")
    it.context.fence = None
    assert await executor.run(it) == "order:7"
    assert await executor.run(_execution("urls")) == ("memory://given", "memory://given-state")


@run_by(_in_loop)
async def test_an_error_keeps_its_traceback_and_the_process_survives(executor: ProcessExecutor, /) -> None:
    before = await executor.run(_execution("pid"))

    for task, kind, words in (
        ("fail", ValueError, "no"),
        ("reject", Reject, "not mine"),
        ("picky", TaskMQError, "Picky: 1 2"),
        ("private", TaskMQError, "Private: private"),
        ("cancelled", asyncio.CancelledError, "own"),
        ("stop_iteration", RuntimeError, "StopIteration"),
        ("nobody", UnknownTask, "nobody"),
    ):
        with pytest.raises(kind, match=words) as caught:
            await executor.run(_execution(task))

        error = caught.value.__cause__ if kind is RuntimeError else caught.value
        text = "".join([str(error), *getattr(error, "__notes__", [])])
        assert "process_tasks.py" in text or task == "nobody"
        assert await executor.run(_execution("pid")) == before


@run_by(_in_loop)
async def test_bad_arguments_values_and_exits_fail_the_task_and_not_its_process(executor: ProcessExecutor, /) -> None:
    before = await executor.run(_execution("pid"))

    with pytest.raises(InvalidArguments):
        await executor.run(_execution("add", "x"))
    with pytest.raises(Exception, match="lambda"):
        await executor.run(_execution("unpicklable"))
    with pytest.raises(SystemExit) as caught:
        await executor.run(_execution("leave", 3))

    assert caught.value.code == 3
    assert await executor.run(_execution("pid")) == before


def test_printing_and_reading_in_a_task_do_not_disturb_the_frames(capfd: pytest.CaptureFixture[str]) -> None:
    async def test(executor: ProcessExecutor) -> None:
        assert await executor.run(_execution("noisy")) == ""
        assert await executor.run(_execution("add", 1)) == 2

    _in_loop(test)
    out, error = capfd.readouterr()
    assert out == ""
    assert "xxx" in error
    assert "from a shell" in error


@BOTH_LOOPS
def test_a_dying_process_fails_only_its_own_task(loop_factory: Loop) -> None:
    async def test(executor: ProcessExecutor) -> None:
        other = asyncio.ensure_future(executor.run(_execution("sleep", 0.3)))

        with pytest.raises(WorkerLost, match="killed by SIGKILL"):
            await executor.run(_execution("kill_myself"))
        with pytest.raises(WorkerLost, match="exit code 7"):
            await executor.run(_execution("drop_dead", 7))

        await other
        assert await executor.run(_execution("add", 1)) == 2

    _in_loop(test, loop_factory)


@BOTH_LOOPS
def test_the_death_of_an_idle_process_fails_no_task_and_its_id_is_not_killed(
    monkeypatch: pytest.MonkeyPatch, loop_factory: Loop
) -> None:
    killed: list[int] = []

    def record(group: int, number: int) -> None:
        killed.append(group)

    async def test(executor: ProcessExecutor) -> None:
        pid = await executor.run(_execution("pid"))
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        (child,) = executor._idle
        await until(lambda: not child.is_alive)
        # Its pipes may end before the system gives its id away.
        await until(lambda: child._protocol.has_exited)
        with monkeypatch.context() as patch:
            patch.setattr(os, "killpg", record)
            assert await executor.run(_execution("add", 1)) == 2

    _in_loop(test, loop_factory)
    assert killed == []


@BOTH_LOOPS
@pytest.mark.parametrize("leaves", [False, True], ids=["in its session", "that has left its session"])
def test_a_death_is_noticed_even_if_a_fork_keeps_the_pipes_open(
    tmp_path: Path, loop_factory: Loop, leaves: bool
) -> None:
    started = tmp_path / "started"

    async def test(executor: ProcessExecutor) -> None:
        async with asyncio.timeout(20):
            with pytest.raises(WorkerLost, match="SIGKILL"):
                await executor.run(_execution("fork_and_die", str(started), leaves))

        fork = int(started.read_text())
        if leaves:
            os.kill(fork, signal.SIGKILL)
        await until(lambda: not _is_alive(fork))

    _in_loop(test, loop_factory)


@BOTH_LOOPS
def test_a_run_beyond_its_timeout_is_killed_with_its_child_processes(tmp_path: Path, loop_factory: Loop) -> None:
    started = tmp_path / "started"

    async def test(executor: ProcessExecutor) -> None:
        await executor.run(_execution("pid"))
        it = _execution("spawn", str(started), timeout=1)

        with pytest.raises(TaskTimeout):
            await executor.run(it)

        assert it.context.cancelled
        await until(lambda: not _is_alive(int(started.read_text())))
        assert _children() == []
        assert await executor.run(_execution("add", 1)) == 2

    _in_loop(test, loop_factory)


@BOTH_LOOPS
def test_a_cancelled_run_is_killed(tmp_path: Path, loop_factory: Loop) -> None:
    started = tmp_path / "started"

    async def test(executor: ProcessExecutor) -> None:
        running = asyncio.ensure_future(executor.run(_execution("sleep", 60, str(started))))
        await until(lambda: started.exists() and bool(started.read_text()))

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert _children() == []
        assert await executor.run(_execution("add", 1)) == 2

    _in_loop(test, loop_factory)


@BOTH_LOOPS
def test_cancelling_a_run_at_any_moment_of_its_start_leaves_no_process(loop_factory: Loop) -> None:
    async def test(executor: ProcessExecutor) -> None:
        for point in CancelPoint.ALL:
            running = asyncio.ensure_future(executor.run(_execution("sleep", 60)))
            await point.reach()
            running.cancel()
            await asyncio.wait((running,), timeout=10)

            assert running.done(), point
            await until(lambda: not _children())
        assert await executor.run(_execution("add", 1)) == 2

    _in_loop(test, loop_factory)


@run_by(_in_loop)
async def test_at_most_one_process_per_slot_runs(executor: ProcessExecutor, /) -> None:
    runs = [asyncio.ensure_future(executor.run(_execution("sleep", 0.05))) for _ in range(6)]

    def are_over() -> bool:
        assert len(_children()) <= 2
        return all(each.done() for each in runs)

    await until(are_over)
    await asyncio.gather(*runs)


@BOTH_LOOPS
def test_closing_kills_running_starting_and_waiting_runs(tmp_path: Path, loop_factory: Loop) -> None:
    started = tmp_path / "started"

    async def main() -> None:
        executor = _executor(size=2)
        running = asyncio.ensure_future(executor.run(_execution("sleep", 60, str(started))))
        await until(lambda: started.exists() and bool(started.read_text()))
        starting = asyncio.ensure_future(executor.run(_execution("sleep", 60)))
        waiting = asyncio.ensure_future(executor.run(_execution("sleep", 60)))
        await asyncio.sleep(0)

        await executor.aclose()

        async with asyncio.timeout(10):
            for lost in (running, starting, waiting):
                with pytest.raises(WorkerLost):
                    await lost
        with pytest.raises(WorkerLost):
            await executor.run(_execution("add", 1))
        await executor.aclose()
        assert _children() == []

    run(main(), loop_factory=loop_factory)


@pytest.mark.real_time
async def test_a_module_that_the_process_cannot_import_fails_the_run_and_not_the_worker() -> None:
    executor = _executor(target="no_such_module:app")
    for _ in range(2):
        with pytest.raises(WorkerLost, match="exit code 1"):
            await executor.run(_execution("add", 1))
    await executor.aclose()


def test_processes_end_with_their_worker(tmp_path: Path) -> None:
    started = tmp_path / "started"
    worker = tmp_path / "worker.py"
    worker.write_text(
        textwrap.dedent("""
            import asyncio, json, sys
            from tests.unit.executors.test_process import _execution, _executor

            async def main():
                executor = _executor()
                await asyncio.gather(*(executor.run(_execution("sleep", 60, started)) for started in sys.argv[1:]))

            asyncio.run(main())
        """)
    )
    root = str(Path(__file__).parents[3])
    process = subprocess.Popen(
        [sys.executable, str(worker), str(started), f"{started}-2"],
        env={**os.environ, "PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        asyncio.run(until(lambda: all(Path(f"{started}{n}").exists() for n in ("", "-2"))))
        asyncio.run(until(lambda: all(Path(f"{started}{n}").read_text() for n in ("", "-2"))))
        pids = [int(Path(f"{started}{n}").read_text()) for n in ("", "-2")]
        assert all(_is_alive(pid) for pid in pids)
    finally:
        process.kill()
        process.wait()

    asyncio.run(until(lambda: not any(_is_alive(pid) for pid in pids)))


def test_the_module_of_these_tasks_is_an_app(tmp_path: Path) -> None:
    """A mistake in the module would otherwise look like one of the executor."""
    shown = subprocess.run(
        [sys.executable, "-c", "import json, process_tasks as m; print(json.dumps(sorted(m.app.tasks)))"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        timeout=30,
    )

    assert "add" in json.loads(shown.stdout)
    assert isinstance(TaskMQ("memory://"), TaskMQ)
