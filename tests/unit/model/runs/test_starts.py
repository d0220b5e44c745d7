from typing import Any

import msgspec
import pytest

from taskmq.model.runs.records import StepKey
from taskmq.model.runs.starts import DEEPEST, MOST_SIGNALS
from tests.unit.model.runs.run_kit import MemoryRun, graph_of


def test_a_job_gets_the_options_of_its_step() -> None:
    run = _run({"a": {"task": "t", "timeout": "5m", "options": {"queue": "big"}}, "b": {"task": "u", "retries": 2}})

    assert run.job("a").task == "t"
    assert run.job("a").options == {"queue": "big", "timeout": "5m"}
    assert run.job("b").options == {"retries": 2}


@pytest.mark.parametrize(
    ("condition", "state"), [("params.n == 1", "running"), ("params.n > 1", "skipped"), ("params.n < 'a'", "failed")]
)
def test_a_condition_decides_whether_a_step_runs(condition: str, state: str) -> None:
    run = _run({"a": {"task": "t", "if": condition}}, {"n": 1})

    assert run.state("a") == state


def test_a_condition_sees_values_and_states_of_earlier_steps() -> None:
    run = _run(
        {
            "a": {"task": "t"},
            "b": {"task": "t", "needs": ["a"], "if": 'steps.a.result.ok and steps.a.state == "succeeded"'},
        }
    )

    run.end("a", value={"ok": True})

    assert run.state("b") == "running"


def test_a_step_without_a_value_passes_null() -> None:
    run = _run(
        {
            "a": {"task": "t"},
            "b": {"task": "t", "needs": ["a"], "rule": "all_done", "args": ["${steps.a.result.deep}"]},
        }
    )

    run.end("a", "skipped")

    assert run.args("b") == [None]


def test_a_reference_that_leads_to_nothing_fails_the_step() -> None:
    run = _run({"a": {"task": "t"}, "b": {"task": "t", "with": {"x": "${steps.a.result.rows[2]}"}}})

    run.end("a", value={"rows": [1]})

    assert run.step("b").error == "steps.a.result.rows[2] leads to nothing: 2 does not exist"
    assert run.state("b") == "failed"


def test_a_value_that_is_too_large_ends_the_step_that_needs_it_with_the_reason() -> None:
    run = _run(
        {
            "a": {"task": "t"},
            "go": {"wait": "go"},
            "b": {"task": "t", "needs": ["a", "go"], "args": ["${steps.a.result}"]},
        }
    )
    run.end("a", value=1)
    run.faults["a"] = "it is too large"

    _signal(run)

    assert (run.state("b"), run.step("b").error) == ("upstream_failed", "it is too large")
    assert (run.run.state, run.run.error) == ("failed", "step b has failed")


def test_an_erased_value_ends_the_step_that_needs_it_as_upstream_failed() -> None:
    run = _run(
        {
            "a": {"task": "t"},
            "go": {"wait": "go"},
            "b": {"task": "t", "needs": ["a", "go"], "args": ["${steps.a.result}"]},
        }
    )
    run.end("a", value=1)
    run.erased.add(StepKey("a"))

    _signal(run)

    assert run.step("b").error == "the value of step a was erased"
    assert run.state("b") == "upstream_failed"
    assert run.run.state == "failed"


@pytest.mark.parametrize(
    ("sleep", "at"),
    [("2s", 3_000), (0.5, 1_500), ("1970-01-01T00:01:00Z", 60_000), ("${params.until}", 120_000)],
)
def test_a_sleep_lasts_for_a_duration_or_until_an_instant(sleep: Any, at: int) -> None:
    run = _run({"a": {"sleep": sleep}}, {"until": "1970-01-01T01:02:00+01:00"})

    assert run.timers == [(at, "a", 0)]
    assert run.state("a") == "running"


@pytest.mark.parametrize(
    ("sleep", "error"),
    [("soon", "not a duration"), ("tomorrow at ten", "neither a duration nor"), ("2027-01-31T10:00", "no time zone")],
)
def test_a_sleep_without_an_end_fails(sleep: str, error: str) -> None:
    run = _run({"a": {"sleep": sleep}})

    assert run.state("a") == "failed"
    assert error in run.step("a").error


def test_a_value_step_ends_at_once_and_joins_the_values_before_it() -> None:
    run = _run(
        {
            "a": {"task": "t"},
            "b": {"task": "t"},
            "both": {"value": ["${steps.a.result}", "${steps.b.result}", "${params.n}"]},
            "c": {"task": "t", "args": ["${steps.both.result}"]},
        },
        {"n": 5},
    )
    run.end("a", value=1)
    run.end("b", value=[2])

    assert run.state("both") == "succeeded"
    assert run.args("c") == [[1, [2], 5]]


