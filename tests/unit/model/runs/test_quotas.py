"""Steps whose jobs wait for room in a quota."""

from typing import Any

from taskmq.model.runs.records import RunState
from tests.unit.model.runs.run_kit import MemoryRun, graph_of

_ONE: dict[str, Any] = {"a": {"task": "t"}}
_FULL = "the quota is used up"


def test_a_step_waits_until_its_quota_has_room() -> None:
    run = _full_run({**_ONE, "b": {"task": "t", "needs": ["a"]}})

    step = run.step("a")
    assert (step.state, step.quota, step.started, step.job) == ("waiting", _FULL, None, "")
    assert (run.run.state, run.jobs) == (RunState.RUNNING, {})
    assert [(each.at, each.step) for each in run.retries] == [(run.now + 100, "a")]

    run.now, run.room = 7_000, 1
    run.retry()
    run.settle()

    step = run.step("a")
    assert (step.state, step.quota, step.refusals, step.started) == ("running", "", 0, 7_000)
    run.end("a", value=1)
    assert run.states() == {"a": "succeeded", "b": "waiting"}


def test_each_pause_of_a_waiting_step_is_twice_the_one_before() -> None:
    run = _full_run(_ONE)

    pauses: list[int] = []
    for _ in range(12):
        pauses.append(run.pause)
        run.retry()
        run.settle()

    assert pauses == [*(100 << number for number in range(11)), 100 << 10]


def test_a_step_that_waits_is_evaluated_only_when_it_asks_again() -> None:
    steps = {"a": {"wait": "a"}, "b": {"wait": "b"}, "c": {"task": "t", "needs": ["a", "b"], "rule": "one_success"}}
    run = _full_run(steps)
    run.send("signal", name="a")
    run.room = 5

    run.send("signal", name="b")

    assert (run.state("c"), run.room) == ("waiting", 5)
    run.retry()
    run.settle()
    assert (run.state("c"), run.room) == ("running", 4)


def test_a_waiting_step_whose_condition_is_no_longer_met_is_skipped() -> None:
    steps = {
        "a": {"wait": "a"},
        "b": {"wait": "b"},
        "c": {"task": "t", "needs": ["a", "b"], "rule": "one_success", "if": "steps.b.state != 'succeeded'"},
    }
    run = _full_run(steps)
    run.send("signal", name="a")
    assert run.step("c").quota == _FULL
    run.send("signal", name="b")

    run.retry()
    run.settle()

    assert (run.state("c"), run.step("c").quota, run.run.state) == ("skipped", "", "succeeded")


def test_the_next_child_waits_for_the_quota_and_the_others_behind_it() -> None:
    run = _full_run({"a": {"task": "t", "each": list(range(5))}}, room=2)

    assert run.children("a") == {0: "running", 1: "running"}
    parent = run.step("a")
    assert (parent.state, parent.quota, parent.cursor, parent.active) == ("running", _FULL, 2, 2)
    # The end of a child asks for no room.
    run.room = 9
    run.end("a", index=0)
    assert (run.children("a"), run.room) == ({0: "succeeded", 1: "running"}, 9)

    run.retry()
    run.settle()

    assert run.children("a") == {0: "succeeded", **dict.fromkeys(range(1, 5), "running")}
    assert (run.step("a").quota, run.retries) == ("", [])


def test_waiting_children_respect_the_limit_of_their_step() -> None:
    run = _full_run({"a": {"task": "t", "each": list(range(5)), "limit": 2}})
    run.room = 9

    run.retry()
    run.settle()

    assert (run.children("a"), run.room) == ({0: "running", 1: "running"}, 7)


def test_100_000_waiting_children_cost_one_row_and_one_timer_each_time() -> None:
    run = _full_run(
        {"a": {"task": "t", "each": "${params.items}", "max_width": 100_000}}, {"items": list(range(100_000))}
    )
    before = run.transactions

    for _ in range(3):
        assert len(run.retries) == 1
        run.retry()
        run.settle()

    assert run.transactions == before + 3
    assert run.children("a") == {}


def test_calls_that_are_added_to_a_waiting_batch_wait_too() -> None:
    run = _full_run({"a": {"batch": True}}, room=1)
    calls = (b'{"task": "t"}', b'{"task": "t"}')
    assert run.send("add", step="a", calls=calls) == "added"
    assert run.children("a") == {0: "running", 1: "waiting"}

    assert run.send("add", step="a", calls=calls) == "added"
    assert run.send("close", step="a") == "closed"
    run.end("a", index=0)
    run.room = 9
    run.retry()
    run.settle()

    assert run.children("a") == {0: "succeeded", 1: "running", 2: "running", 3: "running"}


def test_a_cancelled_run_ends_its_waiting_steps_at_once() -> None:
    run = _full_run({**_ONE, "b": {"task": "t", "each": [1, 2]}})

    run.send("cancel", error="stop")

    assert (run.states(), run.run.state) == ({"a": "cancelled", "b": "cancelled"}, "cancelled")
    assert [run.step(name).quota for name in "ab"] == ["", ""]
    run.room = 9
    for timer in run.retries:
        assert run.send("timer", step=timer.step, generation=timer.generation) == "superseded"
    assert run.jobs == {}


def test_a_redrive_begins_to_wait_anew() -> None:
    run = _full_run(_ONE)
    run.send("cancel", error="stop")
    run.send("redrive")
    (old, new) = run.retries
    run.room = 9

    assert run.send("timer", step="a", generation=old.generation) == "superseded"
    assert run.state("a") == "waiting"
    assert run.send("timer", step="a", generation=new.generation) == "applied"

    assert run.state("a") == "running"


def test_a_held_run_starts_no_step_whose_quota_has_room_again() -> None:
    run = _full_run({**_ONE, "b": {"task": "t", "each": [1, 2]}})
    run.send("hold", error="disk full")
    run.room = 9

    run.retry()
    run.settle()
    assert (run.state("a"), run.children("b"), run.room) == ("waiting", {}, 9)

    run.send("release")
    assert (run.state("a"), run.children("b"), run.room) == ("running", {0: "running", 1: "running"}, 6)


def _full_run(steps: dict[str, Any], params: dict[str, Any] | None = None, *, room: int = 0) -> MemoryRun:
    schemas: dict[str, Any] = {name: {} for name in params or {}}
    run = MemoryRun(graph_of(steps, params=schemas), params)
    run.room = room
    run.settle()
    return run
