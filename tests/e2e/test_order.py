"""Ordered queues while workers change: two at a time, one of which is killed or stopped again and again.

The order is read from a ledger that tasks write and that no crash damages. `$TASKMQ_TEST_ORDER_JOBS` is the number
of jobs.
"""

import os
import random
import signal
import time

import pytest

from taskmq import RetryPolicy, TaskMQ, WorkQueue
from taskmq.model.topology import dead_letter_queue
from tests.e2e.kit import LoneWorker, Project, until

JOBS = int(os.environ.get("TASKMQ_TEST_ORDER_JOBS", "400"))
KEYS = 8
SHARDS = 4
PERIOD = 0.8
ATTEMPTS = 3

CODE = f"""
import asyncio, os
from taskmq import Context, RetryPolicy, TaskMQ, WorkQueue

QUEUE = WorkQueue("orders", KIND, ordered={SHARDS})
app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"], queues=[QUEUE])


def note(*words):
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, (" ".join(map(str, words)) + "\\n").encode())
    os.close(ledger)


@app.task(queue="orders", order_key="key", retry=RetryPolicy(max_attempts={ATTEMPTS}, base=0.05))
async def step(context: Context, key: str, n: int) -> None:
    note("begin", key, n, os.getpid())
    await asyncio.sleep(0.01)
    fails = n % 10 == 7 or (n % 5 == 3 and context.attempt == 1)
    is_over = not fails or context.attempt == {ATTEMPTS}
    note("end" if is_over else "failed", key, n, os.getpid())
    if fails:
        raise RuntimeError(n)
"""


@pytest.mark.slow
@pytest.mark.timeout(120 + JOBS / 5)
@pytest.mark.parametrize(
    ("project", "kind"),
    [
        # It supports no queue kinds.
        pytest.param("local", "quorum", marks=pytest.mark.matrix),
        pytest.param("rabbitmq", "quorum", marks=pytest.mark.rabbitmq),
        pytest.param("rabbitmq", "classic", marks=[pytest.mark.rabbitmq, pytest.mark.matrix]),
    ],
    indirect=["project"],
)
def test_jobs_of_one_key_run_in_order_whatever_happens_to_their_workers(project: Project, kind: str) -> None:
    project.write(CODE.replace("KIND", repr(kind)), "steps.py")
    app = _app(project, kind)
    rng = random.Random(20261121)
    log = project.folder / "log-workers"
    sent = {f"key-{number}": JOBS // KEYS for number in range(KEYS)}

    workers = [LoneWorker(project, log, target="steps:app", concurrency=8) for _ in range(2)]
    for worker in workers:
        worker.wait_until_ready()
    step = app.tasks["steps.step"]
    step.send_many([(key, n) for n in range(JOBS // KEYS) for key in sent])

    killed: set[int] = set()
    ends = 0
    kill_at = time.monotonic() + PERIOD
    deadline = time.monotonic() + 60 + JOBS / 5
    while sum(_count_ended(project).values()) < sum(sent.values()):
        assert time.monotonic() < deadline, f"{_count_ended(project)}\n{log.read_text()[-5000:]}"
        time.sleep(0.05)
        if time.monotonic() >= kill_at:
            victim = rng.randrange(2)
            # One after the other: the second method leaves nothing to repeat.
            number = (signal.SIGKILL, signal.SIGTERM)[ends % 2]
            if number is signal.SIGKILL:
                killed.add(workers[victim].pid)
            assert workers[victim].end(number) == (-signal.SIGKILL if number is signal.SIGKILL else 0)
            ends += 1
            workers[victim] = LoneWorker(project, log, target="steps:app", concurrency=8)
            workers[victim].wait_until_ready()
            kill_at = time.monotonic() + PERIOD
    # The last job is still unacknowledged.
    dead = sum(1 for n in range(JOBS // KEYS) for _ in sent if n % 10 == 7)
    until(lambda: _count_left(project, app) == 0, "the shards are empty", details=lambda: log.read_text()[-5000:])
    assert [worker.end(signal.SIGTERM) for worker in workers] == [0, 0]

    violations = _violations(project.ledger, killed)
    print(
        f"{sum(sent.values())} jobs, {ends} workers ended, {len(killed)} of them killed: {violations or 'in order'}"
    )
    assert not violations
    assert _count_ended(project) == sent
    assert ends >= 2
    # A job whose worker is killed before its ack runs twice.
    (letters,) = project.stats(dead_letter_queue("orders"))
    assert dead <= letters.ready <= dead + len(killed) * KEYS
    app.close()


def _app(project: Project, kind: str) -> TaskMQ:
    queue = WorkQueue("orders", "classic" if kind == "classic" else "quorum", ordered=SHARDS)
    app = TaskMQ(project.url, state=project.state, queues=[queue])

    @app.task(name="steps.step", queue="orders", order_key="key", retry=RetryPolicy(max_attempts=ATTEMPTS))
    async def step(key: str, n: int) -> None: ...

    return app


def _count_left(project: Project, app: TaskMQ) -> int:
    shards = project.stats(*app.producer.queue("orders").physical)
    return sum(stats.ready + (stats.unsettled or 0) for stats in shards)


def _count_ended(project: Project) -> dict[str, int]:
    """Return the number of jobs of each key that have had their last run."""
    ended: dict[str, set[int]] = {}
    for line in project.ledger:
        if line[0] == "end":
            ended.setdefault(line[1], set()).add(int(line[2]))
    return {key: len(numbers) for key, numbers in ended.items()}


def _violations(ledger: list[list[str]], killed: set[int]) -> list[str]:
    """Return the violations: a job that starts before its predecessor has ended, or beside another run."""
    found: list[str] = []
    last: dict[str, int] = {}
    is_over: dict[str, bool] = {}
    running: dict[str, int | None] = {}
    for word, key, number, process in ((line[0], line[1], int(line[2]), int(line[3])) for line in ledger):
        if word != "begin":
            running[key] = None
            is_over[key] = word == "end"
            continue
        if (beside := running.get(key)) is not None and beside not in killed:
            found.append(f"{key}: {number} began in {process} while {last[key]} ran in {beside}")
        before = last.get(key, -1)
        if number != before and not (number == before + 1 and is_over.get(key, True)):
            found.append(f"{key}: {number} began after {before}")
        last[key], running[key], is_over[key] = number, process, False
    return found
