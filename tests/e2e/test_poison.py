"""Tasks that kill their worker, among harmless tasks, with real processes.

The crashing ends in the dead letter queue after three starts; jobs that waited or ran beside it run, however often
their worker was killed.

`$TASKMQ_TEST_POISON_RESTARTS` is the number of broker restarts under long tasks; by default their connections are
cut instead, which takes less time.
"""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import Delivery
from taskmq.model.topology import DEFAULT_QUEUE, dead_letter_queue
from taskmq.testing.broker_suite.case import peek
from tests.e2e.kit import JOBS, PATIENCE, Project, until
from tests.servers import StartRabbitMQ, TcpProxy

RESTARTS = int(os.environ.get("TASKMQ_TEST_POISON_RESTARTS", "0"))
LOSSES = RESTARTS or 5
INNOCENT = 50
CONCURRENCY = 8
PREFETCH = 64

POISON = (
    JOBS.replace('state=os.environ["JOBS_STATE"]', 'state=os.environ["JOBS_STATE"] or None')
    + """
import signal

@app.task
async def poison(name: str) -> None:
    note("started", name, 1, os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)

@app.task
def slow_poison(name: str) -> None:
    note("started", name, 1, os.getpid())
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)

@app.task(executor="process")
def poison_process(name: str) -> None:
    note("started", name, 1, os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)

@app.task
async def innocent(name: str) -> None:
    note("started", name, 1, os.getpid())
    await asyncio.sleep(0.2)
    note("finished", name)
"""
)


@dataclass(frozen=True)
class Letter:
    """The contents of a dead letter."""

    name: str
    headers: dict[str, object]

    @classmethod
    def read(cls, delivery: Delivery) -> "Letter":
        return cls(json.loads(delivery.body)["args"][0], dict(delivery.headers))

    def says(self, what: str) -> object:
        return self.headers[f"x-taskmq-{what}"]


ON_RABBITMQ = pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)
# The gate uses RabbitMQ, and the embedded broker with a supervisor that is killed too.
AND_EMBEDDED = pytest.param("local", marks=pytest.mark.matrix)


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project on RabbitMQ without a state: the workers count in the folder for temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    if request.param == "rabbitmq":
        it = _project(tmp_path, str(request.getfixturevalue("amqp_url")), "")
    else:
        it = _project(tmp_path, f"local://{tmp_path}/embedded", f"local://{tmp_path}/embedded")
    yield it
    it.close()


def _project(folder: Path, url: str, state: str) -> Project:
    it = Project(folder, url, state or f"local://{folder}/unused")
    if not state:
        it.app.close()
        it.state = ""
        it.app = TaskMQ(url, name="test")
        it._define()
    it.write(POISON)

    async def takes_name(name: str) -> None: ...

    for task in ("poison", "slow_poison", "poison_process", "innocent"):
        it.app.task(name=f"jobs.{task}")(takes_name)
    return it


@pytest.mark.parametrize("project", [AND_EMBEDDED, ON_RABBITMQ], indirect=True)
@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_job_that_kills_its_worker_is_dead_after_three_starts_and_others_run(project: Project) -> None:
    _send(project, poisons=1)

    run = project.start(concurrency=CONCURRENCY, prefetch=PREFETCH)

    (letter,) = _expect_outcome(project, poisons=1)
    assert _starts(project, "poison-0") == 3
    assert letter.says("reason") == "worker_lost"
    assert letter.says("error-type") == "taskmq.errors.WorkerLost"
    assert "was started 3 times" in str(letter.says("error"))
    assert letter.says("starts") == 3
    assert letter.says("worker")
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly(
    "tests/unit/worker/run/test_poison.py::test_jobs_behind_a_suspect_have_not_started_and_are_not_charged_for_its_crash"
)
@pytest.mark.parametrize("project", [ON_RABBITMQ], indirect=True)
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_several_killing_jobs_do_not_affect_the_neighbours_of_each_other(project: Project) -> None:
    _send(project, poisons=3)

    run = project.start(concurrency=CONCURRENCY, prefetch=PREFETCH, processes=2)

    _expect_outcome(project, poisons=3, within=150)
    # Whether a first delivery was started is unknown, so one that sat in the prefetch may have two.
    assert all(2 <= _starts(project, f"poison-{number}") <= 3 for number in range(3))
    run.signal()
    assert run.wait() == 0


@pytest.mark.nightly(
    "tests/unit/worker/run/test_poison.py::test_a_redelivered_job_is_counted_while_it_runs_and_not_after_its_settlement"
)
@pytest.mark.parametrize("project", ["local"], indirect=True)
@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_restart_of_the_supervisor_does_not_reset_the_count_of_starts(project: Project) -> None:
    _send(project, poisons=1)
    run = project.start(wait=False, concurrency=CONCURRENCY, prefetch=PREFETCH)
    project.wait_for("started", "poison-0")
    run.signal(signal.SIGKILL)
    run.wait()

    again = project.start(concurrency=CONCURRENCY, prefetch=PREFETCH)

    _expect_outcome(project, poisons=1)
    assert _starts(project, "poison-0") == 3
    again.signal()
    assert again.wait() == 0


