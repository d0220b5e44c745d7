"""Counts of several processes, some of which have ended, and their load."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.telemetry.metrics import Count
from taskmq.supervisor.child_process import ChildProcess
from taskmq.supervisor.fleet_status import FleetCounts, FleetStatus

names = st.sampled_from("abc")
runs = st.lists(st.tuples(names, names, st.sampled_from(["succeeded", "retried"]), st.floats(0, 100)))


def _counts(ended: Iterable[tuple[str, str, str, float]]) -> list[Count]:
    counts: dict[tuple[str, str], Count] = {}
    for task, queue, outcome, seconds in ended:
        count = counts.setdefault((task, queue), Count(task, queue))
        count.outcomes[outcome] = count.outcomes.get(outcome, 0) + 1
        count.run.add(seconds)
    return list(counts.values())


def _plain(counts: list[Count]) -> dict[tuple[str, str], tuple[dict[str, int], list[int]]]:
    return {(count.task, count.queue): (count.outcomes, count.run.counts) for count in counts}


@given(st.lists(runs), st.lists(runs))
def test_the_sum_covers_all_runs_including_those_of_ended_processes(
    ended: list[list[tuple[str, str, str, float]]], living: list[list[tuple[str, str, str, float]]]
) -> None:
    totals = FleetCounts()
    for process in ended:
        totals.keep(_counts(process))

    total = totals.sum([_counts(process) for process in living])

    assert _plain(total) == _plain(_counts(run for process in (*ended, *living) for run in process))


def test_reading_changes_nothing() -> None:
    totals, living = FleetCounts(), _counts([("t", "q", "succeeded", 1.0)])
    totals.keep(_counts([("t", "q", "succeeded", 1.0)]))

    assert [totals.sum([living])[0].ended for _ in range(3)] == [2, 2, 2]
    assert living[0].ended == 1


@dataclass(eq=False)
class _Child:
    """A process with four slots, one of them occupied."""

    is_paused: bool
    consumes: bool = True
    was_ready: bool = True
    report: None = None
    status: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(slots=4, running=1))
    counts: Mapping[tuple[str, str], Count] = field(default_factory=dict[tuple[str, str], Count])


def test_the_slots_of_a_paused_process_do_not_count_for_the_load() -> None:
    children = cast("set[ChildProcess]", {_Child(is_paused=False), _Child(is_paused=True)})

    load = FleetStatus("shop", [], children, least=1, most=4).load()

    assert (load.processes, load.paused, load.slots, load.busy) == (1, 1, 4, 1)
