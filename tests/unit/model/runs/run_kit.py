"""Runs in memory: rows in dictionaries, changed by transactions of the state machine."""

from typing import Any

import msgspec

from taskmq.model.runs.graphs import RunGraph, encode_workflow, load_graph
from taskmq.model.runs.machine import advance, has_work, open_run
from taskmq.model.runs.records import (
    InboxKind,
    InboxRow,
    QuotaWait,
    RunRecord,
    StepJob,
    StepKey,
    StepRecord,
    StepTimer,
)
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.validation import validate_workflow
from taskmq.model.runs.workspace import MOST_WRITES, RowBudget, Workspace
from taskmq.model.values.light_values import open_value


def graph_of(steps: dict[str, Any], **fields: Any) -> RunGraph:
    """Return the graph of a valid content."""
    content, faults = validate_workflow({"steps": steps, **fields}, options=("retries", "queue"))
    assert content is not None, [str(fault) for fault in faults]
    return load_graph(encode_workflow(content)[1])


class MemoryRun:
    """A run whose rows survive each transaction as a database would keep them: encoded."""

    def __init__(
        self,
        graph: RunGraph,
        params: dict[str, Any] | None = None,
        *,
        depth: int = 0,
        timeout: int | None = None,
        parent: str = "",
    ) -> None:
        run = RunRecord(
            id="run-1", params=msgspec.json.encode(params or {}), depth=depth, timeout=timeout, parent=parent
        )
        run.scheduled_for = "2027-01-31"
        open_run(run, graph)
        self.graph = graph
        self.now = 1_000
        self.jobs: dict[str, StepJob] = {}
        self.timers: list[StepTimer] = []
        # Those of steps that wait for a quota.
        self.retries: list[StepTimer] = []
        # Number of jobs for which the quotas have room; None without quotas.
        self.room: int | None = None
        # The last pause of a step that waits for a quota.
        self.pause = 0
        self.cancelled: list[str] = []
        self.held: list[str] = []
        self.answers: dict[int, str] = {}
        self.value: Any = None
        self.transactions = 0
        self.read: set[StepKey] = set()
        self.erased: set[StepKey] = set()
        self.faults: dict[str, str] = {}
        self._run = msgspec.json.encode(run)
        self._steps: dict[StepKey, bytes] = {}
        self._values: dict[StepKey, bytes] = {}
        self._inbox: list[InboxRow] = []
        self._signals: dict[int, InboxRow] = {}
        self._numbers = 0
        self._ids = 0

    @property
    def run(self) -> RunRecord:
        return msgspec.json.decode(self._run, type=RunRecord)

    def step(self, name: str, index: int = -1) -> StepRecord:
        key = StepKey(name, index)
        found = self._steps.get(key)
        return StepRecord(key=key) if found is None else msgspec.json.decode(found, type=StepRecord)

    def state(self, name: str, index: int = -1) -> str:
        return str(self.step(name, index).state)

    def states(self) -> dict[str, str]:
        return {name: self.state(name) for name in self.graph.order}

    def value_of(self, name: str, index: int = -1) -> Any:
        found = self._values.get(StepKey(name, index))
        return None if found is None else msgspec.json.decode(found)

    def children(self, name: str) -> dict[int, str]:
        found = {key.child: str(self.step(*key).state) for key in self._steps if key.name == name and key.is_child}
        return dict(sorted(found.items()))

    def running(self) -> dict[StepKey, StepRecord]:
        found = {key: self.step(*key) for key in self._steps}
        return {key: step for key, step in found.items() if step.state is StepState.RUNNING}

    def args(self, name: str, index: int = -1) -> list[Any]:
        args: list[Any] = msgspec.json.decode(self.job(name, index).args)
        return args

    def kwargs(self, name: str, index: int = -1) -> dict[str, Any]:
        kwargs: dict[str, Any] = msgspec.json.decode(self.job(name, index).kwargs)
        return kwargs

    def job(self, name: str, index: int = -1) -> StepJob:
        return self.jobs[self.step(name, index).job]

    def put(self, kind: InboxKind, **fields: Any) -> InboxRow:
        """Add a row to the inbox."""
        self._numbers += 1
        row = InboxRow(number=self._numbers, kind=kind, **fields)
        self._inbox.append(row)
        return row

    def send(self, kind: InboxKind, **fields: Any) -> str:
        """Add a row, apply it, and return its answer."""
        row = self.put(kind, **fields)
        self.settle()
        return self.answers[row.number]

    def end(self, name: str, state: str = "succeeded", value: Any = None, *, index: int = -1, job: str = "") -> str:
        """End the present job of a step; bytes are a stored value."""
        return self.send(
            "end",
            step=name,
            child=index,
            job=job or self.step(name, index).job,
            state=StepState(state),
            value=value if isinstance(value, bytes) else msgspec.json.encode(value),
            error="" if state == "succeeded" else "OSError: full",
        )

    def settle(self, most_writes: int = MOST_WRITES) -> None:
        """Run transactions until there is nothing to do."""
        while self._inbox or has_work(self.run):
            self.transact(most_writes)

    def transact(self, most_writes: int = MOST_WRITES) -> None:
        """Run one transaction."""
        self.transactions += 1
        here = Workspace(
            self.run,
            self.graph,
            now=self.now,
            new_id=self._new_id,
            budget=RowBudget(most_writes),
            has_quotas=self.room is not None,
        )
        machine = advance(here, self._inbox)
        applied = 0
        try:
            while True:
                need = next(machine)
                self.read.update(need.steps)
                here.put_steps(self.step(*key) for key in need.steps if key in self._steps)
                for name in need.values:
                    self._put_value(here, name)
                if need.job is not None:
                    self.pause = need.pause
                    here.put_wait(self._take_room())
                if need.signal:
                    here.put_signals(
                        need.signal, [row for _, row in sorted(self._signals.items()) if row.name == need.signal]
                    )
        except StopIteration as end:
            applied = end.value
        changes = here.changes
        calls = max((len(row.calls) for row in self._inbox[:applied]), default=0)
        assert changes.size <= most_writes + calls
        for row in self._inbox[:applied]:
            if changes.answers.get(row.number) == "waiting":
                self._signals[row.number] = row
        for number, answer in changes.answers.items():
            if answer != "waiting":
                self._signals.pop(number, None)
        del self._inbox[:applied]
        self._steps |= {key: msgspec.json.encode(step) for key, step in changes.steps.items()}
        self._values |= changes.values
        self.jobs |= {job.id: job for job in changes.jobs}
        self.jobs |= {
            each.id: StepJob(
                id=each.id,
                key=each.key,
                generation=each.generation,
                task="",
                args=b"[]",
                kwargs=each.params,
                options={},
            )
            for each in changes.runs
        }
        for timer in changes.timers:
            (self.retries if self.step(timer.step).quota else self.timers).append(timer)
        self.cancelled += changes.cancelled_jobs + changes.cancelled_runs
        self.held += changes.held_runs
        self.answers |= changes.answers
        self._run = msgspec.json.encode(here.run)
        if changes.content is not None:
            self.graph = load_graph(changes.content)
        if changes.has_ended:
            found = None if changes.value is None else open_value(changes.value)
            self.value = msgspec.json.decode(found) if isinstance(found, msgspec.Raw) else found

    def retry(self) -> None:
        """Fire the timers of the steps that wait for a quota."""
        for timer in self.retries:
            self.put("timer", step=timer.step, generation=timer.generation)
        self.retries.clear()

    def _take_room(self) -> QuotaWait | None:
        if not self.room:
            return QuotaWait("the quota is used up", self.now + self.pause)
        self.room -= 1
        return None

    def _put_value(self, here: Workspace, name: str) -> None:
        if name in self.faults:
            here.put_fault(name, self.faults[name])
        elif self.graph.step(name).has_children:
            found = {key.child: value for key, value in self._values.items() if key.name == name and key.is_child}
            here.put_child_values(
                name, {index: value for index, value in found.items() if StepKey(name, index) not in self.erased}
            )
        else:
            here.put_value(name, None if StepKey(name) in self.erased else self._values[StepKey(name)])

    def _new_id(self) -> str:
        self._ids += 1
        return f"job-{self._ids}"
