"""Stored workflows, run by a scheduler and a worker."""

import pytest

from taskmq.api.workflows.definitions import StartRunBody, WorkflowBody
from taskmq.api.workflows.runs import SignalBody
from taskmq.cli.operator import OperatorApi
from tests.unit.workflow.shop import Shop

pytestmark = pytest.mark.real_time

_FILE = """
workflow: orders
params: {count: {type: integer}, name: {type: string, default: last}}
output: {sum: "${steps.sum.result}", last: "${steps.last.result}"}
steps:
  numbers: {task: numbers, with: {count: "${params.count}"}, priority: high, timeout: 1m}
  plus: {task: add, each: "${steps.numbers.result}", args: [10], limit: 2, retries: 1, expires: 1h}
  sum: {task: total, args: ["${steps.plus.result}"]}
  approve: {wait: approval, needs: [sum], timeout: 2d}
  last: {task: named, args: ["${params.name} ${steps.sum.result}"], needs: [approve], if: steps.approve.result.ok}
"""


async def test_a_workflow_of_a_file_runs_from_its_start_to_its_end() -> None:
    shop = Shop()
    async with shop.open():
        api = OperatorApi(shop.app)
        await api.workflows.put("orders", WorkflowBody(text=_FILE))

        started = await api.workflows.start("orders", StartRunBody(params={"count": 4}))
        sent = await api.runs.signal(started.run_id, SignalBody(signal="approval", value={"ok": True}))
        result = await shop.app.runs.get(started.run_id).aresult(timeout=30)

        steps = {step.step: step for step in (await api.runs.graph(started.run_id)).steps}
        run = await api.runs.get(started.run_id)

    assert sent.effect in {"consumed", "waiting"}
    assert result == run.value == {"sum": 46, "last": "last 46"}
    assert {step.state for step in steps.values()} == {"succeeded"}
    assert (steps["plus"].total, steps["plus"].done) == (4, 4)


async def test_an_ended_run_is_redriven_from_a_step_on() -> None:
    shop = Shop()
    async with shop.open():
        api = OperatorApi(shop.app)
        text = "steps: {a: {task: named, args: [a]}, b: {task: named, args: [b], needs: [a]}}"
        await api.workflows.put("pair", WorkflowBody(text=text))
        started = await api.workflows.start("pair", StartRunBody())
        run = shop.app.runs.get(started.run_id)
        await run.aresult(timeout=30)

        await api.runs.redrive(started.run_id, step="b")
        await run.aresult(timeout=30)

    assert shop.ran == ["a", "b", "b"]
