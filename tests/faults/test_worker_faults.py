"""Effects of user code on a worker: one test per row of the fault table.

Each prints its figure. $TASKMQ_TEST_BLOCK_SECONDS is the time for which user code blocks a worker (default 3 s with
heartbeats of 2 s; the campaign uses 60 s with the default heartbeats of taskmq).
"""

import asyncio
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskmq.errors import ResultTimeout, TaskFailed
from taskmq.executors.memory import MemoryGroup
from taskmq.model.topology import DEFAULT_QUEUE
from taskmq.operations.dead_letters import DeadLetter, browse
from tests.e2e.kit import LoneWorker, Project, until
from tests.servers import eventually

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("TASKMQ_TEST_BLOCK_SECONDS", "3"))
# The default interval.
HEARTBEAT = "" if SECONDS >= 10 else "?heartbeat=2"
QUICK = 60

JOBS = """
import asyncio, itertools, os, signal, sys, time
from pathlib import Path
from taskmq import Context, RetryPolicy, TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])
_ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
TWICE = RetryPolicy(max_attempts=2, base=0.1, jitter=False)

def note(*words):
    os.write(_ledger, (" ".join(map(str, words)) + "\\n").encode())

def for_good(name, **options):
    return app.task(name=f"jobs.{name}", retry=TWICE, **options)

@app.task
async def quick(n: int) -> int:
    note("ran", n)
    return n

@app.task
async def holds_the_loop(seconds: float) -> None:
    note("started", "it", os.getpid())
    time.sleep(seconds)
    note("finished", "it")

@app.task
def holds_the_gil(seconds: float) -> None:
    note("started", "it", os.getpid())
    # For some ticks of the watch, which then knows the thread.
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        pass
    # In C alone, which computes and gives nobody else a turn.
    next(itertools.dropwhile((until + seconds).__gt__, iter(time.monotonic, None)))
    note("finished", "it")

@app.task
async def gated(context: Context, name: str) -> int:
    note("started", name, os.getpid())
    while not os.path.exists(f"open-{name}"):
        await asyncio.sleep(0.01)
    note("finished", name, os.getpid())
    return os.getpid()

@app.task(retry=TWICE)
async def fails_gated(context: Context, name: str) -> int:
    note("started", name, os.getpid(), context.attempt)
    while not os.path.exists(f"open-{name}"):
        await asyncio.sleep(0.01)
    note("finished", name, os.getpid(), context.attempt)
    raise ValueError("no")

class Broken(Exception):
    def __str__(self): raise RuntimeError("no words")
    def __repr__(self): raise RuntimeError("no words either")
    def __reduce__(self): raise RuntimeError("nor a form")

def broken():
    note("attempt", "broken")
    raise Broken()

def exits():
    sys.exit(3)

async def exits_async():
    sys.exit(3)

async def interrupts():
    raise KeyboardInterrupt

def closes():
    os._exit(5)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def grows():
    data = bytearray(600 * 2**20)
    for at in range(0, len(data), 4096):
        data[at] = 1
    time.sleep(5)

def eats():
    note("started", "eats")
    grows()

def stuck():
    while not os.path.exists("release"):
        time.sleep(0.02)

async def soft():
    await asyncio.sleep(600)

async def hard():
    await asyncio.sleep(600)

async def no_form():
    return object()

async def too_large():
    return "x" * 300_000

for_good("exits")(exits)
for_good("exits_async")(exits_async)
for_good("exits_process", executor="process")(exits)
for_good("interrupts")(interrupts)
for_good("closes", executor="process")(closes)
for_good("killed", executor="process")(killed)
for_good("broken")(broken)
for_good("broken_process", executor="process")(broken)
for_good("grows", executor="process", resources={"memory": "256M"})(grows)
for_good("eats", executor="process")(eats)
for_good("stuck", timeout=0.3)(stuck)
for_good("stuck_process", executor="process", timeout=1)(stuck)
for_good("soft", soft_timeout=0.2, timeout=20)(soft)
for_good("hard", timeout=0.2)(hard)
for_good("no_form")(no_form)
for_good("too_large")(too_large)
"""

