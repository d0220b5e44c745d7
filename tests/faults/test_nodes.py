"""Host nodes that are killed under mixed jobs: no node is ever overcommitted, and every job ends.

$TASKMQ_TEST_NODE_JOBS   jobs (default 400)
$TASKMQ_TEST_NODE_KILLS  number of kills of one of the four nodes, supervisor and worker (default 2)

A trigger in the database records whether more was ever allocated on a node than it has. An allocation counts while
its job has the token of that dispatch.
"""

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from taskmq import TaskMQ, WorkQueue
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq_sql.migrations import upgrade
from tests.faults.field import Process, environment
from tests.servers import PostgreSQL

pytestmark = [pytest.mark.rabbitmq, pytest.mark.campaign]

JOBS = int(os.environ.get("TASKMQ_TEST_NODE_JOBS", "400"))
KILLS = int(os.environ.get("TASKMQ_TEST_NODE_KILLS", "2"))
NODES = [f"node-{number}" for number in range(4)]
CPUS = 8
_LOOK = 0.25
_MANY = 50

_JOBS = """
import asyncio, os
from taskmq import TaskMQ, WorkQueue

app = TaskMQ(
    os.environ["FAULTS_URL"], name="nodes", store=os.environ["FAULTS_STORE"], queues=[WorkQueue("mixed", placed=True)]
)
LEDGER = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="work", queue="mixed", timeout="5m", result=False)
async def work(number: int, seconds: float) -> None:
    await asyncio.sleep(seconds)
    os.write(LEDGER, f"{number}\\n".encode())
"""

_AUDIT = """
create table public.excess (node text, resource text, used float, capacity float);
create function public.note_excess() returns trigger language plpgsql as $$
begin
  insert into public.excess
  select a.node, r.key, sum(r.value::float), (n.told::json -> 'capacity' ->> r.key)::float
  from taskmq.allocation a cross join lateral json_each_text(a.amounts::json) r(key, value)
  join taskmq.node n on n.name = a.node
  join taskmq.job j on j.id = a.job and j.token = a.token
  where a.node = new.node and a.ended is null
  group by 1, 2, 4 having sum(r.value::float) > (n.told::json -> 'capacity' ->> r.key)::float + 1e-6;
  return new;
end $$;
create constraint trigger note_excess after insert on taskmq.allocation deferrable initially deferred
for each row execute function public.note_excess()"""

_SHAPES: tuple[tuple[int, dict[str, float]], ...] = (
    (60, {"cpu": 1.0, "memory": 1.0}),
    (25, {"cpu": 2.0, "memory": 4.0}),
    (10, {"cpu": 1.0, "memory": 2.0, "gpu": 1.0}),
    (5, {"cpu": 6.0, "memory": 12.0}),
)


@pytest.fixture
def postgres() -> Iterator[PostgreSQL]:
    with PostgreSQL() as server:
        yield server


class Hosts:
    """The processes of a campaign: a scheduler, and a worker for each node."""

    def __init__(self, folder: Path, *, broker: str, store: str) -> None:
        self._folder = folder
        self._environment = environment(url=broker, store=store)
        self._processes: dict[str, Process] = {}
        (folder / "jobs.py").write_text(_JOBS)

    def start_scheduler(self) -> None:
        self._start("scheduler", "scheduler", "jobs:app")

    def start_node(self, name: str) -> None:
        has = f"cpu={CPUS},memory=32,gpu=1"
        self._start(name, "worker", "jobs:app", "--node", name, "--resources", has, "-c", "16", "--grace", "10s")

    def _start(self, name: str, *arguments: str) -> None:
        self._processes[name] = Process(name, ("-m", "taskmq", *arguments), self._folder, self._environment)

    def kill(self, name: str) -> None:
        self._processes[name].kill()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()

    def logs(self) -> str:
        return "\n".join(f"{name}:\n{process.log[-1500:]}" for name, process in self._processes.items())


@contextlib.asynccontextmanager
async def _submitter(broker: str, store: str) -> AsyncIterator[TaskMQ]:
    app = TaskMQ(broker, name="nodes", store=store, queues=[WorkQueue("mixed", placed=True)])

    async def work(number: int, seconds: float) -> None: ...

    app.task(name="work", queue="mixed", timeout="5m", result=False)(work)
    async with app:
        yield app


@pytest.mark.timeout(300 + JOBS / 5 + 60 * KILLS)
def test_killed_nodes_are_never_overcommitted_and_every_job_ends(
    amqp_url: str, postgres: PostgreSQL, tmp_path: Path
) -> None:
    async def prepare() -> None:
        await upgrade(postgres.url)

    asyncio.run(prepare())
    postgres.sql(_AUDIT)
    hosts = Hosts(tmp_path, broker=amqp_url, store=postgres.url)
    try:
        hosts.start_scheduler()
        for name in NODES:
            hosts.start_node(name)
        used = asyncio.run(_campaign(hosts, amqp_url, postgres.url))
        excess = postgres.sql("select * from public.excess")
        runs = Counter((tmp_path / "runs").read_text().split())
        print(
            f"\n{JOBS:,} jobs on {len(NODES)} nodes, {KILLS} kills: {used:.1%} of the processors of live nodes "
            f"reserved while jobs waited; {sum(runs.values()) - len(runs):,} ran twice to their end"
        )
        assert excess == ""
        assert len(runs) == JOBS, hosts.logs()
        assert used >= 0.85
    finally:
        hosts.close()


async def _campaign(hosts: Hosts, broker: str, store: str) -> float:
    """Run the campaign; return the average reserved share of the processors of live nodes while many jobs wait."""
    dice = random.Random(1)
    weights, shapes = [weight for weight, _ in _SHAPES], [shape for _, shape in _SHAPES]
    async with _submitter(broker, store) as app:
        nodes = app.sessions.store().nodes
        while not {node.name for node in await nodes.nodes()} >= {*NODES}:
            await asyncio.sleep(_LOOK)
        for number in range(JOBS):
            needs = dice.choices(shapes, weights)[0]
            await app.jobs.asubmit("work", number, dice.uniform(0.5, 4.0), resources=needs)
        samples: list[float] = []
        left, killed, victim, since = JOBS, 0, "", 0.0
        while left:
            left = await app.sessions.store().count_jobs(JobFilter(states=_LIVE), cap=JOBS)
            waiting = await app.sessions.store().count_jobs(JobFilter(states=_WAITING), cap=JOBS)
            found = {node.name: node for node in await nodes.nodes()}
            live = [node for name, node in found.items() if not node.is_lost and name != victim]
            if waiting >= _MANY and not victim:
                samples.append(sum(node.used.get("cpu", 0.0) for node in live) / (CPUS * len(live)))
            if victim and found[victim].is_lost:
                print(f"{victim} counted as lost {time.monotonic() - since:.1f} s after it was killed")
                assert found[victim].used == {}
                hosts.start_node(victim)
                victim = ""
            elif not victim and killed < KILLS and left < JOBS * (1 - (killed + 1) / (KILLS + 2)):
                victim, killed, since = dice.choice(NODES), killed + 1, time.monotonic()
                hosts.kill(victim)
            await asyncio.sleep(_LOOK)
    assert killed == KILLS
    return sum(samples) / len(samples)


_WAITING = frozenset({JobState.QUEUED})
_LIVE = _WAITING | {JobState.SCHEDULED, JobState.DISPATCHED, JobState.RUNNING, JobState.RETRYING}
