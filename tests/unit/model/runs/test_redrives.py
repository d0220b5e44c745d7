from typing import Any

import msgspec

from taskmq.model.runs.redrives import explain_refusal, find_revived
from tests.unit.model.runs.run_kit import MemoryRun, graph_of


def test_a_redrive_runs_the_steps_again_that_did_not_succeed() -> None:
    run = _run({"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}, "c": {"task": "t", "needs": ["b"]}})
    run.end("a")
    run.end("b", "failed")
    assert run.states() == {"a": "succeeded", "b": "failed", "c": "upstream_failed"}

    assert run.send("redrive") == "accepted"
    assert run.states() == {"a": "succeeded", "b": "running", "c": "waiting"}
    assert (run.step("a").generation, run.step("b").generation) == (0, 1)
    assert (run.run.state, run.run.error) == ("running", "")

    run.end("b")
    run.end("c")
    assert run.run.state == "succeeded"


def test_the_steps_of_a_redrive_are_known_before_it_begins() -> None:
    steps = {"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}, "c": {"task": "t", "needs": ["b"]}}
    run = _run(steps)
    run.end("a")
    run.end("b", "failed")

    records = {name: run.step(name) for name in run.graph.order}
    assert find_revived(run.graph, records, "") == ["b", "c"]
    assert find_revived(run.graph, records, "a") == ["a", "b", "c"]
    assert explain_refusal(run.run, run.graph, "b", records["b"].state) == ""
    assert explain_refusal(run.run, run.graph, "x", records["b"].state) == "there is no step 'x'"


def test_a_step_knows_its_jobs_of_the_last_redrives() -> None:
    run = _run({"a": {"task": "t"}, "b": {"task": "t", "each": ["x", "y"]}})
    jobs = [run.step("a").job]
    children = [run.step("b", 1).job]
    for _ in range(6):
        run.end("a", "failed")
        run.end("b", index=0) if run.state("b", 0) == "running" else None
        run.end("b", "failed", index=1)
        run.send("redrive")
        jobs.append(run.step("a").job)
        children.append(run.step("b", 1).job)

    assert run.step("a").jobs == tuple(jobs[-5:])
    assert run.step("b", 1).jobs == tuple(children[-5:])
    assert run.step("b", 0).jobs == (run.step("b", 0).job,)


def test_a_redrive_from_a_step_runs_it_and_all_below_it_again() -> None:
    run = _run(
        {
            "a": {"task": "t"},
            "b": {"task": "t", "needs": ["a"], "may_fail": True},
            "c": {"task": "t", "needs": ["b"], "rule": "all_done"},
            "d": {"task": "t"},
        }
    )
    run.end("a")
    run.end("b", "failed")
    run.end("c")
    run.end("d", "failed")

    run.send("redrive", step="b")

    assert run.states() == {"a": "succeeded", "d": "failed", "b": "running", "c": "waiting"}
    run.end("b")
    run.end("c")
    assert run.run.state == "failed"


def test_a_redrive_of_a_running_run_is_refused() -> None:
    run = _run({"a": {"task": "t"}})

    assert run.send("redrive") == "refused: the run has not ended; cancel it first"


def test_a_redrive_from_an_unknown_step_is_refused() -> None:
    run = _run({"a": {"task": "t"}})
    run.end("a")

    assert run.send("redrive", step="x") == "refused: there is no step 'x'"


def test_a_redrive_of_a_run_that_succeeded_changes_nothing() -> None:
    run = _run({"a": {"task": "t"}})
    run.end("a", value=1)

    run.send("redrive")

    assert run.run.state == "succeeded"
    assert run.value == {"a": 1}


def test_a_redrive_of_a_cancelled_run_runs_its_steps() -> None:
    run = _run({"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}})
    run.send("cancel", error="stop")
    run.end("a", "cancelled")

    run.send("redrive")

    assert run.states() == {"a": "running", "b": "waiting"}
    assert run.run.cancelled is None


def test_a_redrive_keeps_children_that_succeeded() -> None:
    run = _run({"a": {"task": "t", "each": [*range(120)], "limit": 3}})
    for index in range(120):
        run.end("a", "failed" if index in (1, 110) else "succeeded", value=index, index=index)
    assert run.run.state == "failed"

    run.send("redrive")

    assert {key.child for key in run.running() if key.is_child} == {1, 110}
    run.end("a", index=1, value=1)
    run.end("a", index=110, value=110)
    assert run.value == {"a": [*range(120)]}


def test_children_run_again_if_the_steps_before_them_do() -> None:
    run = _run(
        {
            "a": {"task": "t", "may_fail": True},
            "b": {"task": "t", "needs": ["a"], "rule": "all_done", "each": ["${steps.a.result}", 2]},
        }
    )
    run.end("a", "failed")
    run.end("b", index=0, value="old")
    run.end("b", "failed", index=1)

    run.send("redrive")
    run.end("a", value=5)

    assert {key.child for key in run.running() if key.is_child} == {0, 1}
    assert run.args("b", 0) == [5]


def test_a_list_that_failed_the_step_is_read_again() -> None:
    run = _run({"a": {"task": "t"}, "b": {"task": "t", "each": "${steps.a.result}"}})
    run.end("a", value="no list")

    run.send("redrive", step="a")
    run.end("a", value=[1])

    assert run.state("b", 0) == "running"


def test_a_redrive_opens_a_batch_that_was_cancelled_before_it_was_closed() -> None:
    run = _run({"b": {"batch": True}})
    _add(run)
    _add(run)
    run.end("b", index=0, value=1)
    run.send("cancel", error="stop")
    run.end("b", "cancelled", index=1)

    run.send("redrive")

    assert {key.child for key in run.running() if key.is_child} == {1}
    assert _add(run) == "added"
    for index in (1, 2):
        run.end("b", index=index, value=1)
    run.send("close", step="b")
    assert run.value == {"b": [1, 1, 1]}


def test_a_redrive_from_a_batch_runs_all_its_jobs_again() -> None:
    run = _run({"b": {"batch": True}})
    _add(run)
    run.send("close", step="b")
    run.end("b", index=0, value=1)

    run.send("redrive", step="b")

    assert run.state("b", 0) == "running"
    assert run.args("b", 0) == [7]


def test_children_that_all_succeeded_are_not_run_again_in_an_open_batch() -> None:
    run = _run({"b": {"batch": True}})
    _add(run)
    run.end("b", index=0, value=1)
    run.send("cancel", error="stop")

    run.send("redrive")
    run.send("close", step="b")

    assert run.value == {"b": [1]}


def test_a_step_keeps_its_children_that_are_left_after_a_cancellation() -> None:
    run = MemoryRun(graph_of({"a": {"task": "t", "each": [*range(30)]}}))
    run.transact(20)
    run.put("cancel", error="stop")
    run.settle()
    started = run.children("a")
    for index in started:
        run.end("a", "succeeded", index=index, value=index)

    run.send("redrive")

    assert {key.child for key in run.running() if key.is_child} == {*range(30)} - {*started}


def test_a_redrive_keeps_no_children_from_before_a_redrive_that_was_cancelled() -> None:
    run = _run({"a": {"task": "t", "each": [1, 2, 3], "limit": 2}})
    for index in range(3):
        run.end("a", index=index, value="old")
    run.send("redrive", step="a")
    run.send("cancel")
    for index in range(2):
        run.end("a", "cancelled", index=index)

    run.send("redrive")
    for index in range(3):
        run.end("a", index=index, value="new")

    assert run.value == {"a": ["new"] * 3}


def _add(run: MemoryRun) -> str:
    return run.send("add", step="b", calls=(msgspec.Raw(msgspec.json.encode({"task": "t", "args": [7]})),))


def _run(steps: dict[str, Any]) -> MemoryRun:
    run = MemoryRun(graph_of(steps))
    run.settle()
    return run


def test_a_list_that_changed_before_a_cancellation_is_read_again() -> None:
    steps = {
        "a": {"task": "t"},
        "b": {"task": "t"},
        "c": {"task": "t", "each": "${steps.a.result}", "needs": ["a", "b"]},
    }
    run = _run(steps)
    run.end("a", value=[1, 2])
    run.end("b")
    run.end("c", value="old", index=0)
    run.end("c", "failed", index=1)
    run.send("redrive", step="a")
    run.end("a", value=[3])
    run.send("cancel")

    run.send("redrive")

    assert (run.children("c"), run.args("c", 0)) == ({0: "running", 1: "failed"}, [3])
