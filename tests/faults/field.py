"""The field of a campaign: a folder, its tasks, workers and producers as real processes, and their ledgers."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import msgspec
import pika  # type: ignore[import-untyped]  # it carries no types

from taskmq.contracts.broker import BrokerOptions
from taskmq.model.envelope import decode_envelope
from taskmq.model.topology import WorkQueue, dead_letter_queue
from taskmq_rabbitmq import RabbitMQBroker
from taskmq_rabbitmq.model.url import parse_url
from tests.faults.checker import OK, Fault, Run, Send, Verdict, judge
from tests.faults.ledger import Ledger, note_fault, run_of, send_of
from tests.faults.producer import Order
from tests.servers.waiting import eventually

PROBE = "probe-"
"""Prefix of tokens that are not part of the load."""

JOBS = """
import asyncio, os, time
from taskmq import TaskMQ

app = TaskMQ(os.environ["FAULTS_URL"], name="faults", send_timeout=float(os.environ["FAULTS_DEADLINE"]))

LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
NAP = float(os.environ["FAULTS_NAP"])


@app.task(result=False)
async def work(token: str) -> None:
    os.write(LEDGER, f"{token} {time.time_ns() // 1_000_000} {os.getpid()}\\n".encode())
    await asyncio.sleep(NAP)