# The outcome of each: the reason of its dead letter, and its error message.
FAULTS = {
    "exits": ("error", "SystemExit: 3"),
    "exits_async": ("error", "SystemExit: 3"),
    "exits_process": ("error", "SystemExit: 3"),
    "interrupts": ("error", "KeyboardInterrupt"),
    "closes": ("worker_lost", "its process ended before it did"),
    "killed": ("worker_lost", "its process ended before it did"),
    "broken": ("error", "its message cannot be read: RuntimeError"),
    "broken_process": ("error", "its message cannot be read: RuntimeError"),
    "grows": ("memory", "more than its memory of 256M"),
    "stuck": ("timeout", "longer than its timeout of 0.3 s"),
    "stuck_process": ("timeout", "longer than its timeout of 1 s"),
    "soft": ("timeout", "longer than its soft_timeout of 0.2 s"),
    "hard": ("timeout", "longer than its timeout of 0.2 s"),
    "no_form": ("result", "EncodeError"),
    "too_large": ("result", "has 300,002 bytes, the limit is 100,000"),
}


def _project(folder: Path, url: str) -> Project:
    it = Project(folder, url, f"local://{folder}/embedded")
    it.write(JOBS)

    async def takes_nothing() -> None: ...

    async def takes_seconds(seconds: float) -> None: ...

    async def takes_name(name: str) -> None: ...

    for task in (*FAULTS, "eats"):
        it.app.task(name=f"jobs.{task}")(takes_nothing)
    for task in ("holds_the_loop", "holds_the_gil"):
        it.app.task(name=f"jobs.{task}")(takes_seconds)
    it.app.task(name="jobs.fails_gated")(takes_name)
    return it


@pytest.fixture(
    params=[pytest.param("local", marks=pytest.mark.matrix), pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)]
)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    is_local = request.param == "local"
    it = _project(tmp_path, f"local://{tmp_path}/embedded" if is_local else request.getfixturevalue("amqp_url"))
    yield it
    it.close()


@pytest.fixture
def at_rabbitmq(tmp_path: Path, amqp_url: str) -> Iterator[Project]:
    it = _project(tmp_path, f"{amqp_url}{HEARTBEAT}")
    yield it
    it.close()


@pytest.fixture
def at_local(tmp_path: Path) -> Iterator[Project]:
    it = _project(tmp_path, f"local://{tmp_path}/embedded")
    yield it
    it.close()


def _runs(project: Project) -> Counter[str]:
    return Counter(line[1] for line in project.ledger if line[0] == "ran")


