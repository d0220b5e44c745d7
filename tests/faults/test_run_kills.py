"""Runs of graphs while workers and schedulers are killed: order is kept, and every step ends as modelled.

$TASKMQ_TEST_RUN_GRAPHS  random graphs (default 8)
$TASKMQ_TEST_RUN_NODES   their maximum number of steps (default 20); at least 5
$TASKMQ_TEST_RUN_WIDTH   one more, with so many parallel steps (default 100)
$TASKMQ_TEST_RUN_KILLS   killed processes (default 6)
$TASKMQ_TEST_RUN_SHAPES  graphs of real workflows, by the names of files in `graphs/` (default: all)

The random graphs, their rules, and the end of each step come from one seed. A real graph has the tasks of a
scientific workflow that ran, from WfCommons. Steps write to a ledger when they begin and end.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.model.runs.graphs import RunGraph
from taskmq.model.runs.records import InboxRow
from taskmq.model.runs.rules import StepState
from taskmq.testing.run_model import RunModel
from taskmq.workflow.dag import Dag
from taskmq.workflow.parts import Workflow, group
from taskmq.workflow.runs.handle import Run
from taskmq.workflow.step_call import GraphNode, Rule
from tests.cli.kit import Started

pytestmark = [pytest.mark.campaign, pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.real_time]

GRAPHS = int(os.environ.get("TASKMQ_TEST_RUN_GRAPHS", "8"))
NODES = int(os.environ.get("TASKMQ_TEST_RUN_NODES", "20"))
WIDTH = int(os.environ.get("TASKMQ_TEST_RUN_WIDTH", "100"))
KILLS = int(os.environ.get("TASKMQ_TEST_RUN_KILLS", "6"))
SHAPES = os.environ.get("TASKMQ_TEST_RUN_SHAPES", "1000genome,epigenomics,montage,seismology").split(",")

_GRAPHS = Path(__file__).parent / "graphs"

_PATIENCE = 600.0
_JOBS = """
import asyncio, os
from taskmq import TaskMQ

app = TaskMQ(os.environ["JOBS_URL"], store=os.environ["JOBS_STORE"], name="jobs")
_ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words):
    os.write(_ledger, (" ".join(map(str, words)) + "\\n").encode())


@app.task(name="step", retry=None)
async def step(name: str, fails: bool) -> int:
    note("began", name)
    await asyncio.sleep(0.02)
    note("ended", name)
    if fails:
        raise ValueError(name)
    return 1


@app.task(name="total", retry=None)
async def total(values: list[int], name: str) -> int:
    note("began", name)
    note("ended", name)
    return sum(values)
"""


class _Shape(msgspec.Struct):
    """The graph of a workflow: the names of its tasks; for each step, its task and the earlier steps it waits for."""

    tasks: list[str]
    steps: list[tuple[int, list[int]]]


class _Plan:
    """The workflows to send, with the expected states of their steps."""

    def __init__(self, broker: str, store: str) -> None:
        self.urls = {"JOBS_URL": broker, "JOBS_STORE": store}
        self.app = app = TaskMQ(broker, store=store, name="jobs")
        self._step: Any = app.task(name="step", retry=None)(_step)
        self._total: Any = app.task(name="total", retry=None)(_total)
        self.flows: dict[str, Workflow[object]] = {}
        self.states: dict[str, dict[str, StepState]] = {}
        self.upstream: dict[str, set[str]] = {}

    def add_wide(self) -> None:
        """Add a workflow with many parallel steps."""
        wide = group(self._step.si(f"wide/{number}", False) for number in range(WIDTH))
        self.flows["wide"] = wide | self._total.s("wide/total")
        self._expect("wide", {})

    def add_shape(self, name: str) -> None:
        """Add the graph of a real workflow; all its steps succeed."""
        shape = msgspec.json.decode((_GRAPHS / f"{name}.json").read_bytes(), type=_Shape)
        graph, nodes = Dag(), list[GraphNode[int]]()
        for number, (task, after) in enumerate(shape.steps):
            step = f"{shape.tasks[task]}-{number}"
            before = [nodes[each] for each in after]
            nodes.append(graph.add(self._step.si(f"{name}/{step}", False), after=before, name=step))
            self.upstream[f"{name}/{step}"] = {f"{name}/{each.name}" for each in before}
        self.flows[name] = graph
        self.states[name] = {node.name: StepState.SUCCEEDED for node in nodes}

    def add_random(self, name: str, chance: random.Random) -> None:
        """Add a random graph, of which some steps fail."""
        graph, nodes, fails = Dag(), list[GraphNode[int]](), dict[str, bool]()
        for number in range(chance.randint(5, NODES)):
            after = chance.sample(nodes, min(len(nodes), chance.choice((0, 1, 1, 2, 3))))
            rule: Rule = chance.choice(("all", "all", "any", "none_failed", "always")) if after else "all"
            fails[f"s{number}"] = chance.random() < 0.15
            part = self._step.si(f"{name}/s{number}", fails[f"s{number}"])
            nodes.append(graph.add(part, after=after, rule=rule, name=f"s{number}"))
            if rule in ("all", "none_failed", "always"):
                self.upstream[f"{name}/s{number}"] = {f"{name}/{each.name}" for each in after}
        self.flows[name] = graph
        self._expect(name, fails)

    def _expect(self, name: str, fails: Mapping[str, bool]) -> None:
        """Compute the end of each step, which does not depend on the order of the ends."""
        model = RunModel(RunGraph(self.flows[name].plan().content, ""), {})
        while running := model.running():
            key = next(iter(running))
            state = StepState.FAILED if fails.get(key.name, False) else StepState.SUCCEEDED
            model.apply(
                InboxRow(number=0, kind="end", step=key.name, child=key.child, state=state, value=b"1", generation=0)
            )
        self.states[name] = {step: each.state for step, each in model.steps.items()}


async def _step(name: str, fails: bool) -> int:
    return 0


async def _total(values: list[int], name: str) -> int:
    return 0


class _Processes:
    """Two workers and two schedulers, one of which is replaced after it was killed."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = env
        self.running = [self._start(what) for what in ("worker", "worker", "scheduler", "scheduler")]

    def _start(self, what: str) -> tuple[str, Started]:
        return what, Started(self._folder, what, "jobs:app", env=self._env)

    def kill_one(self, chance: random.Random) -> None:
        index = chance.randrange(len(self.running))
        what, victim = self.running[index]
        victim.signal_and_wait(signal.SIGKILL)
        victim.__exit__(None, None, None)
        self.running[index] = self._start(what)

    def stop(self) -> None:
        for _, each in self.running:
            each.__exit__(None, None, None)


