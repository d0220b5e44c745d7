"""Random runs: the state machine leads to the same states as the model, wherever its transactions are cut."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.runs.graphs import RunGraph
from taskmq.model.runs.records import StepKey
from taskmq.model.runs.rules import RULE_NAMES, StepState
from taskmq.testing.run_model import RunModel
from tests.unit.model.runs.run_kit import MemoryRun, graph_of

_THRESHOLDS = ("one_success", "one_failed", "one_done", "at_least")
_ENDS = ("succeeded", "succeeded", "succeeded", "failed", "skipped", "cancelled", "upstream_failed")


@pytest.mark.simulation
@given(seed=st.integers(0, 2**32), size=st.integers(1, 60))
def test_random_runs_end_as_in_the_model(seed: int, size: int) -> None:
    _Comparison(Random(seed), size).check()


class _Comparison:
    """A random graph with random events, for the machine and for the model."""

    def __init__(self, random: Random, size: int) -> None:
        self.random = random
        self.graph = _random_graph(random, size)
        params = {"n": random.randint(0, 3), "list": [*range(random.randint(0, 4))]}
        self.machine = MemoryRun(self.graph, params)
        self.model = RunModel(self.graph, params)
        self.events = 0

    def check(self) -> None:
        for _ in range(3 * len(self.graph.order) + 20):
            for _ in range(self.random.randint(1, 6)):
                self._event()
            if self.random.random() < 0.7:
                self._settle()
                self._compare()
        self._settle()
        self._finish()
        self._compare()

    def _settle(self) -> None:
        self.machine.settle(self.random.choice((10, 11, 17, 40, 500)))

    def _finish(self) -> None:
        """End all that runs, and close what is open."""
        for _ in range(2 * len(self.graph.order)):
            for key, step in self.machine.running().items():
                content = self.graph.step(key.name)
                if content.batch and not key.is_child:
                    self._both("close", step=key.name)
                elif content.wait or content.sleep is not None:
                    self._both("timer", step=key.name, generation=step.generation)
                elif not content.has_children or key.is_child:
                    self._end(key, step.job)
            self._settle()
            if self.model.has_ended:
                return
        pytest.fail(f"running still: {self.machine.running()}")

    def _event(self) -> None:
        name = self.random.choice(self.graph.order)
        match self.random.choices(
            ("end", "stale", "timer", "signal", "add", "close", "cancel", "redrive"), (60, 6, 8, 8, 8, 2, 1, 4)
        )[0]:
            case "end":
                jobs = [(key, step.job) for key, step in self.machine.running().items() if step.job]
                if jobs:
                    self._end(*self.random.choice(jobs))
            case "stale" if self.machine.jobs:
                job = self.random.choice([*self.machine.jobs.values()])
                self._end(job.key, job.id)
            case "timer" if self.machine.timers:
                timer = self.random.choice(self.machine.timers)
                self._both("timer", step=timer.step, generation=timer.generation)
            case "signal":
                roles = self.random.choice((None, ("finance",), ("other",)))
                only = self.random.choice(("", name))
                generation = self.random.choice((None, None, 0, 1))
                value = msgspec.json.encode(self._value())
                self._both("signal", name=f"go-{name}", step=only, roles=roles, value=value, generation=generation)
            case "add" if self.graph.step(name).batch:
                calls = [{"task": "t", "args": [self._value()]} for _ in range(self.random.randint(1, 4))]
                self._both("add", step=name, calls=tuple(msgspec.Raw(msgspec.json.encode(call)) for call in calls))
            case "close" if self.graph.step(name).batch:
                self._both("close", step=name)
            case "cancel":
                # The model starts all children at once, and the machine those that it had room for.
                self._settle()
                self._both("cancel", error="stop")
            case "redrive":
                self._both("redrive", step=self.random.choice(("", "", name)))
            case _:
                pass

    def _end(self, key: StepKey, job: str) -> None:
        state = StepState(self.random.choice(_ENDS))
        value = self._value() if state is StepState.SUCCEEDED else None
        for _ in range(self.random.choice((1, 1, 2))):
            self._both("end", step=key.name, child=key.child, job=job, state=state, value=msgspec.json.encode(value))

    def _both(self, kind: Any, **fields: Any) -> None:
        row = self.machine.put(kind, **fields)
        if kind == "end":
            row = msgspec.structs.replace(row, generation=self.machine.jobs[row.job].generation)
        self.model.apply(row)

    def _value(self) -> Any:
        return self.random.choice((0, 1, 2.5, "text", None, True, [], [1, "a"], [{"x": 1}], {"x": 2}))

    def _compare(self) -> None:
        assert self.machine.states() == {name: str(step.state) for name, step in self.model.steps.items()}
        assert self.machine.run.state == self.model.state
        assert {key: step.generation for key, step in self.machine.running().items()} == {
            key: step.generation for key, step in self.model.running().items()
        }
        for key, step in self.model.running().items():
            if step.call is not None:
                assert (self.machine.args(*key), self.machine.kwargs(*key)) == step.call
        for name, step in self.model.steps.items():
            for index, child in enumerate(step.children):
                if child.state is not StepState.WAITING:
                    assert self.machine.state(name, index) == child.state
        if self.model.has_ended and self.model.state == "succeeded":
            assert self.machine.value == self.model.value


def _random_graph(random: Random, size: int) -> RunGraph:
    steps: dict[str, Any] = {}
    for number in range(size):
        steps[f"s{number}"] = _random_step(random, f"s{number}", [*steps])
    return graph_of(steps, params={"n": {}, "list": {}})


def _random_step(random: Random, name: str, earlier: list[str]) -> dict[str, Any]:
    step: dict[str, Any] = {}
    kind = random.choice(("task", "task", "task", "each", "wait", "sleep", "workflow", "batch", "value"))
    if kind == "batch":
        return {"batch": True, "limit": random.choice((0, 2)), "may_fail": random.random() < 0.5}
    near = earlier[-12:]
    needs = random.sample(near, min(len(near), random.randint(0, 4)))
    rules: list[Any] = [rule for rule in RULE_NAMES if rule != "at_least"] if needs else ["all_success", "all_done"]
    rule = random.choice((*rules, *["all_success"] * 8))
    if needs and random.random() < 0.1:
        rule = {"at_least": random.randint(1, len(needs))}
    step |= {"needs": needs, "rule": rule, "may_fail": random.random() < 0.5}
    # A step that starts before others have ended would see them or not, by the order of transactions.
    is_early = isinstance(rule, dict) or rule in _THRESHOLDS
    sources = [] if is_early else [f"steps.{each}.result" for each in needs]
    paths = ["params.n", *sources]
    if random.random() < 0.3:
        state = [] if is_early or not needs else [f'steps.{needs[0]}.state == "succeeded"']
        step["if"] = random.choice(
            (f"not {random.choice(paths)}", f"{random.choice(paths)} != 1", "params.n < 3", *state)
        )
    value = {"a": f"${{{random.choice(paths)}}}", "b": [f"n is ${{{random.choice(paths)}}}!"]}
    match kind:
        case "task":
            step |= {"task": "t", "with": value, "args": [random.choice(("${params.n}", 1, "$${x}"))]}
            if sources and random.random() < 0.1:
                step["with"] = {"deep": f"${{{random.choice(sources)}[0].x}}"}
        case "each":
            source = random.choice((["${params.n}", 2, {"x": 3}], "${params.list}", f"${{{random.choice(paths)}}}"))
            step |= {"task": "t", "each": source, "limit": random.choice((0, 0, 1, 2))}
            step |= random.choice(({}, {"with": value}, {"args": ["${item}"]}, {"with": {"x": "${item.x}"}}))
        case "wait":
            on_timeout = random.choice(("fail", "skip", {"value": 5}))
            step |= {"wait": f"go-{name}", "timeout": random.choice(("1h", 5)), "on_timeout": on_timeout}
            step["roles"] = random.choice(([], ["finance"]))
        case "sleep":
            step["sleep"] = random.choice(("1h", 3, "2027-01-31T00:00:00Z"))
        case "value":
            step["value"] = value
        case _:
            step |= {"workflow": "w", "with": value}
    return step
