"""Runs of workflows whose steps do nothing: a long chain, a wide step, many runs at once, and many that sleep."""

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import msgspec

from benchmarks.job_store.figures import Figures, spread
from benchmarks.job_store.stage import Stage, us_a_job
from benchmarks.processes import proportional_mb, tree
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.jobs import RUNS_TOPIC, NewRun
from taskmq.model.envelope import new_job_id
from taskmq.model.runs.graphs import encode_workflow
from taskmq.model.runs.records import RunRecord
from taskmq.model.runs.validation import validate_workflow

_CHAIN: Final = 100
_SHORT: Final = 10
_AT_ONCE: Final = 500
_WOKEN: Final = 200
_SECONDS_BEFORE: Final = 2
_PATIENCE: Final = 300.0
_SLOWEST: Final = 500
_TASK: Final = """
@app.task(name="numbers", queue="work", retry=None)
async def numbers(count: int) -> list[int]:
    return list(range(count))
"""


async def runs_of_workflows(stage: Stage, *, width: int, runs: int, asleep: int) -> dict[str, Figures]:
    """Run a chain of 100 steps, a step with `width` children and one behind it, and `runs` chains of 10 steps.

    The last figures are those of `asleep` sleeping runs.
    """
    with (stage.folder / "bench.py").open("a", encoding="utf-8") as module:
        module.write(_TASK)
    stage.start_both()
    await stage.warm()
    wide = {
        "list": {"task": "numbers", "args": [width]},
        "all": {"task": "nothing", "args": ["${item}"], "each": "${steps.list.result}"},
        "end": {"task": "nothing", "args": [0], "needs": ["all"]},
    }
    await _run(stage, _chain(_SHORT), 1)
    return {
        f"chain of {_CHAIN}": await _run(stage, _chain(_CHAIN), 1),
        f"{width:,} children": await _run(stage, wide, 1, jobs=width + 2),
        f"{runs:,} runs of {_SHORT} steps": await _run(stage, _chain(_SHORT), runs),
        f"{asleep:,} runs asleep": await _sleep(stage, asleep),
    }


def _chain(steps: int) -> dict[str, Any]:
    return {
        f"s{number}": {"task": "nothing", "args": [0], "needs": [f"s{number - 1}"] if number else []}
        for number in range(steps)
    }


async def _sleep(stage: Stage, count: int) -> Figures:
    """Start runs that sleep for hours; return the memory of each process, and the lateness of others among them."""
    megabytes = _memory(stage)
    before, began = stage.cpu(), time.monotonic()
    for first in range(0, count, _AT_ONCE):
        await _start_sleepers(stage, ["9h"] * min(_AT_ONCE, count - first))
    async with asyncio.timeout(_PATIENCE + count / _SLOWEST):
        # A count of the timers would take longer the more of them there are.
        while stage.sql("select exists (select from taskmq.run_inbox)") == "t":
            await asyncio.sleep(0.5)
    seconds, cost = time.monotonic() - began, us_a_job(before, stage.cpu(), count)
    now = await stage.app.sessions.store().now_ms()
    due = [now + _SECONDS_BEFORE * 1000 + number * 20 for number in range(min(_WOKEN, count))]
    woken = await _start_sleepers(stage, [datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in due])
    ended = [await _wait_for_end(stage, run_id) for run_id in woken]
    late = [((run.ended or 0) - at) / 1000 for run, at in zip(ended, due, strict=True)]
    return {
        "runs/s": count / seconds,
        **{f"late, {name}": value for name, value in spread(late).items()},
        **_memory(stage),
        **{f"{part} before": value for part, value in megabytes.items()},
        **{part.replace("a job", "a run"): value for part, value in cost.items()},
    }


def _memory(stage: Stage) -> Figures:
    """Return the memory of each part; that of PostgreSQL includes the buffers that it shares."""
    return {f"{name} MB": proportional_mb(tree([pid])) for name, pid in stage.pids.items()}


async def _start_sleepers(stage: Stage, sleeps: Sequence[str]) -> list[str]:
    content, faults = validate_workflow({"params": {"at": {}}, "steps": {"s": {"sleep": "${params.at}"}}})
    assert content is not None, faults
    text = encode_workflow(content)[1]
    now = await stage.app.sessions.store().now_ms()
    new = [
        NewRun(id=new_job_id(now, os.urandom(10)), content=text, params=msgspec.json.encode({"at": at}))
        for at in sleeps
    ]
    return await _start(stage, new)


async def _start(stage: Stage, new: Sequence[NewRun]) -> list[str]:
    """Start runs, and have the scheduler advance them."""
    await stage.app.sessions.store().runs.start(new)
    broker = stage.app.sessions.current().broker
    assert isinstance(broker, Broadcasting)
    ids = [each.id for each in new]
    broker.announce(RUNS_TOPIC, " ".join(ids).encode())
    return ids


async def _run(stage: Stage, steps: dict[str, Any], count: int, *, jobs: int = 0) -> Figures:
    """Start runs of one workflow together; return the time of all, and of each step of the first one.

    Args:
        jobs: the jobs of one run; default: one per step.
    """
    content, faults = validate_workflow({"steps": steps})
    assert content is not None, faults
    text = encode_workflow(content)[1]
    store = stage.app.sessions.store()
    now = await store.now_ms()
    new = [NewRun(id=new_job_id(now, number.to_bytes(10, "big")), content=text) for number in range(count)]
    before = stage.cpu()
    await _start(stage, new)
    ended = [await _wait_for_end(stage, each.id) for each in reversed(new)]
    seconds = (max(run.ended or 0 for run in ended) - min(run.created for run in ended)) / 1000
    of_all = count * (jobs or len(steps))
    found = {"seconds": seconds, "ms a step": seconds / of_all * 1000, "steps/s": of_all / seconds}
    if not jobs:
        instants = sorted(step.ended or 0 for step in await store.runs.steps(new[0].id))
        found |= {f"step, {name}": value for name, value in spread(_gaps(instants)).items()}
    cost = us_a_job(before, stage.cpu(), of_all)
    return found | {part.replace("a job", "a step"): value for part, value in cost.items()}


async def _wait_for_end(stage: Stage, run_id: str) -> RunRecord:
    runs = stage.app.sessions.store().runs
    async with asyncio.timeout(_PATIENCE):
        while (run := await runs.get(run_id)) is None or run.ended is None:
            await asyncio.sleep(0.05)
    return run


def _gaps(instants: Sequence[int]) -> list[float]:
    """Return the seconds between the ends of steps that follow each other."""
    return [(later - earlier) / 1000 for earlier, later in pairwise(instants)]
