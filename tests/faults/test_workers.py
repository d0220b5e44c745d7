"""A worker with every kind of network fault on its connections, while it processes a full queue.

`$TASKMQ_TEST_FAULT_TASKS` is the number of tasks (default 500), `$TASKMQ_TEST_FAULT_SEED` the seed of the faults. The
worker runs in this process, so that its counters can be read.
"""

import asyncio
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from taskmq import TaskMQ
from taskmq.worker.config import WorkerConfig
from taskmq.worker.worker import Worker
from taskmq_rabbitmq import RabbitMQBroker
from tests.faults.checker import OK, Fault, Run, Send, judge
from tests.faults.ledger import now_ms
from tests.faults.scene import broker_scene, worker_scene
from tests.faults.storm import Storm, network_faults
from tests.servers import RabbitMQ, TcpProxy, eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

TASKS = int(os.environ.get("TASKMQ_TEST_FAULT_TASKS", "500"))
SEED = int(os.environ.get("TASKMQ_TEST_FAULT_SEED", "20261121"))
CONCURRENCY = 32
HEARTBEAT = 5
# At full speed TASKS / 100 seconds.
NAP = CONCURRENCY / 100
# Until a silently dead connection is noticed, and its consumers have returned.
BACK_WITHIN = 2 * HEARTBEAT + 2 + 5
# Until the watchdog has renewed an idle consumer that the broker may have lost.
RENEWED_WITHIN = 400.0
# Repeated faults may delay its return for a while.
STALLED_AFTER = 60.0


class _Work:
    """A worker on its own thread, and a record of its runs."""

    def __init__(self, url: str) -> None:
        self.runs: list[Run] = []
        self.app = TaskMQ(url, name="faults")
        self.app.task(name="work", result=False)(self._work)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def wait_for_more(self, seen: int, what: str) -> None:
        """Wait until there are more than `seen` runs."""
        eventually(lambda: len(self.runs) > seen, what, within=timedelta(seconds=BACK_WITHIN))

    def stop(self) -> int:
        """Drain; return the number of deliveries settled too late."""
        self._loop.call_soon_threadsafe(self._worker.drain)
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self._broker.stale_settles

    def scene(self) -> str:
        return worker_scene(self._worker, self._broker, self._loop)

    def __repr__(self) -> str:
        return f"<{len(self.runs)} runs, {self._broker!r}>"

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = Worker(self.app, WorkerConfig(concurrency=CONCURRENCY, prefetch=2 * CONCURRENCY))
        broker = self.app.sessions.current().broker
        assert isinstance(broker, RabbitMQBroker)
        self._broker = broker
        running = asyncio.create_task(self._worker.run())
        await self._worker.is_ready.wait()
        self._ready.set()
        await running

    async def _work(self, token: str) -> None:
        self.runs.append(Run(token, now_ms()))
        await asyncio.sleep(NAP)


class _Progress:
    """The number of runs, while it keeps growing."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._count = 0
        self._since = time.monotonic()

    def count_runs(self) -> int:
        if (count := len(self._work.runs)) > self._count:
            self._count, self._since = count, time.monotonic()
        assert time.monotonic() - self._since < STALLED_AFTER, f"nothing has run since: {self._work!r}"
        return count


@pytest.mark.nightly(
    "tests/integration/test_rabbitmq_outages.py::test_silent_connections_are_found_within_two_heartbeats_and_consumers_return"
)
@pytest.mark.timeout(240 + TASKS / 10)
def test_no_task_is_lost_and_no_worker_stalls(rabbitmq_server: RabbitMQ, amqp_url: str) -> None:
    sent = _send_all(amqp_url)
    with TcpProxy(rabbitmq_server.port) as proxy:
        through = urlsplit(amqp_url)._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        work, began = _Work(f"{through}?heartbeat={HEARTBEAT}"), time.monotonic()
        work.start()
        faults: list[Fault] = []
        storm = Storm(network_faults(proxy), SEED, into=faults)
        progress = _Progress(work)
        storm.blow(lambda: progress.count_runs() < TASKS, calm=1.0)
        with _telling(work, rabbitmq_server, amqp_url):
            _wait_for_the_rest(work, {send.token for send in sent})
        late = work.stop()

    verdict = judge(sent, work.runs, faults=faults)
    print(
        f"\n{TASKS:,} tasks on {rabbitmq_server.version} in {time.monotonic() - began:.0f} s, {storm}: {late:,} late "
        f"settlings were void; longest silence {_longest_silence(work.runs):.1f} s; {verdict}"
    )
    assert verdict.wrong == {}
    # A task runs again if its acknowledgement came too late, or was never sent.
    assert verdict.runs - TASKS <= len(faults) * 2 * CONCURRENCY


@contextmanager
def _telling(work: _Work, node: RabbitMQ, url: str) -> Generator[None]:
    """Print diagnostics when the block fails, and whether the rest still arrives."""
    try:
        yield
    except TimeoutError:
        seen, since = len(work.runs), time.monotonic()
        print(f"\n{work.scene()}\n{broker_scene(node, url)}")
        while len(work.runs) == seen and time.monotonic() - since < RENEWED_WITHIN:
            time.sleep(1)
        print(f"{time.monotonic() - since:.0f} s later: {len(work.runs) - seen} further runs\n{work.scene()}")
        raise


def _send_all(url: str) -> list[Send]:
    """Fill the queue, without faults."""
    app = TaskMQ(url)

    async def work(token: str) -> None: ...

    task = app.task(name="work")(work)
    tokens, began = [f"t{number}" for number in range(TASKS)], now_ms()
    with app:
        task.send_many([(token,) for token in tokens])
    return [Send(token, OK, began, 0) for token in tokens]


def _wait_for_the_rest(work: _Work, tokens: set[str]) -> None:
    """Wait, after all faults, until the missing runs arrive without a longer silence than recovery takes."""
    while True:
        # Counted first: the last one may run while these are checked, and then no further one arrives.
        seen = len(work.runs)
        missing = tokens - {run.token for run in work.runs[:seen]}
        if not missing:
            return
        work.wait_for_more(seen, f"a further run, with {len(missing)} tasks missing,")


def _longest_silence(runs: list[Run]) -> float:
    """Return the longest time between two runs in seconds."""
    return max((after.at - before.at for before, after in pairwise(runs)), default=0) / 1000
