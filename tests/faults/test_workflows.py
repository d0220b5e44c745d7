"""Workflows with duplicated messages and killed workers: every step counts once, and ends correctly.

$TASKMQ_TEST_FLOWS         random graphs (default 10; campaign 1000)
$TASKMQ_TEST_FLOW_NODES    their maximum number of nodes (default 30; campaign 200); at least 10
$TASKMQ_TEST_FLOW_WIDTH    one more, with so many parallel steps (default 150; campaign 10,000)
$TASKMQ_TEST_FLOW_KILLS    killed workers (default 2; campaign 100)

$TASKMQ_TEST_FLOW_UNGUARDED  let every message run at once: the same test must fail then

The graphs, their rules, and the end of each step come from one seed. The expected results are computed by the
conformance suite's model, which shares no code with the state machine. Each run records its start and its effect; a
second run needs a killed process to explain it.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.client.producer import Producer
from taskmq.contracts.stores.flows import FlowNode, NodeState
from taskmq.model.keys import flow_end_id
from taskmq.testing.state_suite.models.flows import expected_states, random_graph
from taskmq.workflow.dag import Dag
from taskmq.workflow.parts import Workflow, group
from taskmq.workflow.publisher import flow_store
from taskmq.workflow.step_call import GraphNode
from tests.e2e.kit import LoneWorker, Project
from tests.unit.workflow.state_flows import flow_of, send_to_state

UNGUARDED = bool(os.environ.get("TASKMQ_TEST_FLOW_UNGUARDED"))

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.rabbitmq,
    pytest.mark.slow,
    pytest.mark.xfail(UNGUARDED, reason="nobody asks before a run", strict=True),
]

FLOWS = int(os.environ.get("TASKMQ_TEST_FLOWS", "10"))
NODES = int(os.environ.get("TASKMQ_TEST_FLOW_NODES", "30"))
WIDTH = int(os.environ.get("TASKMQ_TEST_FLOW_WIDTH", "150"))
KILLS = int(os.environ.get("TASKMQ_TEST_FLOW_KILLS", "2"))
WORKERS = 2
_ENDS = ("succeed",) * 12 + ("fail", "ignore")
_STATES = {"succeed": NodeState.SUCCEEDED, "fail": NodeState.FAILED, "ignore": NodeState.CANCELLED}

JOBS = """
import asyncio, os
from taskmq import Context, Ignore, TaskMQ
from taskmq.client.producer import Producer


class Doubled(Producer):
    def stream_async(self, sendings, *, linger=0.1):
        return super().stream_async((each for sending in sendings for each in (sending, sending)), linger=linger)


if os.environ.get("TASKMQ_TEST_FLOW_UNGUARDED"):
    from taskmq_redis.stores.flows import RedisFlows

    class Unguarded(RedisFlows):
        async def start(self, flow_id, node, *, owner, seconds, takes_over):
            owner = f"{owner} {os.urandom(8).hex()}"
            return await super().start(flow_id, node, owner=owner, seconds=seconds, takes_over=True)

    import taskmq_redis.state
    taskmq_redis.state.RedisFlows = Unguarded


app = TaskMQ(os.environ["JOBS_URL"], state=os.environ["JOBS_STATE"])
app.producer.__class__ = Doubled
_ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words):
    os.write(_ledger, (" ".join(map(str, words)) + "\\n").encode())


@app.task(retry=None)
async def step(context: Context, name: str, end: str) -> int:
    note("began", name, os.getpid(), context.fencing_token)
    await asyncio.sleep(0.002)
    if end == "fail":
        raise ValueError(name)
    if end == "ignore":
        raise Ignore()
    note("effect", name, os.getpid(), context.fencing_token)
    return 1


@app.task(retry=None)
async def total(context: Context, values: list[int], name: str) -> int:
    note("began", name, os.getpid(), context.fencing_token)
    note("effect", name, os.getpid(), context.fencing_token)
    return sum(values)
