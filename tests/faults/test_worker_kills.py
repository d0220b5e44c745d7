"""Workers killed by the test and by their tasks, and workers that run for long.

$TASKMQ_TEST_KILLS          number of kills of a worker under a running task (default 1; campaign 200)
$TASKMQ_TEST_POISON         tasks that kill their process (default 8; campaign 1000), one of twenty the worker
$TASKMQ_TEST_INNOCENT       harmless tasks beside them (default 80; campaign 100,000)
$TASKMQ_TEST_SOAK_SECONDS   seconds of a worker at full speed (default 5; campaign 1200)
"""

import asyncio
import json
import os
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskmq.model.topology import DEFAULT_QUEUE, WorkQueue, dead_letter_queue
from tests.e2e.kit import LoneWorker, Project, until
from tests.faults.gauge import Gauge

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

KILLS = int(os.environ.get("TASKMQ_TEST_KILLS", "1"))
POISON = int(os.environ.get("TASKMQ_TEST_POISON", "4"))
INNOCENT = int(os.environ.get("TASKMQ_TEST_INNOCENT", "40"))
SOAK = float(os.environ.get("TASKMQ_TEST_SOAK_SECONDS", "5"))
_CAMPAIGN = 50
_MIB = 1024
# Polls of the worker at full speed: the first and the last fifth are compared.
_LEAST_POLLS = 11
WORK = WorkQueue(DEFAULT_QUEUE).physical

JOBS = """
import asyncio, os, signal, time
from taskmq import Context, TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])
_ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(*words):
    os.write(_ledger, (" ".join(map(str, words)) + "\\n").encode())

@app.task(result=False)
async def held(context: Context, name: str) -> None:
    note("started", name, os.getpid(), time.monotonic_ns())
    while not os.path.exists(f"open-{name}"):
        await asyncio.sleep(0.005)
    note("finished", name, os.getpid(), time.monotonic_ns())

@app.task(executor="process", result=False)
def kills_its_process(name: str) -> None:
    note("started", name, os.getpid(), 0)
    os._exit(3)

@app.task(result=False)
async def kills_its_worker(name: str) -> None:
    note("started", name, os.getpid(), 0)
    os.kill(os.getpid(), signal.SIGKILL)

@app.task(result=False)
async def innocent(context: Context, name: str) -> None:
    note("ran", name, context.attempt, 0)

@app.task(result=False)
async def quick(n: int) -> None:
    pass

@app.task
async def tasks() -> int:
    return len(asyncio.all_tasks())
"""


@pytest.fixture
def project(tmp_path: Path, amqp_url: str) -> Iterator[Project]:
    it = Project(tmp_path, amqp_url, f"local://{tmp_path}/embedded")
    it.write(JOBS)

    async def takes_name(name: str) -> None: ...

    async def takes_number(n: int) -> None: ...

    async def takes_nothing() -> int:
        return 0

    for task in ("held", "kills_its_process", "kills_its_worker", "innocent"):
        it.app.task(name=f"jobs.{task}", result=False)(takes_name)
    it.app.tasks._tasks.pop("jobs.quick")
    it.app.task(name="jobs.quick", result=False)(takes_number)
    it.app.task(name="jobs.tasks")(takes_nothing)
    yield it
    it.close()


def quantiles(values: Sequence[float]) -> str:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return f"p50 {statistics.median(ordered) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, max {ordered[-1] * 1000:.0f} ms"


@pytest.mark.timeout(120 + 5 * KILLS)
def test_a_task_of_a_killed_worker_soon_runs_elsewhere(project: Project) -> None:
    workers = [_worker(project, name) for name in ("one", "two")]
    seconds: list[float] = []
    try:
        for number in range(KILLS):
            name = f"job-{number}"
            project.send("held", name)
            (first,) = project.wait_for("started", name)
            victim = next(worker for worker in workers if worker.pid == int(first[0]))
            killed = time.monotonic_ns()
            victim.process.kill()
            _, second = project.wait_for("started", name, count=2)
            seconds.append((int(second[1]) - killed) / 1e9)
            assert second[0] != first[0]
            project.open(name)
            project.wait_for("finished", name)
            victim.end(signal.SIGKILL)
            workers[workers.index(victim)] = _worker(project, f"{name}-successor")
    finally:
        for worker in workers:
            worker.end(signal.SIGKILL)
    print(f"{KILLS} kills: killed to running elsewhere {quantiles(seconds)}")
    # A campaign has the machine to itself; the gate shares it.
    assert KILLS < _CAMPAIGN or statistics.median(seconds) < 5


