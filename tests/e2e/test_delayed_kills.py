"""Jobs that wait in the state, and the workers that move them, killed with SIGKILL: all run, none early.

`$TASKMQ_TEST_KILL_DELAYED` is the number of jobs; the default is small, the long campaign uses tens of thousands.
`$TASKMQ_TEST_KILL_PERIOD` is the number of seconds between two kills; a long one shows the lateness of workers that
live.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from taskmq.worker.child_protocol import ChildSpec
from taskmq.worker.config import WorkerConfig
from tests.e2e.kit import Project, until

JOBS = int(os.environ.get("TASKMQ_TEST_KILL_DELAYED", "500"))
WORKERS = 3
PREFETCH = 16
BATCH = 200
SHORTEST, LONGEST = 0.2, 4.0 if JOBS < 5_000 else 10.0
PERIOD = float(os.environ.get("TASKMQ_TEST_KILL_PERIOD", "0.8"))
# Another relay takes over a killed one's batch after this: the send timeout and its margin.
LEASE = 15.0

CODE = """
import os, time
from taskmq import TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"], delay="state")

@app.task(name="jobs.late", result=False)
async def late(n: int, due: float) -> None:
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"ran {n} {time.time() - due:.3f}\\n".encode())
    os.close(ledger)
"""

PRODUCER = """
import asyncio, random, sys, time
import jobs

async def main(count, shortest, longest):
    async def send(n):
        delay = random.uniform(shortest, longest)
        await jobs.late.options(delay=delay).asend(n, time.time() + delay)

    async with jobs.app:
        for start in range(0, count, 100):
            await asyncio.gather(*(send(n) for n in range(start, min(start + 100, count))))

asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
"""


@pytest.fixture(
    params=[pytest.param("local", marks=pytest.mark.matrix), pytest.param("redis", marks=pytest.mark.rabbitmq)]
)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project entirely on one file, or on RabbitMQ and Redis."""
    url = state = f"local://{tmp_path}/embedded"
    if request.param == "redis":
        url, state = str(request.getfixturevalue("amqp_url")), str(request.getfixturevalue("redis_url"))
    it = Project(tmp_path, url, state)
    it.write(CODE)
    yield it
    it.close()


class _Worker:
    """A worker process without a supervisor, which would restart it with growing pauses."""

    def __init__(self, project: Project, log: Path) -> None:
        reading, writing = os.pipe()
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "taskmq.worker.child", str(writing)],
                cwd=project.folder,
                env=project.environment,
                stdin=subprocess.PIPE,
                stderr=file,
                pass_fds=(writing,),
            )
        os.close(writing)
        assert self.process.stdin is not None
        config = WorkerConfig(concurrency=8, prefetch=PREFETCH, max_crashes=0)
        self.process.stdin.write(msgspec.json.encode(ChildSpec(target="jobs:app", config=config)) + b"\n")
        self.process.stdin.flush()
        self._status = os.fdopen(reading, "rb")

    def wait_until_ready(self) -> None:
        assert self._status.readline(), "the worker has ended before it was ready"

    def end(self, number: signal.Signals) -> int:
        assert self.process.stdin is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process.stdin.close()
        self._status.close()
        return code


@pytest.mark.slow
@pytest.mark.timeout(120 + JOBS / 20)
def test_every_delayed_job_runs_and_none_early_although_its_relays_are_killed(project: Project) -> None:
    log, rng = project.folder / "log-workers", random.Random(20261121)
    (project.folder / "producer.py").write_text(PRODUCER)
    workers = [_Worker(project, log) for _ in range(WORKERS)]
    for worker in workers:
        worker.wait_until_ready()
    producer = subprocess.Popen(
        [sys.executable, "producer.py", str(JOBS), str(SHORTEST), str(LONGEST)],
        cwd=project.folder,
        env=project.environment,
    )

    kills = 0
    end, kill_at = time.monotonic() + LONGEST, time.monotonic() + PERIOD
    while time.monotonic() < end or producer.poll() is None:
        time.sleep(0.1)
        if time.monotonic() >= kill_at:
            victim = rng.randrange(WORKERS)
            assert workers[victim].end(signal.SIGKILL) == -signal.SIGKILL
            kills += 1
            workers[victim] = _Worker(project, log)
            workers[victim].wait_until_ready()
            kill_at = time.monotonic() + PERIOD
    until(
        lambda: len(_lateness(project)) == JOBS,
        "all jobs have run",
        within=LEASE + 30 + JOBS / 50,
        details=lambda: f"{len(_lateness(project))} of {JOBS} after {kills} kills:\n{log.read_text()[-5000:]}",
    )
    assert producer.wait(30) == 0
    # Messages that a killed relay had published and not deleted are repeated after its lease.
    until(lambda: not project.app.jobs.list_waiting(), "nothing waits", within=LEASE + 10)
    until(lambda: project.waiting() == 0, "the queues are empty", details=lambda: f"{project.stats()}")
    assert [worker.end(signal.SIGTERM) for worker in workers] == [0] * WORKERS

    late = sorted(_lateness(project).values())
    duplicates = len(project.ledger) - JOBS
    # For the long campaign's report; pytest shows it with -s.
    print(
        f"{JOBS} jobs, {kills} workers killed, {duplicates} run twice, late by "
        f"{late[0]:.3f} s at least, {late[JOBS // 2]:.3f} s p50, {late[JOBS * 99 // 100]:.3f} s p99"
    )
    assert late[0] >= 0
    # Only unacked jobs of a killed worker may run again, and the messages that its relay was publishing.
    assert duplicates <= kills * (PREFETCH + BATCH), f"{duplicates} duplicates for {kills} kills"
    assert set(_lateness(project)) == set(range(JOBS))


def _lateness(project: Project) -> dict[int, float]:
    """Return the first lateness of each executed job in seconds."""
    late: dict[int, float] = {}
    for line in project.ledger:
        late.setdefault(int(line[1]), float(line[2]))
    return late