@pytest.mark.timeout(120 + 4 * SECONDS)
@pytest.mark.rabbitmq
@pytest.mark.parametrize(
    "fault",
    [
        "holds_the_loop",
        # A frozen process is the same to its connections.
        pytest.param(
            "holds_the_gil",
            marks=pytest.mark.nightly(
                "tests/faults/test_worker_faults.py::test_a_delayed_worker_keeps_its_connection_and_runs_everything_once"
            ),
        ),
        "freeze",
    ],
)
def test_a_delayed_worker_keeps_its_connection_and_runs_everything_once(at_rabbitmq: Project, fault: str) -> None:
    project = at_rabbitmq
    # Reported earlier than usual: a thread measures its own processor time, which is scarce on a busy machine.
    worker = project.start(concurrency=8, slow_loop_warning=0.3 if fault == "holds_the_gil" else 1.0)
    if fault == "freeze":
        project.send("gated", "it")
    else:
        project.send(fault, SECONDS)
    ((pid, *_),) = project.wait_for("started", "it")
    began = time.monotonic()
    if fault == "freeze":
        os.kill(int(pid), signal.SIGSTOP)
    for number in range(QUICK):
        project.send("quick", number)
    if fault == "freeze":
        time.sleep(SECONDS)
        os.kill(int(pid), signal.SIGCONT)
        project.open("it")

    until(lambda: len(_runs(project)) == QUICK, "all have run", within=60 + SECONDS, details=lambda: worker.log)
    project.wait_for("finished", "it")
    seconds = time.monotonic() - began
    until(lambda: project.waiting() == 0, "nothing is left", details=lambda: worker.log)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0

    assert set(_runs(project).values()) == {1}
    assert len(project.ledger_lines("started", "it")) == 1
    assert "connection lost" not in worker.log
    assert "publishing a copy to" not in worker.log
    if fault == "holds_the_loop":
        assert "event loop blocked for" in worker.log
        assert "in holds_the_loop" in worker.log
        assert "running: jobs.holds_the_loop (job " in worker.log
        over = re.search(r"event loop runs again; it was blocked for (\d+\.\d) s", worker.log)
        assert over is not None
        assert float(over[1]) > SECONDS - 1
    else:
        assert "no Python code of this process could run for" in worker.log
    print(f"\n{fault} for {SECONDS:g} s: over after {seconds:.1f} s, connections lost 0, {QUICK} tasks run once each")


@pytest.mark.timeout(180)
@pytest.mark.rabbitmq
def test_a_worker_frozen_for_longer_than_its_heartbeats_settles_nothing(tmp_path: Path, amqp_url: str) -> None:
    project = _project(tmp_path, f"{amqp_url}?heartbeat=2")
    workers = [frozen := LoneWorker(project, tmp_path / "log-frozen", concurrency=4)]
    frozen.wait_until_ready()
    try:
        jobs = {task: project.app.job(project.send(task, task)) for task in ("gated", "fails_gated")}
        for task in jobs:
            assert project.wait_for("started", task)[0][0] == str(frozen.pid)
        began = time.monotonic()
        os.kill(frozen.pid, signal.SIGSTOP)
        workers.append(other := LoneWorker(project, tmp_path / "log-other", concurrency=4))
        other.wait_until_ready()
        for task in jobs:
            project.wait_for("started", task, count=2)
        elsewhere = time.monotonic() - began
        for task in jobs:
            project.open(task)
        assert jobs["gated"].result(timeout=30) == other.pid
        with pytest.raises(TaskFailed, match="no"):
            jobs["fails_gated"].result(timeout=30)

        os.kill(frozen.pid, signal.SIGCONT)
        project.wait_for("finished", "gated", count=2)
        project.wait_for("finished", "fails_gated", count=3)
        # Its connection is back, and it works again.
        workers.remove(other)
        other.end(signal.SIGTERM)
        assert project.app.tasks["jobs.quick"].send(7).result(timeout=30) == 7
        until(lambda: project.waiting() == 1, "nothing but one dead letter is left")

        assert jobs["gated"].result(timeout=5) == other.pid
        # Its late failure was not followed by another attempt.
        assert Counter(line[1] for line in project.ledger_lines("finished", "fails_gated")) == {"1": 2, "2": 1}
        assert len(_letters(project)) == 1
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGCONT)
            worker.end(signal.SIGTERM)
        project.close()
    print(f"\nfrozen beyond its heartbeats: running elsewhere after {elsewhere:.1f} s, late result and failure void")


