"""Stored workflows, run by a scheduler and a worker."""

import pytest

from taskmq.api.workflows.definitions import StartRunBody, WorkflowBody
from taskmq.api.workflows.runs import SignalBody
from taskmq.cli.operator import OperatorApi
from taskmq.contracts.history import history_of
from taskmq.errors import RunFailed, RunNotFound
from taskmq.model.history.logs import RunLine, RunLog
from tests.servers.waiting import until
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


_LETTERS = """
steps:
  a: {task: named, args: [a]}
  b: {task: tries, args: [b], needs: [a]}
  each: {task: named, each: [x, y, z], needs: [a]}
  rest: {sleep: 1h, needs: [b]}
"""


async def test_a_timeline_has_the_waits_and_attempts_of_each_step() -> None:
    shop = Shop()
    async with shop.open():
        api = OperatorApi(shop.app)
        await api.workflows.put("letters", WorkflowBody(text=_LETTERS))
        run = (await api.workflows.start("letters", StartRunBody())).run_id
        with pytest.raises(RunFailed):
            await shop.app.runs.get(run).aresult(timeout=30)

        page = await api.runs.timeline(run, limit=3)
        rest = await api.runs.timeline(run, limit=3, cursor=page.next)
        children = await api.runs.timeline(run, step="each", limit=2)
        with pytest.raises(RunNotFound, match="no step 'eahc'"):
            await api.runs.timeline(run, step="eahc")

    rows = {row.step: row for row in (*page.items, *rest.items)}
    assert rest.next is None
    assert list(rows) == ["a", "b", "each", "rest"]
    (job,) = rows["b"].jobs
    assert [(one.attempt, one.state) for one in job.attempts] == [(1, "failed"), (2, "failed"), (3, "failed")]
    times = [rows["a"].ended or "", *((one.started or "") for one in job.attempts), job.ended or ""]
    assert rows["b"].ready == times[0]
    assert times == sorted(times)
    assert (rows["each"].total, rows["each"].jobs) == (3, [])
    assert (rows["rest"].state, rows["rest"].started, rows["rest"].jobs) == ("upstream_failed", None, [])
    assert [(row.child, [one.state for one in row.jobs]) for row in children.items] == [
        (0, ["succeeded"]), (1, ["succeeded"]),
    ]  # fmt: skip
    assert children.next == "1"


async def test_a_timeline_keeps_the_jobs_from_before_a_redrive() -> None:
    shop = Shop()
    shop.broken.add("b")
    async with shop.open():
        api = OperatorApi(shop.app)
        await api.workflows.put("one", WorkflowBody(text="steps: {b: {task: named, args: [b]}}"))
        run = (await api.workflows.start("one", StartRunBody())).run_id
        handle = shop.app.runs.get(run)
        with pytest.raises(RunFailed):
            await handle.aresult(timeout=30)
        shop.broken.clear()

        await api.runs.redrive(run)
        await handle.aresult(timeout=30)
        (row,) = (await api.runs.timeline(run)).items

    assert [job.state for job in row.jobs] == ["failed", "succeeded"]


async def test_the_log_of_a_run_merges_the_lines_of_its_steps_by_time() -> None:
    shop = Shop()
    async with shop.open():
        api = OperatorApi(shop.app)
        await api.workflows.put("pair", WorkflowBody(text="steps: {a: {wait: x}, b: {task: waits, each: [1, 2]}}"))
        run = (await api.workflows.start("pair", StartRunBody())).run_id
        store = shop.app.sessions.store()
        await until(lambda: shop.running == 2, "both children run")
        for child in (await api.runs.children(run, "b")).items:
            record = await store.get(child.job_id)
            assert record is not None
            lines = [RunLine(1_000 - 100 * child.number + at, 20, "shop", f"{child.number} {at}") for at in (0, 150)]
            await history_of(store).logs.add([RunLog(id=record.id, token=record.token, lines=lines)])

        page = await api.runs.logs(run)
        rest = await api.runs.logs(run, cursor=page.next)
        shop.gate.set()

    assert [line.message for line in page.items] == ["1 0", "0 0", "1 150", "0 150"]
    assert {(line.run_id, line.step) for line in page.items} == {(run, "b")}
    assert [line.child for line in page.items] == [1, 0, 1, 0]
    assert (rest.items, rest.next) == ([], page.next)