@pytest.mark.timeout(_PATIENCE + 60)
def test_runs_end_as_modelled_while_their_processes_are_killed(
    tmp_path: Path, amqp_url: str, job_store_url: str
) -> None:
    chance = random.Random(7)
    plan = _Plan(amqp_url, job_store_url)
    for number in range(GRAPHS):
        plan.add_random(f"graph-{number}", chance)
    plan.add_wide()
    _check_order(plan, _run(plan, chance, tmp_path))


@pytest.mark.timeout(_PATIENCE + 60)
def test_real_graphs_keep_their_order_while_their_processes_are_killed(
    tmp_path: Path, amqp_url: str, job_store_url: str
) -> None:
    plan = _Plan(amqp_url, job_store_url)
    for name in SHAPES:
        plan.add_shape(name)
    _check_order(plan, _run(plan, random.Random(8), tmp_path))


def _run(plan: _Plan, chance: random.Random, folder: Path) -> list[list[str]]:
    """Run the plan to its end, and return the lines of the ledger."""
    (folder / "jobs.py").write_text(_JOBS)
    processes = _Processes(folder, plan.urls)
    began = time.monotonic()
    try:
        asyncio.run(_follow(plan, processes, folder / "ledger", chance))
    finally:
        processes.stop()
    print(f"{KILLS} kills: {time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f}")
    return [line.split() for line in (folder / "ledger").read_text().splitlines()]


def _check_order(plan: _Plan, lines: list[list[str]]) -> None:
    ended: set[str] = set()
    for what, name in lines:
        if what == "ended":
            ended.add(name)
        else:
            # A step begins after the steps that it waits for have ended, however often it begins.
            reached = {each for each in plan.upstream.get(name, set()) if _has_run(plan, each)}
            assert reached <= ended, (name, reached - ended)
    steps = sum(map(len, plan.states.values()))
    again = sum(what == "ended" for what, _ in lines) - len(ended)
    print(f"{len(plan.flows)} runs, {steps} steps, {again} steps ran again")


def _has_run(plan: _Plan, name: str) -> bool:
    flow, step = name.split("/")
    return plan.states[flow][step] in (StepState.SUCCEEDED, StepState.FAILED)


async def _follow(plan: _Plan, processes: _Processes, ledger: Path, chance: random.Random) -> None:
    async with plan.app, asyncio.timeout(_PATIENCE):
        runs = {name: await flow.asend() for name, flow in plan.flows.items()}
        total = sum(map(len, plan.states.values()))
        for number in range(KILLS):
            # Spread over the whole work.
            await _until_written(ledger, lines=total * number // KILLS)
            await asyncio.to_thread(processes.kill_one, chance)
        for name, run in runs.items():
            assert await _end_of(run) == plan.states[name], name


async def _until_written(ledger: Path, *, lines: int) -> None:
    while (len(ledger.read_text().splitlines()) if ledger.exists() else 0) < lines:
        await asyncio.sleep(0.05)


async def _end_of(run: Run[object]) -> dict[str, StepState]:
    while (status := await run.astate()).state == "running":
        await asyncio.sleep(0.1)
    return dict(status.steps)