@pytest.mark.timeout(180)
def test_every_fault_of_a_task_affects_only_itself_and_has_its_own_reason(project: Project) -> None:
    worker = project.start(concurrency=8, process_slots=2, result_limit=100_000)
    child = worker.children
    began = time.monotonic()
    jobs: dict[str, Any] = {}
    for number, fault in enumerate(FAULTS):
        project.send("quick", number)
        jobs[fault] = project.app.tasks[f"jobs.{fault}"].send()
    errors: dict[str, str] = {}
    for fault, job in jobs.items():
        with pytest.raises(TaskFailed) as caught:
            _wait_for_result(project, fault, job)
        errors[fault] = str(caught.value)
    until(lambda: len(_runs(project)) == len(FAULTS), "the innocent have run", details=lambda: worker.log)
    # A letter is written after the sender sees the result.
    until(lambda: len(_letters(project)) == len(FAULTS), "each failure has its letter", details=lambda: worker.log)
    seconds = time.monotonic() - began
    (project.folder / "release").touch()
    letters = {letter.task.removeprefix("jobs."): letter for letter in _letters(project)}

    assert {fault: letter.reason for fault, letter in letters.items()} == {
        fault: reason for fault, (reason, _) in FAULTS.items()
    }
    assert {fault: words in errors[fault] for fault, (_, words) in FAULTS.items()} == dict.fromkeys(FAULTS, True), (
        errors
    )
    assert set(_runs(project).values()) == {1}
    assert worker.children == child
    assert worker.exit_code is None
    assert project.app.tasks["jobs.quick"].send(1000).result(timeout=30) == 1000
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    print(
        f"\n{len(FAULTS)} kinds of fault in {seconds:.1f} s: each dead with its own reason, worker process the same, "
        f"innocent ones run once each; {json.dumps({fault: reason for fault, (reason, _) in FAULTS.items()})}"
    )


def _wait_for_result(project: Project, fault: str, job: Any) -> None:
    try:
        job.result(timeout=90)
    except ResultTimeout as error:
        raise AssertionError(f"{fault!r} has not ended:\n{project.abort_processes()}") from error


@pytest.fixture
def memory_group() -> Iterator[Callable[[list[int]], None]]:
    """Put processes into a control group with 300 MB in total."""
    groups: list[MemoryGroup] = []

    def confine(pids: list[int]) -> None:
        group = MemoryGroup.around(pids[0])
        if group is None:
            pytest.skip("no control groups for memory here")
        groups.append(group)
        for pid in pids[1:]:
            (group.folder / "cgroup.procs").write_text(str(pid))
        group.limit(300 * 2**20)

    yield confine
    for group in groups:
        eventually(lambda group=group: group.remove() or not group.folder.exists(), "the group is empty")  # type: ignore[misc]


@pytest.mark.nightly(
    "tests/faults/test_worker_faults.py::test_every_fault_of_a_task_affects_only_itself_and_has_its_own_reason"
)
@pytest.mark.timeout(120)
def test_out_of_memory_kills_the_executor_process_and_not_the_worker(
    at_local: Project, memory_group: Callable[[list[int]], None]
) -> None:
    project = at_local
    worker = LoneWorker(project, project.folder / "log-lone", concurrency=8, process_slots=1)
    worker.wait_until_ready()
    try:
        memory_group([worker.pid, *_children(worker.pid)])
        began = time.monotonic()
        for number in range(QUICK):
            project.send("quick", number)
        with pytest.raises(TaskFailed, match="its process ended before it did"):
            project.app.tasks["jobs.eats"].send().result(timeout=60)
        until(lambda: len(_runs(project)) == QUICK, "the innocent have run")
        seconds = time.monotonic() - began
        until(lambda: len(_letters(project)) == 1, "the failure has its letter")

        assert len(project.ledger_lines("started", "eats")) == 3
        assert set(_runs(project).values()) == {1}
        assert [letter.reason for letter in _letters(project)] == ["worker_lost"]
        assert project.app.tasks["jobs.quick"].send(1000).result(timeout=30) == 1000
    finally:
        code = worker.end(signal.SIGTERM)
    assert code == 0
    print(f"\nout of memory in 300 MB: dead after 3 starts, {seconds:.1f} s; worker alive, {QUICK} run once")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _letters(project: Project) -> list[DeadLetter]:
    async def look() -> list[DeadLetter]:
        async with project.app as app:
            return await browse(app.sessions.current().broker, DEFAULT_QUEUE, limit=100)

    return asyncio.run(look())
