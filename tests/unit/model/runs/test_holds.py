"""Held runs: ends are recorded, and nothing starts."""

from typing import Any

from tests.unit.model.runs.run_kit import MemoryRun, graph_of

_CHAIN = {"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}}
_SUB = {"workflow": "w"}


def test_a_held_run_records_ends_and_starts_nothing_until_it_is_released() -> None:
    run = _run({**_CHAIN, "c": {"task": "t", "needs": ["a"]}})

    assert run.send("hold", error="disk full") == "accepted"
    assert run.end("a", value=1) == "applied"
    assert run.states() == {"a": "succeeded", "b": "waiting", "c": "waiting"}
    assert (run.run.state, run.run.held) == ("running", "disk full")

    assert run.send("release") == "accepted"
    assert run.states() == {"a": "succeeded", "b": "running", "c": "running"}
    assert run.run.held is None


def test_a_held_run_starts_no_more_children() -> None:
    run = _run({"a": {"task": "t", "each": [1, 2, 3], "limit": 1}})
    run.send("hold")

    run.end("a", index=0, value="x")
    assert run.children("a") == {0: "succeeded"}

    run.send("release")
    assert run.children("a") == {0: "succeeded", 1: "running"}


def test_a_redriven_step_ends_in_a_held_run_once_all_its_children_have_succeeded() -> None:
    run = _run({"a": {"task": "t", "each": [1, 2], "limit": 1}})
    run.end("a", "failed", index=0)
    run.end("a", index=1)
    run.send("redrive")
    run.send("hold")

    run.end("a", index=0)

    assert run.state("a") == run.run.state == "succeeded"
    assert run.run.expanding == []


def test_a_held_run_takes_signals_and_timers() -> None:
    run = _run({"a": {"wait": "go"}, "b": {"sleep": "1h"}, "c": {"task": "t", "needs": ["a", "b"]}})
    run.send("hold")

    assert run.send("signal", name="go", value=b"1") == "consumed"
    (timer,) = run.timers
    assert run.send("timer", step="b", generation=timer.generation) == "applied"

    assert run.states() == {"a": "succeeded", "b": "succeeded", "c": "waiting"}
    run.send("release")
    assert run.state("c") == "running"


def test_a_held_run_whose_steps_have_all_ended_ends() -> None:
    run = _run({"a": {"task": "t"}})
    run.send("hold")

    run.end("a", value=1)

    assert (run.run.state, run.run.held, run.value) == ("succeeded", None, {"a": 1})
    assert run.send("hold") == "ended"


def test_a_cancelled_run_is_not_held_and_starts_no_step_that_became_ready() -> None:
    run = _run({**_CHAIN, "c": {"task": "t"}})
    run.send("hold")
    run.end("a")

    assert run.send("cancel", error="stop") == "accepted"
    assert run.states() == {"a": "succeeded", "b": "cancelled", "c": "running"}
    assert run.send("hold") == "ended"
    assert len(run.jobs) == 2

    run.end("c", "cancelled")
    assert run.run.state == "cancelled"


def test_the_time_for_which_a_run_is_held_does_not_count_for_its_timeout() -> None:
    run = MemoryRun(graph_of({"a": {"task": "t"}}), timeout=500)
    run.settle()
    run.now += 400
    run.send("hold", error="disk full")
    run.send("hold", error="still full")
    run.now += 5_000
    assert run.send("timer", step="", generation=0) == "superseded"

    run.send("release")

    assert run.timers == [(1_500, "", 0), (6_500, "", 1)]
    assert run.send("timer", step="", generation=0) == "superseded"
    assert run.send("timer", step="", generation=1) == "applied"
    run.end("a", "cancelled")
    assert (run.run.state, run.run.cancelled) == ("failed", "timeout")


def test_a_run_that_is_released_before_it_begins_has_its_whole_time() -> None:
    run = MemoryRun(graph_of({"a": {"task": "t"}}, max_active_runs=1), timeout=500)
    run.send("hold", error="disk full")
    run.now += 5_000
    run.send("release")
    run.send("begin", generation=0)

    assert run.timers == [(6_500, "", 1)]
    run.end("a", "failed")
    run.send("redrive")
    run.send("begin", generation=1)
    assert run.timers[1:] == [(6_500, "", 2)]


def test_a_second_hold_replaces_the_reason() -> None:
    run = _run(_CHAIN)

    run.send("hold", error="disk full")
    run.send("hold", error="still full")

    assert run.run.held == "still full"


def test_a_hold_and_its_release_reach_the_running_child_runs() -> None:
    run = _run({"a": _SUB, "b": {"task": "t"}, "c": _SUB, "d": {**_SUB, "needs": ["b"]}})
    children = [run.step(name).job for name in ("a", "c")]
    run.end("c")

    run.send("hold", error="disk full")
    assert run.held == children[:1]

    run.end("b")
    run.send("release")
    assert run.held == children[:1] * 2
    assert run.state("d") == "running"


def test_a_hold_of_many_child_runs_is_cut_into_transactions() -> None:
    run = _run({f"s{number}": _SUB for number in range(100)})
    before = run.transactions

    run.put("hold", error="disk full")
    run.put("end", step="s0", job=run.step("s0").job)
    run.settle(40)

    assert sorted(run.held) == sorted(run.step(name).job for name in run.graph.order)
    assert run.transactions - before > 2
    assert run.state("s0") == "succeeded"


def test_a_run_that_is_held_from_above_stays_held_when_an_operator_releases_it() -> None:
    run = _run(_CHAIN)
    run.send("hold", error="run 1 is held: disk full", is_from_above=True)
    run.end("a")

    assert run.send("release") == "held above"
    assert (run.run.held, run.run.hold) == (None, "run 1 is held: disk full")
    assert run.state("b") == "waiting"

    assert run.send("release", is_from_above=True) == "accepted"
    assert run.state("b") == "running"


def test_a_release_from_above_leaves_the_hold_of_an_operator() -> None:
    run = _run({"a": _SUB})
    run.send("hold", error="by hand")

    run.send("hold", error="run 1 is held", is_from_above=True)
    run.send("release", is_from_above=True)

    assert run.run.hold == "by hand"
    assert len(run.held) == 1
    run.send("release")
    assert run.run.hold is None
    assert len(run.held) == 2


def _run(steps: dict[str, Any]) -> MemoryRun:
    run = MemoryRun(graph_of(steps))
    run.settle()
    return run
