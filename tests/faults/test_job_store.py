"""The job store while everything around it is killed, frozen and cut off: acknowledged jobs end.

The gate's test has one worker and one submitter, and some of the faults. In the nightly test:

$TASKMQ_TEST_STORE_JOBS     acknowledged submissions (default 200, with the session's broker, which is only cut off)
$TASKMQ_TEST_STORE_RATE     maximum submissions per second (default 60)
$TASKMQ_TEST_STORE_MINUTES  submit no longer than this (default 12)
$TASKMQ_TEST_STORE_CUT      seconds for which networks are cut (default 1)

With 1,000 jobs or more the broker belongs to the test, and is killed and frozen as well.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.faults.store_field import IDLE, StoreField
from tests.servers import PostgreSQL, RabbitMQ, TcpProxy

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

JOBS = int(os.environ.get("TASKMQ_TEST_STORE_JOBS", "200"))
RATE = float(os.environ.get("TASKMQ_TEST_STORE_RATE", "60"))
MINUTES = float(os.environ.get("TASKMQ_TEST_STORE_MINUTES", "12"))
CUT = float(os.environ.get("TASKMQ_TEST_STORE_CUT", "1"))
IS_LARGE = JOBS >= 1000
CALM = 2.0 if IS_LARGE else 0.0
IDLE_JOBS = 100
# Those after which the test starts no process of taskmq again.
_GATE_FAULTS = frozenset(
    {"scheduler frozen", "store killed", "worker killed", "broker cut off", "store cut off", "store frozen"}
)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[RabbitMQ, str]]:
    """Return a node and a vhost: the session's, unless it is to be killed."""
    if not IS_LARGE:
        yield request.getfixturevalue("rabbitmq_server"), request.getfixturevalue("amqp_url")
        return
    with RabbitMQ() as server:
        yield server, server.url


@pytest.mark.timeout(300)
def test_every_accepted_job_ends_once_despite_kills_freezes_and_cuts(
    rabbitmq_server: RabbitMQ, amqp_url: str, tmp_path: Path
) -> None:
    _check_campaign(
        rabbitmq_server, amqp_url, tmp_path, _Size(jobs=150, rate=8, lanes=4, processes=1, faults=_GATE_FAULTS)
    )


@pytest.mark.nightly(
    "tests/faults/test_job_store.py::test_every_accepted_job_ends_once_despite_kills_freezes_and_cuts"
)
@pytest.mark.timeout(300 + MINUTES * 60 + JOBS / 20)
def test_every_accepted_job_ends_once_despite_faults_of_every_kind(
    broker: tuple[RabbitMQ, str], tmp_path: Path
) -> None:
    _check_campaign(*broker, tmp_path, _Size(jobs=JOBS, rate=RATE, lanes=16, processes=2, faults=None))


@dataclass(frozen=True)
class _Size:
    """The size of a campaign.

    Attributes:
        jobs: acknowledged submissions, including those of the idle queue.
        rate: maximum submissions per second.
        lanes: of each submitter.
        processes: workers, and submitters.
        faults: their names; all if it is none.
    """

    jobs: int
    rate: float
    lanes: int
    processes: int
    faults: frozenset[str] | None


def _check_campaign(node: RabbitMQ, url: str, folder: Path, size: _Size) -> None:
    with ExitStack() as stack:
        postgres = stack.enter_context(PostgreSQL())
        to_broker, to_store = (stack.enter_context(TcpProxy(port)) for port in (node.port, postgres.port))
        field = stack.enter_context(
            StoreField(
                folder,
                postgres,
                broker=f"{_through(to_broker, url)}?heartbeat=5",
                store=_through(to_store, postgres.url),
            )
        )
        troubles = Troubles(field, node, postgres, to_broker, to_store, size)
        began = time.monotonic()
        _start_all(field, size)
        done = _make_trouble(field, troubles, size, until=began + MINUTES * 60)
        field.stop_submitters()
        submitted = time.monotonic() - began
        field.start_worker("worker-idle", IDLE)
        field.drain(patience=90)
        field.stop()
        verdict = field.verdict()

        faults = ", ".join(f"{what} {count}" for what, count in done.most_common())
        print(
            f"\n{done.total()} faults ({faults}), {submitted:.0f} s of submissions, {time.monotonic() - began:.0f} s "
            f"in all; late writes refused: {troubles.refused}; load {os.getloadavg()[0]:.1f}; {verdict}"
        )
        assert not verdict.wrong, f"{verdict}\n{field.logs()}"
        assert verdict.acknowledged >= min(size.jobs, 100)
        assert troubles.refused >= 1


