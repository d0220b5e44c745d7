"""The part of a run that one transaction reads and writes.

The machine is a generator: it yields a `Need`, the store adds what it names, and the machine continues. So a
transition reads a step and its neighbours only, whatever the size of the run.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from taskmq.model.runs.graphs import RunGraph, StepContent
from taskmq.model.runs.paths import KeptElsewhere, Path, PathError, find_value, read_data, resolve
from taskmq.model.runs.records import (
    AgendaItem,
    InboxRow,
    QuotaWait,
    RunChanges,
    RunRecord,
    StepJob,
    StepKey,
    StepRecord,
    StepTimer,
)
from taskmq.model.runs.rules import StepState
from taskmq.model.values.light_values import join_values, lighten, open_value

MOST_WRITES: Final = 500
"""Maximum of rows that a transaction writes."""

_MARGIN: Final = 8
_WINDOW: Final = 100
_MOST_READS: Final = 2_000
# Pause of a step that waits for a quota, ms: each is twice the one before, up to a minute.
_FIRST_PAUSE: Final = 100
_MOST_REFUSALS: Final = 10

# A list may have 8 MiB, and each transaction that starts children of its step needs an item of it.
_CACHED_LISTS: Final = 4

T = TypeVar("T")


class Need(NamedTuple):
    """Rows to read: steps, values of steps, and the signals of a name that wait; or room in the quotas for a job.

    Attributes:
        pause: after how long the job asks again if there is no room, ms.
    """

    steps: Sequence[StepKey] = ()
    values: Sequence[str] = ()
    signal: str = ""
    job: StepJob | None = None
    pause: int = 0


Transition = Generator[Need, None, T]
"""A part of the machine: yields needs, whose rows are in the workspace when it continues."""


class ErasedValue(Exception):
    """Raised when a value that a step needs was erased, or is too large to be passed on."""


class RowBudget:
    """Rows that a transaction may still read and write, for all runs that it advances.

    Args:
        most_writes: maximum of rows to write.
    """

    def __init__(self, most_writes: int = MOST_WRITES) -> None:
        self._most = most_writes
        self._writes = 0
        self._reads = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read or written yet."""
        return not self._writes and not self._reads

    def has_for(self, rows: int) -> bool:
        """Return whether so many more rows may be written."""
        return self._writes + rows <= self._most and self._reads < _MOST_READS

    def write(self, rows: int) -> None:
        """Count rows to write; a negative number returns reserved ones."""
        self._writes += rows

    def read(self, rows: int) -> None:
        """Count rows to read."""
        self._reads += rows


