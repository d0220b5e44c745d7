from typing import Any

import pytest

from taskmq.model.runs.records import StepKey
from tests.unit.model.runs.run_kit import MemoryRun, graph_of

_CHAIN: dict[str, Any] = {
    "a": {"task": "t"},
    "b": {"task": "u", "args": ["${steps.a.result}", "${run.scheduled_for}"]},
}


def test_a_step_starts_with_the_values_of_the_steps_before_it() -> None:
    run = _start(_CHAIN)

    run.end("a", value={"rows": 3})

    assert run.states() == {"a": "succeeded", "b": "running"}
    assert run.args("b") == [{"rows": 3}, "2027-01-31"]


def test_a_run_ends_with_its_last_step() -> None:
    run = _start(_CHAIN)
    run.end("a", value=1)

    run.end("b", value=2)

    assert run.run.state == "succeeded"
    assert run.run.ended == run.now
    assert run.value == {"b": 2}


def test_a_failed_step_fails_its_run() -> None:
    run = _start(_CHAIN)

    run.end("a", "failed")

    assert run.states() == {"a": "failed", "b": "upstream_failed"}
    assert (run.run.state, run.run.error, run.step("a").error) == (
        "failed",
        "step a has failed",
        "OSError: full",
    )
    assert run.value is None


def test_a_failure_of_a_step_that_may_fail_is_not_that_of_its_run() -> None:
    run = _start({"a": {"task": "t", "may_fail": True}, "b": {"task": "t", "needs": ["a"], "rule": "always"}})

    run.end("a", "failed")
    run.end("b")

    assert run.run.state == "succeeded"


def test_an_output_that_leads_to_nothing_fails_the_run() -> None:
    run = _start({"a": {"task": "t"}}, output="${steps.a.result.rows}")

    run.end("a", value={})

    assert run.run.state == "failed"
    assert run.run.error == "output: steps.a.result.rows leads to nothing: 'rows' does not exist"


def test_a_step_starts_once_whatever_the_steps_before_it_do_later() -> None:
    run = _start({"a": {"task": "t"}, "b": {"task": "t"}, "c": {"task": "t", "needs": ["a", "b"], "rule": "any"}})
    run.end("a")
    job = run.step("c").job

    run.end("b")

    assert run.step("c").job == job


def test_a_report_of_another_job_changes_nothing() -> None:
    run = _start(_CHAIN)
    job = run.step("a").job

    assert run.end("a", value=1, job="other") == "superseded"
    assert run.end("a", value=1) == "applied"
    assert run.end("a", "failed", job=job) == "superseded"
    assert run.states() == {"a": "succeeded", "b": "running"}


def test_a_timer_of_an_earlier_generation_changes_nothing() -> None:
    run = _start({"a": {"sleep": "1h"}})

    assert run.send("timer", step="a", generation=3) == "superseded"
    assert run.send("timer", step="a", generation=0) == "applied"
    assert run.send("timer", step="a", generation=0) == "superseded"
    assert run.run.state == "succeeded"


def test_a_cancelled_run_ends_when_its_jobs_have_ended() -> None:
    run = _start(
        {
            **_CHAIN,
            "child": {"workflow": "w"},
            "wait": {"wait": "go"},
            "sleep": {"sleep": "1h"},
            "batch": {"batch": True},
            "done": {"task": "t"},
        }
    )
    run.end("done")
    jobs = [run.step("a").job, run.step("child").job]

    assert run.send("cancel", error="no longer needed") == "accepted"
    assert run.cancelled == jobs
    assert run.states() == {
        "a": "running",
        "child": "running",
        "wait": "cancelled",
        "sleep": "cancelled",
        "batch": "cancelled",
        "done": "succeeded",
        "b": "cancelled",
    }
    assert run.send("cancel", error="again") == "ended"

    run.end("a", "cancelled")
    run.end("child", "cancelled")
    assert (run.run.state, run.run.cancelled) == ("cancelled", "no longer needed")
    assert run.send("cancel", error="again") == "ended"