"""


class Process:
    """A process of the campaign and its log."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._log = folder / f"log-{name}"
        with self._log.open("ab") as log:
            # The log continues that of an earlier process.
            self._begin = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def inner_pid(self) -> int:
        """Return the worker process below this supervisor, or itself if there is none."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[0]) if children else self.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def has_spoken(self) -> bool:
        """Whether it has printed anything: by then it handles signals."""
        return self._log.stat().st_size > self._begin

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def consumes(self) -> bool:
        """Whether a worker has reported that it consumes."""
        return "waiting for jobs" in self.log

    def wait(self, within: float) -> int:
        """Wait for its exit code."""
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended within {within:g} s:\n{self.log[-4000:]}") from None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it unless it has ended: the supervisor first, so that nothing replaces the worker."""
        if self.has_ended:
            return
        for pid in dict.fromkeys((self.pid, self.inner_pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait(40)


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a campaign's processes: each argument as `FAULTS_NAME`, and the same source tree."""
    root = Path(__file__).parents[2]
    return {
        **os.environ,
        **{f"FAULTS_{name.upper()}": value for name, value in variables.items()},
        # Wherever taskmq is installed.
        "PYTHONPATH": os.pathsep.join(str(root / part) for part in ("", "brokers", "contrib")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Commands:
    """Starts `taskmq` commands of `jobs.py` in a folder; the running ones are killed at its end.

    Args:
        jobs: the source of that module.
        variables: see `environment`.
    """

    def __init__(self, folder: Path, jobs: str, **variables: str) -> None:
        self._folder = folder
        self._environment = environment(**variables)
        self._started: list[Process] = []
        (folder / "jobs.py").write_text(jobs)

    def __call__(self, name: str, *arguments: str) -> Process:
        process = Process(name, ("-m", "taskmq", *arguments), self._folder, self._environment)
        self._started.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()


class Field:
    """A campaign.

    Args:
        folder: for its files, empty.
        url: for producers, and by default for workers.
        queues: logical ones; each has one worker process.
        worker_url: for workers.
        direct: AMQP URLs of the nodes themselves, for inspection and probes; default: `url`.
        deadline: seconds within which every send has to end.
        nap: seconds that every task takes.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        queues: Sequence[str],
        *,
        worker_url: str | None = None,
        direct: Sequence[str] = (),
        deadline: float = 10.0,
        nap: float = 0.0,
    ) -> None:
        self.folder = folder
        self.queues = tuple(queues)
        self.deadline = deadline
        self._url_of_node = (direct or (url,))[0]
        self.direct = [pika.URLParameters(each) for each in direct or (url,)]
        self.runs: Ledger[Run] = Ledger(folder / "runs", run_of)
        self.faults: list[Fault] = []
        self.workers: list[Process] = []
        self.producers: list[Process] = []
        self._sends: dict[str, Ledger[Send]] = {}
        self._environment = environment(url=url, deadline=str(deadline), nap=str(nap))
        self._worker_environment = {**self._environment, "FAULTS_URL": worker_url or url}
        (folder / "jobs.py").write_text(JOBS)

    def __enter__(self) -> Self:
        asyncio.run(self._apply_topology())
        return self

    async def _apply_topology(self) -> None:
        """Declare all queues, including those created on demand: probes go to each."""
        broker = RabbitMQBroker(parse_url(self._url_of_node), BrokerOptions(name="field"))
        await broker.topology([WorkQueue(queue) for queue in self.queues]).create_missing()
        await broker.aclose()

    def __exit__(self, *_: object) -> None:
        for process in (*self.producers, *self.workers):
            process.kill()

    def start_workers(self, *, concurrency: int = 16) -> None:
        """Start one `taskmq worker` per queue; return when all consume."""
        for queue in self.queues:
            self.start_worker(f"worker-{queue}", queue, "-c", str(concurrency))
        for worker in self.workers:
            self.until(worker.consumes, f"{worker.name} consuming", 60)

    def start_worker(self, name: str, queue: str, *options: str) -> Process:
        """Start one `taskmq worker` of one queue; return at once."""
        arguments = ["-m", "taskmq", "worker", "jobs:app", "-Q", queue, "--force", "--grace", "10s", *options]
        worker = Process(name, arguments, self.folder, self._worker_environment)
        self.workers.append(worker)
        return worker

    def start_producer(self, order: Order) -> Process:
        """Start one producer process; it ends by its order, or by `stop_producers`."""
        self._sends[order.name] = Ledger(self.folder / f"sends-{order.name}", send_of)
        arguments = ["-m", "tests.faults.producer", msgspec.json.encode(order).decode()]
        process = Process(order.name, arguments, self.folder, self._environment)
        self.producers.append(process)
        return process

    def stop_producers(self) -> None:
        """Let every producer end, including its last calls."""
        (self.folder / "stop").touch()
        self.wait_for_producers(within=self.deadline + 60)

    def wait_for_producers(self, *, within: float) -> None:
        for producer in self.producers:
            assert producer.wait(within) == 0, producer.log[-4000:]

    def stop_workers(self) -> None:
        """Drain the workers; each must end in order."""
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        for worker in self.workers:
            assert worker.wait(60) == 0, worker.log[-4000:]

    def fault(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Record a fault from its start to the recovery."""
        return note_fault(what, self.faults)

    # Ledgers

    def sends(self) -> list[Send]:
        """Return every send that has ended so far."""
        for ledger in self._sends.values():
            ledger.refresh()
        return [send for ledger in self._sends.values() for send in ledger.entries]

    def count_confirmed(self) -> int:
        return sum(send.outcome == OK for send in self.sends())

    def drain(self, *, patience: float = 60.0) -> None:
        """Wait until every confirmed task has run and the broker is empty, or nothing changes any more."""
        missing = {send.token for send in self.sends() if send.outcome == OK}
        missing.difference_update(run.token for run in self.runs.entries)
        moved = time.monotonic()
        while time.monotonic() - moved < patience:
            if fresh := self.runs.refresh():
                moved = time.monotonic()
                missing.difference_update(run.token for run in fresh)
            elif not missing and self.waiting() == 0:
                return
            time.sleep(0.2)

    def verdict(self, *, without: Iterable[str] = ()) -> Verdict:
        """Return the verdict on all tokens except those that start with one of `without`."""
        self.runs.refresh()
        out = (PROBE, *without)
        return judge(
            [send for send in self.sends() if not send.token.startswith(out)],
            [run for run in self.runs.entries if not run.token.startswith(out)],
            dead=[token for token in self.dead_letters() if not token.startswith(out)],
            faults=self.faults,
            deadline=self.deadline,
            stall=self.longest_stall(),
        )

    def longest_stall(self) -> float:
        """Return the longest suspension of an ended producer in seconds."""
        return max((float(path.read_text()) for path in self.folder.glob("stalls-*")), default=0.0)

    # Broker

    @property
    def physical(self) -> list[str]:
        return [name for queue in self.queues for name in WorkQueue(queue).physical]

    def waiting(self) -> int:
        """Return the ready messages in the work queues; -1 while the broker does not answer."""
        try:
            with self.channel() as channel:
                return sum(channel.queue_declare(name, passive=True).method.message_count for name in self.physical)
        except (pika.exceptions.AMQPError, OSError):
            return -1

    def leftovers(self) -> list[str]:
        """Return the messages in the work queues without removing them, and their history."""
        outcomes = {send.token: send.outcome for send in self.sends()}
        runs = Counter(run.token for run in self.runs.entries)
        found: list[str] = []
        with self.channel() as channel:
            for name in self.physical:
                while (got := channel.basic_get(name))[0] is not None:
                    token = msgspec.json.decode(decode_envelope(got[2]).args, type=list[str])[0]
                    came = f"{'again' if got[0].redelivered else 'first'}, headers {got[1].headers}"
                    found.append(f"{token} in {name}: {came}, sent {outcomes.get(token)}, ran {runs[token]}")
        return found

    def consumers(self) -> list[int]:
        """Return the number of consumers of each physical queue."""
        with self.channel() as channel:
            return [channel.queue_declare(name, passive=True).method.consumer_count for name in self.physical]

    def dead_letters(self) -> list[str]:
        """Return the tokens in all dead letter queues without removing them."""
        tokens: list[str] = []
        with self.channel() as channel:
            for queue in self.queues:
                while (got := channel.basic_get(dead_letter_queue(queue)))[0] is not None:
                    envelope = decode_envelope(got[2])
                    tokens.append(msgspec.json.decode(envelope.args, type=list[str])[0])
        return tokens

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        """Open a channel to any node that answers."""
        connection = pika.BlockingConnection(random.sample(self.direct, len(self.direct)))
        try:
            yield connection.channel()
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()

    def until(self, holds: Callable[[], bool], what: str, within: float) -> None:
        """Wait until the condition holds; a failure shows the logs."""
        try:
            eventually(holds, what, within=timedelta(seconds=within))
        except TimeoutError as error:
            logs = "\n".join(f"== {each.name}\n{each.log[-2000:]}" for each in (*self.workers, *self.producers))
            raise AssertionError(f"{error}\n{logs}") from error