class Workspace:
    """A run with the rows that were read, and the changes.

    Args:
        now: ms since the epoch by the store's clock.
        new_id: returns an id for a job or a run.
        budget: shared by the runs of one transaction.
        has_quotas: whether jobs need room in quotas.
    """

    def __init__(
        self,
        run: RunRecord,
        graph: RunGraph,
        *,
        now: int,
        new_id: Callable[[], str],
        budget: RowBudget,
        has_quotas: bool = False,
    ) -> None:
        self.run: RunRecord = run
        self.graph: RunGraph = graph
        self.now: int = now
        self.new_id: Callable[[], str] = new_id
        self.changes: RunChanges = RunChanges()
        self._steps: dict[StepKey, StepRecord] = {}
        self._values: dict[str, bytes | None] = {}
        self._faults: dict[str, str] = {}
        self._signals: dict[str, list[InboxRow]] = {}
        self._loaded_signals: set[str] = set()
        self._items: dict[str, list[msgspec.Raw]] = {}
        self._budget = budget
        self._has_quotas = has_quotas
        self._wait: QuotaWait | None = None
        # Rows of the budget that this run has taken: written, or reserved for the part that was last allowed.
        self._reserved = 0

    def put_steps(self, found: Iterable[StepRecord]) -> None:
        """Add steps that were read."""
        for step in found:
            self._steps[step.key] = step

    def put_value(self, name: str, value: bytes | None) -> None:
        """Add the value of a step that has succeeded; None if it was erased."""
        self._values[name] = value

    def put_fault(self, name: str, text: str) -> None:
        """Record why the value of a step that has succeeded cannot be passed on."""
        self._values[name] = None
        self._faults[name] = text

    def put_child_values(self, name: str, found: Mapping[int, bytes]) -> None:
        """Add the values of the children of a step that has succeeded, by their indexes."""
        own = {key.child: value for key, value in self.changes.values.items() if key.name == name}
        values = [own.get(index, found.get(index)) for index in range(self._steps[StepKey(name)].total or 0)]
        self._values[name] = None if None in values else join_values(cast("list[bytes]", values))

    def put_signals(self, name: str, rows: Sequence[InboxRow]) -> None:
        """Add the signals of this name that wait, the earliest first."""
        self._signals[name] = [*rows, *self._signals.get(name, ())]
        self._loaded_signals.add(name)

    def put_wait(self, wait: QuotaWait | None) -> None:
        """Add the answer to the need of a job: None counted it in its quotas, which have room."""
        self._wait = wait

    def keep_signal(self, row: InboxRow) -> None:
        """Keep a signal until a step consumes it."""
        self.run.signals += 1
        self._signals.setdefault(row.name, []).append(row)
        self.changes.answers[row.number] = "waiting"

    def consume_signal(self, row: InboxRow) -> None:
        """Remove a signal that waited."""
        self.run.signals -= 1
        self._signals[row.name].remove(row)
        self.changes.answers[row.number] = "consumed"

    def has_room(self, rows: int = 0) -> bool:
        """Return whether this transaction may go on with the run, and reserve the rows of the next part.

        Args:
            rows: number of rows that the part writes besides the usual ones.
        """
        self.return_budget()
        part = rows + _MARGIN
        if not self._budget.is_empty and not self._budget.has_for(part):
            return False
        self._budget.write(part)
        self._reserved += part
        return True

    def return_budget(self) -> None:
        """Give back the rows that were reserved and not written."""
        self._budget.write(self.changes.size - self._reserved)
        self._reserved = self.changes.size

    def content(self, key: StepKey) -> StepContent:
        """Return the content of a step."""
        return self.graph.step(key.name)

    def load(self, keys: Iterable[StepKey]) -> Transition[None]:
        """Read these steps unless they are here. Steps without a row are new."""
        missing = [key for key in keys if key not in self._steps]
        if missing:
            self._budget.read(len(missing))
            yield Need(steps=missing)
            for key in missing:
                self._steps.setdefault(key, StepRecord(key=key))

    def load_window(self, names: Sequence[str], cursor: int) -> Transition[None]:
        """Read the steps of the next names unless the one at the cursor is here."""
        if StepKey(names[cursor]) not in self._steps:
            yield from self.load(map(StepKey, names[cursor : cursor + _WINDOW]))

    def load_children(self, name: str, cursor: int, total: int) -> Transition[None]:
        """Read the next children of a step unless the one at the cursor is here."""
        if StepKey(name, cursor) not in self._steps:
            yield from self.load(StepKey(name, index) for index in range(cursor, min(cursor + _WINDOW, total)))

    def load_signals(self, name: str) -> Transition[list[InboxRow]]:
        """Return the signals of this name that wait."""
        if name not in self._loaded_signals:
            yield Need(signal=name)
        return self._signals[name]

    def load_paths(self, paths: Iterable[Path]) -> Transition[None]:
        """Read the steps and the values that these paths refer to."""
        wanted = list(paths)
        yield from self.load({StepKey(path.step): None for path in wanted if path.step})
        names = dict.fromkeys(path.step for path in wanted if path.root == "steps")
        missing = [name for name in names if self._has_value(name) and name not in self._values]
        if missing:
            yield Need(values=missing)

    def submit(self, job: StepJob, waiting: StepRecord) -> Transition[bool]:
        """Submit a job if its quotas have room; return whether they have.

        Args:
            waiting: the step that waits otherwise: that of the job, or the parent of the child.
        """
        wait = None
        if self._has_quotas:
            yield Need(job=job, pause=_FIRST_PAUSE << waiting.refusals)
            wait = self._wait
        self.edit(waiting.key)
        if wait is None:
            waiting.quota, waiting.refusals = "", 0
            self.changes.jobs.append(job)
            return True
        waiting.quota, waiting.refusals = wait.quota, min(waiting.refusals + 1, _MOST_REFUSALS)
        self.changes.timers.append(StepTimer(wait.at, waiting.key.name, waiting.generation))
        return False

    def find(self, key: StepKey) -> StepRecord:
        """Return a step that was read."""
        return self._steps[key]

    def edit(self, key: StepKey) -> StepRecord:
        """Return a step that was read, to change it."""
        step = self._steps[key]
        self.changes.steps[key] = step
        return step

    def replace(self, step: StepRecord) -> StepRecord:
        """Write a step in place of its row, if there is one."""
        self._steps[step.key] = self.changes.steps[step.key] = step
        return step

    def put_end_value(self, key: StepKey, value: bytes) -> None:
        """Write the value of a step that succeeds."""
        self.changes.values[key] = value
        if not key.is_child:
            self._values[key.name] = value

    def plan(self, item: AgendaItem) -> None:
        """Append a part of a transition."""
        self.run.agenda.append(item)

    def count_items(self, name: str) -> int | None:
        """Return the number of items of an `each`, whose paths were read; None if they are not a list.

        Raises:
            PathError: a reference leads to nothing.
            ErasedValue: the value with the items was erased.
            KeptElsewhere: parts of the items are kept elsewhere.
        """
        try:
            # The list may be too long to be cached.
            self._items[name] = _split_list(self._encode_list(name))
        except msgspec.ValidationError:
            return None
        return len(self._items[name])

    def find_item(self, name: str, index: int) -> msgspec.Raw:
        """Return an item of an `each` that has begun, whose paths were read; raises as `count_items` does."""
        if name not in self._items:
            self._items[name] = _split_list_once(self._encode_list(name))
        return self._items[name][index]

    def _encode_list(self, name: str) -> bytes:
        return self.encode("the list of each", self.graph.step(name).each)

    def encode(self, what: str, template: Any) -> bytes:
        """Return a template with its references replaced as JSON.

        Args:
            what: name of the value, for the error.

        Raises:
            PathError, ErasedValue, KeptElsewhere: a reference has no value that could be encoded here.
        """
        found = lighten(resolve(template, self.look_up))
        if found.parts:
            raise KeptElsewhere(what, found)
        return bytes(found.value)

    def look_up(self, path: Path) -> Any:
        """Return the value of a path as JSON data, or as `open_value` does if it is the whole value of a step.

        Raises:
            PathError: it leads to nothing.
            ErasedValue: the value was erased.
        """
        match path.root:
            case "params":
                return find_value(msgspec.json.decode(self.run.params), path)
            case "state":
                return str(self._steps[StepKey(path.step)].state)
            case "run":
                return getattr(self.run, cast("str", path.keys[0]))
            case "steps":
                return self._value_of(path)
            case _:
                raise PathError(f"{path.text}: there is no item")

    def look_up_data(self, path: Path) -> Any:
        """Return the value of a path as JSON data, for conditions."""
        return read_data(path.text, self.look_up(path))

    def _value_of(self, path: Path) -> Any:
        if not self._has_value(path.step):
            # A step without a value passes null.
            return None
        value = self._values[path.step]
        if value is None:
            raise ErasedValue(self._faults.get(path.step, f"the value of step {path.step} was erased"))
        found = open_value(value)
        return find_value(read_data(path.text, found), path) if path.keys else found

    def _has_value(self, name: str) -> bool:
        return self._steps[StepKey(name)].state is StepState.SUCCEEDED


def _split_list(value: bytes) -> list[msgspec.Raw]:
    return msgspec.json.decode(value, type=list[msgspec.Raw])


_split_list_once: Final = lru_cache(_CACHED_LISTS)(_split_list)
