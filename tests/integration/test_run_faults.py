"""Runs of workflows while workers and schedulers are killed and RabbitMQ is cut off: each step ends once."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from taskmq import RunFailed, TaskMQ, chain, dag
from taskmq.errors import QueueMissing
from taskmq.model.runs.rules import StepState
from taskmq.model.states import JobState
from taskmq.workflow.runs.handle import Run
from tests.cli.kit import Started, names_in
from tests.servers import TcpProxy, eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time, pytest.mark.timeout(150)]

_PATIENCE = 100.0
_MILL = """
import asyncio, os
from pathlib import Path

from taskmq import Context, TaskMQ

app = TaskMQ(os.environ["MILL_URL"], store=os.environ["MILL_STORE"], name="mill")
_ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(word):
    os.write(_ledger, f"{word} {os.getpid()}\\n".encode())


async def gate(name):
    while not Path(name).exists():
        await asyncio.sleep(0.01)


@app.task(name="first", retry=None)
async def first() -> int:
    note("first")
    await gate("open")
    return 1


@app.task(name="once", retry=None, ack="early")
async def once() -> int:
    note("once")
    await gate("open")
    return 1


@app.task(name="more", retry=None)
async def more(number: int, by: int) -> int:
    note(f"more-{by}")
    return number + by


@app.task(name="last", retry=None)
async def last(*numbers: int) -> int:
    note("last")
    return sum(numbers)


@app.task(name="fail", retry=None)
async def fail() -> int:
    raise ValueError("no")
"""


class _Mill:
    """Four steps as processes: one waits at a gate, then three parallel ones, then their sum."""

    def __init__(self, folder: Path, url: str, store: str, proxy: TcpProxy) -> None:
        (folder / "mill.py").write_text(_MILL)
        self.folder = folder
        self.proxy = proxy
        parts = urlsplit(url)
        own = parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}").geturl()
        self.env = {"MILL_URL": own, "MILL_STORE": store}
        self.app = TaskMQ(url, store=store, name="mill")
        for name in ("first", "fail"):
            self.app.task(name=name, retry=None)(_nothing)
        self.app.task(name="once", retry=None, ack="early")(_nothing)
        self.app.task(name="more", retry=None)(_number)
        self.app.task(name="last", retry=None)(_numbers)

    def start(self, what: str) -> Started:
        return Started(self.folder, what, "mill:app", env=self.env)

    def send(self) -> Run[dict[str, int]]:
        graph, tasks = dag(), self.app.tasks
        one = graph.add(tasks["first"].s())
        beside = [graph.add(tasks["more"].s(by=by), after=[one], name=f"more-{by}") for by in (1, 2, 3)]
        graph.add(tasks["last"].s(), after=beside)
        return graph.send()

    def open_gate(self) -> None:
        (self.folder / "open").touch()

    def wait_for(self, word: str, *, times: int = 1) -> None:
        eventually(lambda: self.count()[word] >= times, f"{word} begins")

    def count(self) -> Counter[str]:
        ledger = self.folder / "ledger"
        return Counter(line.split()[0] for line in ledger.read_text().splitlines()) if ledger.exists() else Counter()

    def pid_of(self, word: str) -> int:
        lines = (self.folder / "ledger").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{word} "))


async def _nothing() -> int:
    raise NotImplementedError


async def _number(number: int, by: int) -> int:
    raise NotImplementedError(number, by)


async def _numbers(*numbers: int) -> int:
    raise NotImplementedError(numbers)


@pytest.fixture
def mill(tmp_path: Path, amqp_url: str, job_store_url: str) -> Iterator[_Mill]:
    with TcpProxy(urlsplit(amqp_url).port or 5672) as proxy:
        found = _Mill(tmp_path, amqp_url, job_store_url, proxy)
        with found.app:
            yield found


def test_a_run_ends_although_its_worker_and_its_scheduler_are_killed(mill: _Mill) -> None:
    with ExitStack() as stack:
        worker, scheduler = (stack.enter_context(mill.start(what)) for what in ("worker", "scheduler"))
        worker.says("waiting for jobs")
        run = mill.send()
        mill.wait_for("first")
        scheduler.process.send_signal(signal.SIGKILL)
        os.kill(mill.pid_of("first"), signal.SIGKILL)
        for what in ("worker", "scheduler"):
            stack.enter_context(mill.start(what))
        mill.wait_for("first", times=2)
        mill.open_gate()

        assert run.result(_PATIENCE) == {"last": 9}

    found = mill.count()
    # Execution is at least once; the steps behind it start once.
    assert found.pop("first") >= 2
    assert found == {"more-1": 1, "more-2": 1, "more-3": 1, "last": 1}


@pytest.mark.nightly(
    "tests/integration/test_run_faults.py::test_a_run_ends_although_its_worker_and_its_scheduler_are_killed"
)
def test_a_run_ends_although_rabbitmq_is_cut_off_while_a_step_ends(mill: _Mill) -> None:
    with mill.start("worker") as worker, mill.start("scheduler"):
        worker.says("waiting for jobs")
        run = mill.send()
        mill.wait_for("first")
        mill.proxy.refuse(True)
        mill.proxy.cut()
        mill.open_gate()
        eventually(lambda: "unavailable" in worker.said or "lost" in worker.said, "the worker notices")
        mill.proxy.refuse(False)

        assert run.result(_PATIENCE) == {"last": 9}
        states = run.state()

    assert set(states.steps.values()) == {StepState.SUCCEEDED}
    # The message of a run whose connection was cut comes again; its end counts once.
    assert mill.count()["last"] == 1


def test_a_failed_step_is_a_failed_job_and_no_dead_letter(mill: _Mill) -> None:
    with mill.start("worker"), mill.start("scheduler"):
        run = chain(mill.app.tasks["fail"].si(), mill.app.tasks["first"].si()).send()
        with pytest.raises(RunFailed, match="ValueError: no"):
            run.result(_PATIENCE)
        step = run.steps()[0]

    assert mill.app.jobs.get(step.job).state is JobState.FAILED
    with pytest.raises(QueueMissing):
        names_in("default.dlq", url=mill.env["MILL_URL"])


@pytest.mark.nightly("tests/integration/test_run_faults.py::test_a_failed_step_is_a_failed_job_and_no_dead_letter")
def test_a_step_with_early_acknowledgement_fails_with_its_killed_worker(mill: _Mill) -> None:
    with ExitStack() as stack:
        worker = stack.enter_context(mill.start("worker"))
        stack.enter_context(mill.start("scheduler"))
        worker.says("waiting for jobs")
        run = chain(mill.app.tasks["once"].s(), mill.app.tasks["first"].si()).send()
        mill.wait_for("once")
        os.kill(mill.pid_of("once"), signal.SIGKILL)
        stack.enter_context(mill.start("worker"))

        with pytest.raises(RunFailed, match="once"):
            run.result(140.0)

    assert mill.count() == {"once": 1}
    assert run.state().steps == {"once": StepState.FAILED, "first": StepState.UPSTREAM_FAILED}