def test_a_child_run_ends_its_step_with_its_value() -> None:
    run = _run({"a": {"workflow": "w", "with": {"day": "${params.n}"}}}, {"n": 5})
    assert run.kwargs("a") == {"day": 5}

    run.end("a", value=[1])

    assert run.value == {"a": [1]}


def test_runs_below_runs_have_a_limit() -> None:
    run = MemoryRun(graph_of({"a": {"workflow": "w"}}), depth=DEEPEST)
    run.settle()

    assert run.state("a") == "failed"
    assert run.step("a").error == "workflow: the run has 10 runs above it, the maximum"


def test_a_signal_ends_the_step_that_waits_for_it() -> None:
    run = _run({"a": {"wait": "go"}, "b": {"wait": "go"}})

    assert _signal(run, value=1) == "consumed"
    assert run.states() == {"a": "succeeded", "b": "running"}
    assert _signal(run, value=2) == "consumed"
    assert run.value == {"a": 1, "b": 2}
    assert _signal(run, value=3) == "refused: the run has ended"


def test_a_signal_that_comes_early_waits_for_its_step() -> None:
    run = _run({"a": {"task": "t"}, "b": {"wait": "go", "needs": ["a"]}, "c": {"wait": "go", "needs": ["a"]}})

    assert _signal(run, step="c", value=1) == "waiting"
    assert _signal(run, generation=1, value=2) == "waiting"
    assert _signal(run, value=3) == "waiting"
    assert run.run.signals == 3
    run.end("a")

    assert (run.value_of("b"), run.value_of("c")) == (3, 1)
    assert run.run.signals == 1


def test_a_signal_and_the_start_of_its_step_may_share_a_transaction() -> None:
    run = _run({"a": {"task": "t"}, "b": {"wait": "go", "needs": ["a"]}})
    run.put("signal", name="go", value=b"1")
    run.put("end", step="a", job=run.step("a").job)

    run.transact()

    assert run.value_of("b") == 1


def test_a_step_with_roles_takes_signals_of_these_roles_only() -> None:
    run = _run({"a": {"wait": "go", "roles": ["finance", "board"]}})

    assert _signal(run) == "refused: only an identified user may send it"
    assert _signal(run, roles=("ops",)) == "refused: only finance, board may send it"
    assert _signal(run, roles=("ops", "board")) == "consumed"


def test_a_signal_that_no_step_waits_for_is_refused() -> None:
    run = _run({"a": {"wait": "go"}})

    assert _signal(run, name="gone") == "refused: no step waits for the signal 'gone'"


def test_the_number_of_waiting_signals_is_limited() -> None:
    run = _run({"a": {"task": "t"}, "b": {"wait": "go", "needs": ["a"]}})
    for _ in range(MOST_SIGNALS):
        run.put("signal", name="go")

    assert _signal(run) == "refused: 1000 signals wait already"


@pytest.mark.parametrize(
    ("on_timeout", "state", "value"),
    [("fail", "failed", None), ("skip", "skipped", None), ({"value": {"ok": False}}, "succeeded", {"ok": False})],
)
def test_a_wait_without_a_signal_ends_at_its_timeout(on_timeout: Any, state: str, value: Any) -> None:
    run = _run({"a": {"wait": "go", "timeout": "2d", "on_timeout": on_timeout}})
    assert run.timers == [(1_000 + 172_800_000, "a", 0)]

    run.send("timer", step="a", generation=0)

    assert (run.state("a"), run.value_of("a")) == (state, value)


def test_a_signal_before_a_timeout_counts() -> None:
    run = _run({"a": {"wait": "go", "timeout": "2d"}})
    run.put("signal", name="go", value=b"1")
    run.put("timer", step="a", generation=0)

    run.settle()

    assert run.value == {"a": 1}


def test_a_timeout_that_is_no_duration_fails_the_step() -> None:
    run = _run({"a": {"wait": "go", "timeout": "${params.n}"}}, {"n": "soon"})

    assert run.state("a") == "failed"


def _signal(run: MemoryRun, *, value: Any = None, name: str = "go", **fields: Any) -> str:
    return run.send("signal", name=name, value=msgspec.json.encode(value), **fields)


def _run(steps: dict[str, Any], params: dict[str, Any] | None = None) -> MemoryRun:
    run = MemoryRun(graph_of(steps, params={name: {} for name in params or ()}), params)
    run.settle()
    return run