class Troubles:
    """The faults of a campaign's components, by name.

    Attributes:
        refused: writes under outdated epochs that the store refused.
    """

    def __init__(
        self,
        field: StoreField,
        node: RabbitMQ,
        postgres: PostgreSQL,
        to_broker: TcpProxy,
        to_store: TcpProxy,
        size: _Size,
    ) -> None:
        self.refused = 0
        self._field = field
        self._node = node
        self._postgres = postgres
        self._to_broker = to_broker
        self._to_store = to_store
        self._size = size
        self._turn = 0

    def chosen(self) -> dict[str, Callable[[], None]]:
        """Return the faults of this campaign in order."""
        every: dict[str, Callable[[], None]] = {
            "scheduler frozen": self.freeze_scheduler,
            "store killed": self.kill_store,
            "worker killed": self.kill_worker,
            "broker cut off": lambda: self._cut(self._to_broker),
            "submitter killed": self.kill_submitter,
            "store cut off": lambda: self._cut(self._to_store),
            "worker frozen": self.freeze_worker,
            "store frozen": self.freeze_store,
            "scheduler killed": self.kill_scheduler,
        }
        if IS_LARGE:
            every["broker killed"] = self.kill_broker
            every["broker frozen"] = self.freeze_broker
        return {what: make for what, make in every.items() if self._size.faults is None or what in self._size.faults}

    def freeze_scheduler(self) -> None:
        """Freeze it until another one holds its partition, and long enough to notice that afterwards."""
        role, epochs = self._field.holder_of_idle()
        with self._field.freeze(role):
            self._wait_for_successor(epochs)
            self._write_late(epochs)

    def kill_scheduler(self) -> None:
        role, epochs = self._field.holder_of_idle()
        self._field.kill(role)
        self._field.start_scheduler(role)
        if IS_LARGE:
            self._wait_for_successor(epochs)
            self._write_late(epochs)

    def kill_submitter(self) -> None:
        role = f"submitter-{self._other() % self._size.processes}"
        self._field.kill(role)
        start_submitter(self._field, role, self._size)

    def kill_worker(self) -> None:
        self._field.kill(f"worker-{self._other() % self._size.processes}")

    def freeze_worker(self) -> None:
        with self._field.freeze(f"worker-{self._other() % self._size.processes}"):
            time.sleep(8 if IS_LARGE else 1)

    def kill_store(self) -> None:
        self._postgres.kill()
        self._postgres.start()

    def freeze_store(self) -> None:
        self._postgres.pause()
        # Longer than a lease now and then: both schedulers lose their partitions.
        time.sleep(1 if not IS_LARGE else 8 if self._other() % 2 else 2)
        self._postgres.resume()

    def kill_broker(self) -> None:
        self._node.kill()
        self._node.start()

    def freeze_broker(self) -> None:
        self._node.pause()
        time.sleep(10 if self._other() % 2 else 3)
        self._node.resume()

    @staticmethod
    def _cut(proxy: TcpProxy) -> None:
        proxy.refuse(True)
        proxy.cut()
        time.sleep(CUT)
        proxy.refuse(False)

    def _wait_for_successor(self, epochs: dict[int, int]) -> None:
        partition = self._field.partition_of_idle()
        self._field.until(
            lambda: self._field.epochs().get(partition, 0) > epochs.get(partition, 0),
            "another scheduler holds the partition",
            60,
        )

    def _write_late(self, epochs: dict[int, int]) -> None:
        present = self._field.epochs()
        passed = {partition: epoch for partition, epoch in epochs.items() if present.get(partition, 0) > epoch}
        self.refused += asyncio.run(self._field.write_late(passed))

    def _other(self) -> int:
        self._turn += 1
        return self._turn


def start_submitter(field: StoreField, role: str, size: _Size) -> None:
    field.start_submitter(role, lanes=size.lanes, rate=size.rate / size.processes)


def _start_all(field: StoreField, size: _Size) -> None:
    for number in range(2):
        field.start_scheduler(f"scheduler-{number}")
    for number in range(size.processes):
        field.start_worker(f"worker-{number}", "work")
        start_submitter(field, f"submitter-{number}", size)
    asyncio.run(field.submit_idle(IDLE_JOBS))
    field.until(lambda: field.runs() > 0, "jobs run", 120)
    field.until(lambda: len(field.epochs()) > 0, "schedulers hold partitions", 60)


def _make_trouble(field: StoreField, troubles: Troubles, size: _Size, *, until: float) -> Counter[str]:
    """Inject every fault at least once, and again in turn until enough is acknowledged."""
    chosen, done = troubles.chosen(), Counter[str]()
    for what, make in cycle(chosen.items()):
        if len(done) == len(chosen) and (field.count_acknowledged() >= size.jobs or time.monotonic() > until):
            return done
        with field.fault(what):
            make()
        done[what] += 1
        time.sleep(CALM)
    raise AssertionError


def _through(proxy: TcpProxy, url: str) -> str:
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}").geturl()
