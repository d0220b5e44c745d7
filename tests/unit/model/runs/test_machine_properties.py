"""Random runs: the state machine leads to the same states as the model, wherever its transactions are cut."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.runs.records import StepKey
from taskmq.model.runs.rules import StepState
from taskmq.testing.run_graphs import PARAMS, random_params, random_steps, random_value
from taskmq.testing.run_model import RunModel
from tests.unit.model.runs.run_kit import MemoryRun, graph_of

_ENDS = ("succeeded", "succeeded", "succeeded", "failed", "skipped", "cancelled", "upstream_failed")


@pytest.mark.simulation
@given(seed=st.integers(0, 2**32), size=st.integers(1, 60))
def test_random_runs_end_as_in_the_model(seed: int, size: int) -> None:
    _Comparison(Random(seed), size).check()


class _Comparison:
    """A random graph with random events, for the machine and for the model."""

    def __init__(self, random: Random, size: int) -> None:
        self.random = random
        steps = random_steps(random, size, sleeps=("1h", 3, "2027-01-31T00:00:00Z"), timeouts=("1h", 5))
        most = random.choice((None, 1))
        if most:
            # A batch takes calls from its start.
            steps |= {name: {"task": "t"} for name, step in steps.items() if "batch" in step}
        self.graph = graph_of(steps, params=PARAMS, max_active_runs=most)
        params = random_params(random)
        self.machine = MemoryRun(self.graph, params, timeout=60_000)
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
        """End all running steps, and close the open batches."""
        for is_from_above in (False, True):
            self._both("release", is_from_above=is_from_above)
        self._both("begin", generation=self.model.generation)
        self._fill(is_full=False)
        self._settle()
        for _ in range(2 * len(self.graph.order) + 100):
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
            (
                "end",
                "stale",
                "timer",
                "signal",
                "add",
                "close",
                "cancel",
                "redrive",
                "hold",
                "release",
                "begin",
                "fill",
            ),
            (60, 6, 8, 8, 8, 2, 1, 4, 2, 6, 6, 6),
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
                if not timer.step:
                    # As for a cancel.
                    self._settle()
                self._both("timer", step=timer.step, generation=timer.generation)
            case "signal":
                roles = self.random.choice((None, ("finance",), ("other",)))
                only = self.random.choice(("", name))
                generation = self.random.choice((None, None, 0, 1))
                value = msgspec.json.encode(random_value(self.random))
                self._both("signal", name=f"go-{name}", step=only, roles=roles, value=value, generation=generation)
            case "add" if self.graph.step(name).batch:
                calls = [{"task": "t", "args": [random_value(self.random)]} for _ in range(self.random.randint(1, 4))]
                self._both("add", step=name, calls=tuple(msgspec.Raw(msgspec.json.encode(call)) for call in calls))
            case "close" if self.graph.step(name).batch:
                self._both("close", step=name)
            case "cancel":
                # The model starts all children at once, and the machine those that it had room for.
                self._settle()
                self._both("cancel", error="stop")
            case "hold":
                # As before a cancellation.
                self._settle()
                self._both("hold", error="disk full", is_from_above=self.random.random() < 0.5)
            case "release":
                self._both("release", is_from_above=self.random.random() < 0.5)
            case "begin":
                self._both("begin", generation=max(0, self.model.generation - self.random.choice((0, 0, 0, 1))))
            case "fill":
                self._fill(is_full=self.random.random() < 0.4)
            case "redrive":
                # As before a cancellation: children that cannot start may end the run.
                self._settle()
                self._both("redrive", step=self.random.choice(("", "", name)))
            case _:
                pass

    def _fill(self, *, is_full: bool) -> None:
        # The model applies its rows at once.
        self._settle()
        self.machine.room = 0 if is_full else 1_000_000
        self.model.fill(is_full=is_full)
        if not is_full or self.random.random() < 0.5:
            self.machine.retry()

    def _end(self, key: StepKey, job: str) -> None:
        state = StepState(self.random.choice(_ENDS))
        value = random_value(self.random) if state is StepState.SUCCEEDED else None
        fields: dict[str, Any] = {"job": job, "state": state, "value": msgspec.json.encode(value)}
        if state is StepState.UPSTREAM_FAILED:
            fields["error"] = "a job of another program has failed"
        for _ in range(self.random.choice((1, 1, 2))):
            self._both("end", step=key.name, child=key.child, **fields)

    def _both(self, kind: Any, **fields: Any) -> None:
        row = self.machine.put(kind, **fields)
        if kind == "end":
            row = msgspec.structs.replace(row, generation=self.machine.jobs[row.job].generation)
        self.model.apply(row)

    def _compare(self) -> None:
        assert self.machine.states() == {name: str(step.state) for name, step in self.model.steps.items()}
        assert self.machine.run.state == self.model.state
        assert (self.machine.run.hold is not None) == self.model.is_held
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