@pytest.mark.nightly(
    "tests/e2e/test_poison.py::test_a_job_that_kills_its_worker_is_dead_after_three_starts_and_others_run"
)
@pytest.mark.timeout(300 + 4 * POISON + INNOCENT // 50)
def test_killing_tasks_are_dead_after_three_starts_and_no_other_is_charged(project: Project) -> None:
    async def send() -> None:
        async with project.app as app:
            poison = {
                f"poison-{number}": "kills_its_worker" if number % 20 == 0 else "kills_its_process"
                for number in range(POISON)
            }
            names = [f"good-{number}" for number in range(INNOCENT)]
            # Mixed, so that each has neighbours.
            for place, (name, task) in enumerate(poison.items()):
                each = names[place * INNOCENT // POISON : (place + 1) * INNOCENT // POISON]
                await app.tasks[f"jobs.{task}"].asend(name)
                await app.tasks["jobs.innocent"].asend_many([(one,) for one in each])

    asyncio.run(send())
    began = time.monotonic()
    with _keep_alive(project, 2) as deaths:
        until(
            lambda: sum(entry.ready for entry in project.stats(dead_letter_queue(DEFAULT_QUEUE))) >= POISON,
            f"{POISON} dead letters",
            within=240 + 4 * POISON,
        )
        # Some may exist twice, and unacked ones are not among the ready ones.
        until(
            lambda: len({*asyncio.run(_letters(project))}) == POISON,
            f"a letter of each of {POISON}",
            within=60 + POISON // 2,
        )
        until(lambda: _ran(project) >= INNOCENT, f"{INNOCENT} innocent ones ran", within=120 + INNOCENT // 100)
        until(
            lambda: sum(entry.ready + (entry.unsettled or 0) for entry in project.stats(*WORK)) == 0,
            "nothing but dead letters is left",
            within=60,
            details=lambda: f"{project.stats()}",
        )
    lines = project.ledger
    attempts = Counter(line[2] for line in lines if line[0] == "ran")
    starts = Counter(line[1] for line in lines if line[0] == "started")
    twice = sum(count - 1 for count in Counter(line[1] for line in lines if line[0] == "ran").values())
    letters = asyncio.run(_letters(project))
    assert {name.split("-")[0] for name in letters} == {"poison"}
    assert len({*letters}) == POISON
    # A worker killed between a letter's confirm and the ack leaves a second one.
    assert len(letters) - POISON <= len(deaths)
    assert set(attempts) == {"1"}
    assert max(starts.values()) <= 3
    print(
        f"{POISON} that kill among {INNOCENT}: {time.monotonic() - began:.0f} s, {len(deaths)} workers died, starts "
        f"{dict(Counter(starts.values()))}, letters twice {len(letters) - POISON}, innocent ones dead 0, charged 0, "
        f"run again {twice}"
    )


@pytest.mark.nightly("tests/integration/test_rabbitmq_outages.py::test_reconnects_leave_nothing_behind")
@pytest.mark.timeout(180 + 3 * SOAK)
def test_a_worker_at_full_speed_uses_no_more_at_the_end_than_at_the_start(project: Project) -> None:
    worker = _worker(project, "soak", concurrency=100)
    gauge = Gauge({"worker": worker.pid})
    coroutines: list[int] = []
    count = 0

    async def feed() -> None:
        nonlocal count
        async with project.app as app:
            quick, tasks = app.tasks["jobs.quick"], app.tasks["jobs.tasks"]
            end = time.monotonic() + SOAK
            while time.monotonic() < end or len(coroutines) < _LEAST_POLLS:
                await quick.asend_many([(number,) for number in range(5000)])
                count += 5000
                job = await tasks.asend()
                coroutines.append(await job.aresult(timeout=120))
                gauge.read()

    began = time.monotonic()
    asyncio.run(feed())
    seconds = time.monotonic() - began
    worker.end(signal.SIGTERM)
    ends = max(len(gauge.samples["worker"]) // 5, 1)
    # The first poll meets a process that has just started.
    gauge.samples["worker"] = gauge.samples["worker"][ends:]
    grown = gauge.growth(ends=ends)["worker"]
    slope = grown.memory / max(seconds / 3600, 1e-9) / _MIB
    print(
        f"{count:,} tasks in {seconds:.0f} s ({count / seconds:,.0f}/s): memory {grown.memory:+} KiB "
        f"({slope:+.1f} MiB/h), descriptors {grown.descriptors:+}, threads {grown.threads:+}, "
        f"coroutines {coroutines[0]} -> {coroutines[-1]}"
    )
    assert grown.memory < 8 * _MIB
    assert grown.descriptors <= 1
    assert grown.threads <= 1
    # Including those of the running tasks.
    assert max(coroutines) < 200


def _worker(project: Project, name: str, *, concurrency: int = 32) -> LoneWorker:
    worker = LoneWorker(project, project.folder / f"log-lone-{name}", concurrency=concurrency)
    worker.wait_until_ready()
    return worker


def _ran(project: Project) -> int:
    return len({line[1] for line in project.ledger if line[0] == "ran"})


@contextmanager
def _keep_alive(project: Project, count: int) -> Iterator[list[int]]:
    """Run that many workers, each replaced at once when it dies; return the pids of the dead ones."""
    deaths: list[int] = []
    stopping = threading.Event()

    def keep(place: int) -> None:
        number = 0
        worker = LoneWorker(project, project.folder / f"log-kept-{place}", concurrency=32)
        while not stopping.wait(0.02):
            if worker.process.poll() is not None:
                deaths.append(worker.pid)
                worker.end(signal.SIGKILL)
                number += 1
                worker = LoneWorker(project, project.folder / f"log-kept-{place}", concurrency=32)
        worker.wait_until_ready()
        worker.end(signal.SIGTERM)

    threads = [threading.Thread(target=keep, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield deaths
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


async def _letters(project: Project) -> list[str]:
    found: list[str] = []
    async with project.app as app, app.sessions.current().broker.browse(dead_letter_queue(DEFAULT_QUEUE)) as look:
        while deliveries := await look.take(500):
            found += [json.loads(delivery.body)["args"][0] for delivery in deliveries]
    return found
