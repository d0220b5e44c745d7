"""Facts of a process from the operating system."""

from collections.abc import Callable

import pytest

from taskmq.worker.host.process_facts import ProcessorUse


def _readings(*found: tuple[float, float]) -> Callable[[], tuple[float, float]]:
    return iter(found).__next__


def test_processor_use_is_measured_between_two_calls() -> None:
    use = ProcessorUse(read=_readings((5.0, 100.0), (5.5, 101.0), (6.5, 105.0)))

    assert [use.cores(), use.cores()] == [0.5, 0.25]


def test_frequent_calls_measure_processor_use_over_the_whole_window() -> None:
    # Two cores are busy for five seconds, and none afterwards.
    readings = [(0.0, 0.0), *((min(2.0 * at, 10.0), float(at)) for at in range(1, 41))]
    use = ProcessorUse(10.0, _readings(*readings))

    found = [use.cores() for _ in range(40)]

    assert found[:5] == [2.0] * 5
    assert found[9] == 1.0
    assert found[18] == pytest.approx(10 / 19)
    assert found[19:] == [0.0] * 21


def test_processor_use_of_the_present_process_is_not_negative() -> None:
    assert ProcessorUse().cores() >= 0