"""


@pytest.fixture
def project(tmp_path: Path, amqp_url: str, redis_url: str) -> Iterator[Project]:
    it = Project(tmp_path, amqp_url, redis_url)
    it.write(JOBS)
    yield it
    it.close()


class _Doubled(Producer):
    """Sends everything twice, like the workers."""

    def stream_async(self, sendings, *, linger=0.1):  # type: ignore[no-untyped-def]
        twice = (each for sending in sendings for each in (sending, sending))
        return super().stream_async(twice, linger=linger)


class _Plan:
    """The sent workflows, and the expected results."""

    def __init__(self, app: TaskMQ, chance: random.Random) -> None:
        @app.task(name="jobs.step", retry=None)
        async def step(name: str, end: str) -> int:
            raise NotImplementedError

        @app.task(name="jobs.total", retry=None)
        async def total(values: list[int], name: str) -> int:
            raise NotImplementedError

        self.flows: dict[str, Workflow[object]] = {}
        self.states: dict[str, dict[str, NodeState]] = {}
        for number in range(FLOWS):
            flow_id = f"graph-{number}"
            nodes = [
                FlowNode(key=node.key, rule=node.rule, after=node.after)
                for node in random_graph(chance, chance.randint(10, NODES))
            ]
            ends = {node.key: chance.choice(_ENDS) for node in nodes}
            graph, places = Dag(), dict[str, GraphNode[int]]()
            for node in nodes:
                places[node.key] = graph.add(
                    step.si(f"{flow_id}/{node.key}", ends[node.key]),
                    after=[places[key] for key in node.after],
                    rule=node.rule,
                    name=node.key,
                )
            self.flows[flow_id] = graph
            self.states[flow_id] = expected_states(nodes, {key: _STATES[end] for key, end in ends.items()})
        wide = group(step.si(f"wide/{number}", "succeed") for number in range(WIDTH))
        self.flows["wide"] = wide.then(total.s(f"wide/{WIDTH + 1}"))
        self.states["wide"] = {str(number): NodeState.SUCCEEDED for number in range(WIDTH + 2)}


@pytest.mark.timeout(300 + FLOWS * NODES // 20 + WIDTH // 10 + KILLS * 10)
def test_steps_of_doubled_and_killed_workflows_count_once_as_modelled(project: Project) -> None:
    chance = random.Random(5)
    app = TaskMQ(project.url, state=project.state, name="test")
    app.producer.__class__ = _Doubled
    plan = _Plan(app, chance)
    workers = [_worker(project, str(number)) for number in range(WORKERS)]
    killed: set[int] = set()
    began = time.monotonic()
    try:
        took = asyncio.run(_campaign(app, plan, workers, killed, project, chance))
    finally:
        for worker in workers:
            worker.end(signal.SIGKILL)

    runs: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for what, name, pid, _ in project.ledger:
        runs[what, name].append(int(pid))
    ran = {
        f"{flow_id}/{key}"
        for flow_id, states in plan.states.items()
        for key, state in states.items()
        if state in (*_STATES.values(),) and not (flow_id == "wide" and key == str(WIDTH))
    }
    assert {name for what, name in runs if what == "began"} == ran
    for (what, name), pids in runs.items():
        # All but the last one were killed before their report, or before they were settled.
        surplus = [pid for pid in pids if pid not in killed]
        assert len(surplus) <= 1, (what, name, pids, killed)
    again = sum(len(pids) - 1 for (what, _), pids in runs.items() if what == "began")
    assert again <= len(killed) * 64
    nodes = sum(map(len, plan.states.values()))
    print(
        f"{len(plan.flows)} workflows, {nodes} steps, every message sent twice, {len(killed)} workers killed: "
        f"{took:.1f} s, {nodes / took:.0f} steps/s, {again} steps run again after a kill; "
        f"load {os.getloadavg()[0]:.1f}; {time.monotonic() - began:.1f} s with start and end"
    )


async def _campaign(
    app: TaskMQ,
    plan: _Plan,
    workers: list[LoneWorker],
    killed: set[int],
    project: Project,
    chance: random.Random,
) -> float:
    async with app:
        began = time.monotonic()
        killing = asyncio.create_task(_kill(workers, killed, project, chance))
        flows = [await send_to_state(flow, flow_id=flow_id) for flow_id, flow in plan.flows.items()]
        for flow in flows:
            await _wait_for_finish(app, flow.id)
        took = time.monotonic() - began
        await killing
        for flow in flows:
            found = await flow_store(app.sessions.current()).states(flow.id)
            assert found == plan.states[flow.id], _differences(found, plan.states[flow.id])
            ended = Counter(await flow_store(app.sessions.current()).ended_keys(flow.id, offset=0, limit=1_000_000))
            assert ended == dict.fromkeys(found, 1)
            # The worker that ends the last step reports it before it settles; and again, if it was killed in between.
            assert await app.jobs.wait_for_result(flow_end_id(flow.id, 0), 60) is not None
        assert await flow_of(app, "wide").aresult("10s") == WIDTH
        return took


async def _wait_for_finish(app: TaskMQ, flow_id: str) -> None:
    while True:
        record = await flow_store(app.sessions.current()).look(flow_id)
        assert record is not None
        if not record.unfinished:
            return
        await asyncio.sleep(0.05)


async def _kill(workers: list[LoneWorker], killed: set[int], project: Project, chance: random.Random) -> None:
    for number in range(KILLS):
        lines = len(project.ledger)
        # Under load: a good deal of work between two kills, unless all is done.
        for _ in range(100):
            await asyncio.sleep(0.05)
            if len(project.ledger) >= lines + 60:
                break
        victim = chance.choice(workers)
        killed.add(victim.pid)
        victim.process.kill()
        await asyncio.to_thread(victim.end, signal.SIGKILL)
        workers[workers.index(victim)] = await asyncio.to_thread(_worker, project, f"again-{number}")


def _differences(found: dict[str, NodeState], expected: dict[str, NodeState]) -> dict[str, tuple[object, object]]:
    return {
        key: (found.get(key), expected.get(key))
        for key in found.keys() | expected.keys()
        if found.get(key) != expected.get(key)
    }


def _worker(project: Project, name: str) -> LoneWorker:
    worker = LoneWorker(project, project.folder / f"log-{name}", concurrency=16)
    worker.wait_until_ready()
    return worker
