"""Job fields in a worker's log: in lines of tasks, and in lines about jobs that it does not run."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from taskmq.contracts.broker import Outgoing
from tests.e2e.kit import JOBS, Project
from tests.servers import TcpProxy

_JOBS = """
import asyncio, logging, os
from taskmq import TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])
log = logging.getLogger("shop")


@app.task
async def by_coroutine(name: str) -> None:
    await asyncio.to_thread(log.warning, "%s in a thread of a coroutine", name)
    log.warning("%s in a coroutine", name, extra={"task": "own", "queue": 7})

@app.task
def by_thread(name: str) -> None:
    log.warning("%s in a thread", name)

@app.task(executor="process")
def by_process(name: str) -> None:
    log.warning("%s in a process", name)
"""


@pytest.fixture
def logging_project(local_project: Project) -> Project:
    local_project.write(_JOBS)
    for kind in ("coroutine", "thread", "process"):
        local_project.app.task(name=f"jobs.by_{kind}")(_takes_name)
    return local_project


async def _takes_name(name: str) -> None: ...


def test_every_log_line_of_a_task_names_its_job_wherever_the_task_runs(
    logging_project: Project, tmp_path: Path
) -> None:
    project = logging_project
    run = project.start()

    jobs = {kind: project.app.tasks[f"jobs.by_{kind}"].send(kind) for kind in ("coroutine", "thread", "process")}
    for job in jobs.values():
        job.result(timeout=30)

    def tail(kind: str, *, task: str = "", queue: str = "default") -> str:
        return f"[{task or f'jobs.by_{kind}'} job={jobs[kind].id} attempt=1 queue={queue}]"

    assert f"shop: coroutine in a thread of a coroutine {tail('coroutine')}\n" in run.log
    assert f"shop: coroutine in a coroutine {tail('coroutine', task='own', queue='7')}\n" in run.log
    assert f"shop: thread in a thread {tail('thread')}\n" in run.log
    assert f"shop: process in a process {tail('process')}\n" in run.log


_PICKY = (
    JOBS
    + """
import logging

@app.task(result=False)
async def price(item: int) -> None:
    if item < 0:
        raise ValueError(f"item {item} has no price")

@app.task(retry=None)
async def once(item: int) -> None:
    raise LookupError(f"no item {item}")
"""
)
_TAIL = re.compile(r" \[\S+ job=\S+ attempt=\d+ queue=\S+\]$")


@pytest.fixture
def proxied_project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Project, TcpProxy]]:
    """A project with a breakable connection to RabbitMQ."""
    with ExitStack() as stack:
        parts = urlsplit(str(request.getfixturevalue("amqp_url")))
        proxy = stack.enter_context(TcpProxy(parts.port or 5672))
        url = parts._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        project = Project(tmp_path, url, f"local://{tmp_path}/embedded")
        stack.callback(project.close)
        yield project, proxy


@pytest.mark.rabbitmq
def test_a_line_about_a_job_or_a_connection_never_carries_the_fields_of_another_job(
    proxied_project: tuple[Project, TcpProxy],
) -> None:
    project, proxy = proxied_project
    project.write(_PICKY)

    async def takes_anything(item: int | str) -> None: ...

    price = project.app.task(name="jobs.price")(takes_anything)
    # Each behind runs that one member of the task pool executes one after the other.
    for other in ("x", -1):
        price.send_many([(item,) for item in range(40)])
        price.send(other)
    for body in (b"garbage", b'{"task":"jobs.unknown"}'):
        price.send_many([(item,) for item in range(40)])
        _publish(project, body)

    run = project.start(log_errors="message")

    run.wait_for_log("parked")
    run.wait_for_log("requeued")
    run.wait_for_log("retry in")
    run.wait_for_log("dead (invalid_arguments)")
    proxy.cut()
    run.wait_for_log("connection lost")
    project.send("quick", 1)
    project.wait_for("ran", "1")

    # A line that names its job itself has no suffix.
    assert [line for line in run.log.splitlines() if " taskmq" in line and _TAIL.search(line)] == []


def test_a_line_about_a_message_has_no_fields_of_a_running_thread(local_project: Project) -> None:
    project = local_project
    project.write(JOBS)
    run = project.start()
    project.send("threaded", "a")
    project.wait_for("started", "a")

    _publish(project, b'{"task":"jobs.unknown"}')
    run.wait_for_log("requeued")
    project.open("a")

    (line,) = [line for line in run.log.splitlines() if "requeued" in line]
    assert line.endswith("'jobs.unknown' is not registered here: does the app import the module that defines it?")


def _publish(project: Project, body: bytes) -> None:
    message = Outgoing(queue="default", body=body, content_type="application/json", job_id="own", task="any")

    async def publish() -> None:
        async with project.app:
            await project.app.sessions.current().broker.publish(message, timeout=30)

    asyncio.run(publish())


def test_the_log_says_why_and_where_a_job_failed_unless_disabled(local_project: Project) -> None:
    project = local_project
    project.write(_PICKY)

    async def takes_number(item: int) -> None: ...

    once = project.app.task(name="jobs.once")(takes_number)

    logs: dict[str, str] = {}
    for said in ("traceback", "message", "type"):
        run = project.start(log_errors=said)
        once.send(7)
        run.wait_for_log("dead (error)")
        run.signal()
        assert run.wait() == 0
        logs[said] = run.log

    assert "dead (error): LookupError: no item 7\n" in logs["traceback"]
    assert 'raise LookupError(f"no item {item}")' in logs["traceback"]
    assert "dead (error): LookupError: no item 7\n" in logs["message"]
    assert "Traceback" not in logs["message"]
    assert "dead (error): LookupError\n" in logs["type"]
    assert "no item 7" not in logs["type"]
