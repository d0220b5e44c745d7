"""Many tasks, several producers, and several workers; one worker is killed every second.

`$TASKMQ_TEST_KILL_TASKS` is the number of tasks; the default is small, the long campaign uses tens of thousands.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.e2e.kit import LoneWorker, Project, until

TASKS = int(os.environ.get("TASKMQ_TEST_KILL_TASKS", "2000"))
PRODUCERS = 2
WORKERS = 2
CONCURRENCY = 8
PREFETCH = 16
PERIOD = 1.0

PRODUCER = """
import sys
import jobs

first, last = int(sys.argv[1]), int(sys.argv[2])
for start in range(first, last, 50):
    jobs.nap.send_many([(n,) for n in range(start, min(start + 50, last))])
"""


@pytest.mark.slow
@pytest.mark.timeout(60 + TASKS / 20)
def test_every_task_runs_although_a_worker_is_killed_every_second(project: Project) -> None:
    log, rng = project.folder / "log-workers", random.Random(20261121)
    (project.folder / "producer.py").write_text(PRODUCER)
    workers = [LoneWorker(project, log, concurrency=CONCURRENCY, prefetch=PREFETCH) for _ in range(WORKERS)]
    for worker in workers:
        worker.wait_until_ready()
    share = TASKS // PRODUCERS
    producers = [
        subprocess.Popen(
            [sys.executable, "producer.py", str(number * share), str((number + 1) * share)],
            cwd=project.folder,
            env=project.environment,
        )
        for number in range(PRODUCERS)
    ]

    kills = 0
    kill_at = time.monotonic() + PERIOD
    deadline = time.monotonic() + 40 + TASKS / 25
    while len(_count_starts(project)) < PRODUCERS * share:
        assert time.monotonic() < deadline, (
            f"{len(_count_starts(project))} of {TASKS} after {kills} kills:\n{log.read_text()[-5000:]}"
        )
        time.sleep(max(0.0, min(0.1, kill_at - time.monotonic())))
        if time.monotonic() >= kill_at:
            victim = rng.randrange(WORKERS)
            assert workers[victim].end(signal.SIGKILL) == -signal.SIGKILL
            kills += 1
            workers[victim] = LoneWorker(project, log, concurrency=CONCURRENCY, prefetch=PREFETCH)
            workers[victim].wait_until_ready()
            kill_at = time.monotonic() + PERIOD
    assert [producer.wait(30) for producer in producers] == [0] * PRODUCERS
    until(lambda: project.waiting() == 0, "the queues are empty", details=lambda: f"{project.stats()}")
    assert [worker.end(signal.SIGTERM) for worker in workers] == [0] * WORKERS

    executed = _count_starts(project)
    assert set(executed) == set(range(PRODUCERS * share))
    duplicates = sum(executed.values()) - len(executed)
    # For the long campaign's report; pytest shows it with -s.
    print(f"{TASKS} tasks, {kills} workers killed, {duplicates} run twice, at most {kills * PREFETCH} may")
    assert kills >= min(2, TASKS // 500)
    # Only unacked jobs of a killed worker may run again.
    assert duplicates <= kills * PREFETCH, f"{duplicates} duplicates for {kills} kills"
    assert project.waiting() == 0


def _count_starts(project: Project) -> Counter[int]:
    """Return how often each task has started, from the ledger."""
    return Counter(int(line[1]) for line in project.ledger)
