"""Jobs with early acknowledgement that kill their worker, with real processes: each is started at most once."""

import itertools

import pytest

from tests.e2e.kit import JOBS, Project

DEADLY = (
    JOBS
    + """
import signal

def die(way):
    if way == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)

@app.task(ack="early", retry=None)
async def coroutine(name: str, way: str) -> None:
    note("started", name)
    if way != "live":
        die(way)

@app.task(ack="early", retry=None, executor="thread")
def thread(name: str, way: str) -> None:
    note("started", name)
    if way != "live":
        die(way)

@app.task
async def marked(name: str, way: str) -> None:
    note("started", name)
    if way != "live":
        die(way)

@app.task
async def last(name: str) -> None:
    note("ended", name)

@app.task(ack="early", retry=None, executor="process")
def process(name: str, way: str) -> None:
    note("started", name)
    if way != "live":
        die(way)
"""
)
JOBS_IN_TURN = [("first", "exit"), ("second", "kill"), ("third", "exit"), ("behind", "live")]


def _in_the_gate(*chosen: tuple[str, str]) -> pytest.MarkDecorator:
    """Return each broker with each executor; the gate runs the named ones."""
    cases = [
        pytest.param(
            *case,
            marks=[
                *([pytest.mark.rabbitmq] if "rabbitmq" in case else []),
                *([] if case in chosen else [pytest.mark.matrix]),
            ],
        )
        for case in itertools.product(("local", "rabbitmq"), ("coroutine", "thread", "process"))
    ]
    return pytest.mark.parametrize(("project", "executor"), cases, indirect=["project"])


@_in_the_gate(("rabbitmq", "process"))
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_job_that_ends_its_worker_is_started_once_and_those_behind_it_run(project: Project, executor: str) -> None:
    _define(project, executor)
    for name, way in JOBS_IN_TURN:
        project.app.tasks[f"jobs.{executor}"].send(name, way)

    run = project.start(concurrency=1, prefetch=4)

    project.wait_for("started", "behind")
    run.signal()
    assert run.wait() == 0
    assert [line[1] for line in project.ledger if line[0] == "started"] == [name for name, _ in JOBS_IN_TURN]
    assert _count_left(project) == 0


@pytest.mark.parametrize("project", [pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)], indirect=True)
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_job_with_a_guarantee_of_its_own_is_started_once_though_it_ends_its_worker(project: Project) -> None:
    _define(project, "marked")
    marked = project.app.tasks["jobs.marked"].options(guarantee="at_most_once")
    for name, way in JOBS_IN_TURN:
        marked.send(name, way)

    run = project.start(concurrency=1, prefetch=4)

    project.wait_for("started", "behind")
    run.signal()
    assert run.wait() == 0
    assert [line[1] for line in project.ledger if line[0] == "started"] == [name for name, _ in JOBS_IN_TURN]
    assert _count_left(project) == 0


@_in_the_gate(("rabbitmq", "coroutine"))
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_concurrent_jobs_are_started_at_most_once_each(project: Project, executor: str) -> None:
    _define(project, executor)
    task = project.app.tasks[f"jobs.{executor}"]
    names = [f"deadly-{number}" for number in range(4)]
    for name in names:
        task.send(name, "kill")
    # Late, since an early one may die with the worker that another one kills.
    project.app.tasks["jobs.last"].send("behind")

    run = project.start(concurrency=4)

    project.wait_for("ended", "behind")
    run.signal()
    assert run.wait() == 0
    started = [line[1] for line in project.ledger if line[0] == "started"]
    assert len(started) == len(set(started))


def _count_left(project: Project) -> int:
    """Return the unfinished jobs; one whose own process died is a dead letter."""
    return sum(entry.ready for entry in project.stats()[:-1])


def _define(project: Project, executor: str) -> None:
    project.write(DEADLY)

    async def takes_name(name: str, way: str) -> None: ...

    project.app.task(name=f"jobs.{executor}", ack="late" if executor == "marked" else "early")(takes_name)

    async def takes_only_name(name: str) -> None: ...

    project.app.task(name="jobs.last")(takes_only_name)
