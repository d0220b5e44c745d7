"""Runs of workflows whose steps do nothing: a long chain, a wide step, and many runs at once."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from benchmarks.job_store.figures import Figures, spread
from benchmarks.job_store.stage import Stage, us_a_job
from taskmq.contracts.broker import Broadcasting
from taskmq.contracts.jobs import RUNS_TOPIC, NewRun
from taskmq.model.envelope import new_job_id
from taskmq.model.runs.graphs import encode_workflow
from taskmq.model.runs.records import RunRecord
from taskmq.model.runs.validation import validate_workflow

__all__ = ["runs_of_workflows"]

_CHAIN: Final = 100
_SHORT: Final = 10
_PATIENCE: Final = 300.0
_TASK: Final = """
@app.task(name="numbers", queue="work", retry=None)
async def numbers(count: int) -> list[int]:
    return list(range(count))
"""


async def runs_of_workflows(stage: Stage, *, width: int, runs: int) -> dict[str, Figures]:
    """Run a chain of 100 steps, a step with `width` children and one behind it, and `runs` chains of 10 steps."""
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
    }


def _chain(steps: int) -> dict[str, Any]:
    return {
        f"s{number}": {"task": "nothing", "args": [0], "needs": [f"s{number - 1}"] if number else []}
        for number in range(steps)
    }


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
    await store.runs.start(new)
    broker = stage.app.sessions.current().broker
    assert isinstance(broker, Broadcasting)
    broker.announce(RUNS_TOPIC, " ".join(each.id for each in new).encode())
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
