"""Held runs: ends are recorded, and nothing starts."""

from typing import Any

from tests.unit.model.runs.run_kit import MemoryRun, graph_of

_CHAIN = {"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}}


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


def test_a_second_hold_replaces_the_reason() -> None:
    run = _run(_CHAIN)

    run.send("hold", error="disk full")
    run.send("hold", error="still full")

    assert run.run.held == "still full"


def _run(steps: dict[str, Any]) -> MemoryRun:
    run = MemoryRun(graph_of(steps))
    run.settle()
    return run