def test_an_end_before_a_cancellation_counts() -> None:
    run = _start(_CHAIN)
    run.put("end", step="a", job=run.step("a").job, value=b"1")
    run.put("cancel", error="stop")

    run.settle()

    assert run.states() == {"a": "succeeded", "b": "running"}
    assert run.cancelled == [run.step("b").job]


def test_a_cancellation_does_not_wait_for_children_that_are_not_start() -> None:
    run = _start({"a": {"task": "t", "each": [*range(40)]}}, settles=False)
    run.transact(20)
    run.put("cancel", error="stop")

    run.settle(20)

    assert 0 < len(run.children("a")) < 20
    assert run.cancelled == [run.step("a", index).job for index in run.children("a")]
    for index in run.children("a"):
        run.end("a", "cancelled", index=index)
    assert run.states() == {"a": "cancelled"}
    assert run.run.state == "cancelled"


@pytest.mark.parametrize("most_writes", [10, 50, 500])
def test_a_wide_graph_is_cut_into_transactions(most_writes: int) -> None:
    wide = {f"w{number}": {"task": "t", "needs": ["a"]} for number in range(600)}
    run = _start({"a": {"task": "t"}, **wide, "z": {"task": "t", "needs": [*wide]}})
    run.put("end", step="a", job=run.step("a").job)
    run.settle(most_writes)
    for name in wide:
        run.put("end", step=name, job=run.step(name).job)

    run.settle(most_writes)

    assert run.state("z") == "running"
    assert run.transactions > 1_800 / most_writes


def test_a_transition_reads_a_step_and_its_neighbours_only() -> None:
    below = {"y": {"task": "t", "needs": ["s7"]}, "z": {"task": "t", "needs": ["s7", "s8"]}}
    run = _start({f"s{number}": {"task": "t"} for number in range(300)} | below)
    run.read.clear()

    run.end("s7")

    # Nothing has changed y, which waits for s7 alone.
    assert run.read == {StepKey("s7"), StepKey("z")}
    assert run.state("y") == "running"


def _start(steps: dict[str, Any], *, settles: bool = True, **fields: Any) -> MemoryRun:
    run = MemoryRun(graph_of(steps, **fields))
    if settles:
        run.settle()
    return run


def test_a_run_that_exceeds_its_timeout_is_cancelled_and_fails() -> None:
    run = MemoryRun(graph_of({"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}}), timeout=500)
    run.settle()
    assert run.timers == [(run.now + 500, "", 0)]

    assert run.send("timer", step="", generation=0) == "applied"
    assert run.cancelled == [run.step("a").job]
    assert run.send("timer", step="", generation=0) == "superseded"
    assert run.send("cancel", error="too late") == "ended"
    run.end("a", "cancelled")

    assert run.states() == {"a": "cancelled", "b": "cancelled"}
    assert (run.run.state, run.run.cancelled) == ("failed", "timeout")
    assert run.run.error == "timeout: it has not ended within 0.5 s"


def test_a_redrive_begins_the_time_of_a_run_again() -> None:
    run = MemoryRun(graph_of({"a": {"task": "t"}}), timeout=500)
    run.settle()
    run.send("timer", step="", generation=0)
    run.end("a", "cancelled")
    run.now += 10_000

    run.send("redrive")

    assert run.timers[1:] == [(run.now + 500, "", 1)]
    assert run.send("timer", step="", generation=0) == "superseded"
    run.end("a", value=1)
    assert run.run.state == "succeeded"
    assert run.send("timer", step="", generation=1) == "superseded"


def test_a_cancelled_run_does_not_time_out() -> None:
    run = MemoryRun(graph_of({"a": {"task": "t"}}), timeout=500)
    run.settle()
    run.send("cancel", error="stop")

    assert run.send("timer", step="", generation=0) == "superseded"
    run.end("a", "cancelled")
    assert run.run.state == "cancelled"