@pytest.mark.nightly(
    "tests/unit/worker/run/test_poison.py::test_a_process_that_dies_under_its_task_is_a_start_whatever_the_retry_policy"
)
@pytest.mark.parametrize("project", [ON_RABBITMQ], indirect=True)
@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_job_that_kills_only_its_own_process_is_dead_after_three_starts_as_well(project: Project) -> None:
    project.send("poison_process", "poison-0")
    for number in range(5):
        project.send("innocent", f"innocent-{number}")

    run = project.start(concurrency=CONCURRENCY)

    (letter,) = _expect_outcome(project, poisons=1, innocents=5)
    assert (_starts(project, "poison-0"), letter.says("reason"), letter.says("attempt")) == (3, "worker_lost", 1)
    assert len(run.children) == 1
    run.signal()
    assert run.wait() == 0


@pytest.mark.parametrize("project", ["local"], indirect=True)
def test_a_job_that_waits_for_a_process_has_not_started_when_its_worker_ends(project: Project) -> None:
    first = project.send("heavy", "first")
    waiting = project.send("heavy", "waiting")
    for lives in (1, 2):
        run = project.start(process_slots=1)
        project.wait_for("started", "first", count=lives)
        run.signal(signal.SIGSTOP)
        for pid in run.children:
            os.kill(pid, signal.SIGKILL)
        run.signal(signal.SIGKILL)
        run.wait()

    async def count(job_id: str) -> int:
        async with project.app as app:
            state = app.sessions.current().state
            assert state is not None
            return await state.starts.begin(job_id, ttl=60)

    assert _starts(project, "waiting") == 0
    # This delivery is the first to be counted; the running one was counted when it returned.
    assert asyncio.run(count(waiting)) == 1
    assert asyncio.run(count(first)) == 2


@pytest.mark.slow
@pytest.mark.rabbitmq
@pytest.mark.timeout(60 + 60 * LOSSES)
def test_repeated_broker_losses_during_long_tasks_kill_none_of_them(
    tmp_path: Path, amqp_url: str, own_rabbitmq: StartRabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ExitStack() as stack:
        lose: Callable[[], None]
        if RESTARTS:
            server = own_rabbitmq()
            url, lose = server.url, server.restart
        else:
            parts = urlsplit(amqp_url)
            proxy = stack.enter_context(TcpProxy(parts.port or 5672))
            url, lose = parts._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl(), proxy.cut
        project = _project(tmp_path, url, "")
        stack.callback(project.close)
        stack.callback(_open_gates, project)
        # Slots for all the runs that continue although their messages were redelivered to others.
        run = project.start(concurrency=4 * (LOSSES + 1), processes=2)
        for number in range(4):
            project.send("gated", f"long-{number}")
            project.wait_for("started", f"long-{number}")

        for losses in range(1, LOSSES + 1):
            lose()
            # Each is redelivered to a worker while its first run continues.
            for number in range(4):
                project.wait_for("started", f"long-{number}", count=losses + 1)
        _open_gates(project)
        until(lambda: project.waiting() == 0, "all is done", within=60, details=lambda: f"{project.stats()}")
        assert _letters(project) == []
        run.signal()
        assert run.wait() == 0


def _open_gates(project: Project) -> None:
    for number in range(4):
        project.open(f"long-{number}")


def _send(project: Project, *, poisons: int) -> None:
    """Spread the poisons evenly over the harmless ones, the first of them in front."""
    every = INNOCENT // poisons
    for number in range(INNOCENT):
        if number % every == 0 and number // every < poisons:
            project.send("poison", f"poison-{number // every}")
        project.send("innocent", f"innocent-{number}")


def _expect_outcome(project: Project, *, poisons: int, innocents: int = INNOCENT, within: float = 90) -> list[Letter]:
    """Wait until nothing is left; return the dead letters: only the poisons, since all others have finished."""
    names = [f"innocent-{number}" for number in range(innocents)]

    def find_finished() -> set[str]:
        return {line[1] for line in project.ledger if line[0] == "finished"}

    began = time.monotonic()
    until(
        lambda: find_finished() == set(names) and project.stats()[-1].ready == poisons,
        "the innocent have finished and the poison is dead",
        within=within,
        details=lambda: f"{Counter(line[1] for line in project.ledger)}\n{project.stats()}",
    )
    letters = _letters(project)
    print(f"{poisons} poison(s) dead and {innocents} others done after {time.monotonic() - began:.1f} s")
    assert sorted(letter.name for letter in letters) == [f"poison-{number}" for number in range(poisons)]
    assert all(entry.ready == 0 for entry in project.stats()[:-1])
    return letters


def _letters(project: Project) -> list[Letter]:
    async def look() -> list[Letter]:
        async with project.app:
            broker = project.app.sessions.current().broker
            await broker.connect(timeout=PATIENCE)
            async with peek(broker, dead_letter_queue(DEFAULT_QUEUE), limit=100) as held:
                return [Letter.read(delivery) for delivery in held]

    return asyncio.run(look())


def _starts(project: Project, name: str) -> int:
    return len(project.ledger_lines("started", name))
