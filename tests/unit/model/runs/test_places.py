"""Queued runs: they start nothing before they have a place."""

from typing import Any

from tests.unit.model.runs.run_kit import MemoryRun, graph_of

_CHAIN = {"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}}


def test_a_run_of_a_limited_workflow_starts_no_step_before_it_has_a_place() -> None:
    run = _run(_CHAIN)
    assert (run.run.state, run.states(), run.jobs) == ("queued", {"a": "waiting", "b": "waiting"}, {})

    run.now = 5_000
    assert run.send("begin", generation=0) == "applied"

    assert (run.run.state, run.run.begun) == ("running", 5_000)
    assert run.states() == {"a": "running", "b": "waiting"}
    assert run.send("begin", generation=0) == "superseded"


def test_the_timeout_of_a_queued_run_begins_with_its_place() -> None:
    run = _run(_CHAIN, timeout=60_000)
    assert run.timers == []

    run.now = 5_000
    run.send("begin", generation=0)

    assert [timer.at for timer in run.timers] == [65_000]


def test_a_cancelled_queued_run_ends_without_a_start_and_needs_its_place_no_more() -> None:
    run = _run(_CHAIN)

    assert run.send("cancel", error="stop") == "accepted"

    assert (run.run.state, run.run.begun, run.jobs) == ("cancelled", None, {})
    assert run.states() == {"a": "cancelled", "b": "cancelled"}
    assert run.send("begin", generation=0) == "superseded"


def test_a_redriven_run_waits_for_a_place_of_its_generation() -> None:
    run = _run(_CHAIN)
    run.send("begin", generation=0)
    run.end("a", "failed")
    assert run.run.state == "failed"

    assert run.send("redrive") == "accepted"
    assert (run.run.state, run.run.ended, run.states()) == ("queued", None, {"a": "waiting", "b": "waiting"})
    assert run.send("begin", generation=0) == "superseded"
    assert run.state("a") == "waiting"

    assert run.send("begin", generation=1) == "applied"
    assert run.states() == {"a": "running", "b": "waiting"}


def test_a_redriven_run_that_is_cancelled_in_the_queue_ends() -> None:
    run = _run(_CHAIN)
    run.send("begin", generation=0)
    run.end("a", value=1)
    run.end("b", "failed")

    run.send("redrive")
    run.send("cancel")

    assert (run.run.state, run.states()) == ("cancelled", {"a": "succeeded", "b": "cancelled"})


def test_a_redrive_without_a_step_to_run_needs_no_place() -> None:
    run = _run({"a": {"task": "t"}})
    run.send("begin", generation=0)
    run.end("a", value=1)

    assert run.send("redrive") == "accepted"

    assert (run.run.state, run.value) == ("succeeded", {"a": 1})


def test_a_queued_run_keeps_signals_for_its_steps() -> None:
    run = _run({"a": {"wait": "go"}})
    row = run.put("signal", name="go", value=b"7")
    run.settle()
    assert run.answers[row.number] == "waiting"

    run.send("begin", generation=0)

    assert (run.run.state, run.value) == ("succeeded", {"a": 7})


def test_a_queued_run_that_is_held_starts_once_it_has_a_place_and_is_released() -> None:
    run = _run(_CHAIN)
    run.send("hold", error="disk full")
    run.send("begin", generation=0)
    assert (run.run.state, run.run.held, run.state("a")) == ("running", "disk full", "waiting")

    run.send("release")

    assert run.state("a") == "running"


def test_a_run_that_a_step_started_needs_no_place() -> None:
    run = _run(_CHAIN, parent="run-0")

    assert (run.run.state, run.state("a")) == ("running", "running")


def _run(steps: dict[str, Any], **fields: Any) -> MemoryRun:
    run = MemoryRun(graph_of(steps, max_active_runs=1), **fields)
    run.settle()
    return run
