"""Versions of an app's code."""

import pytest

from taskmq.errors import InvalidOption
from taskmq.model.telemetry.app_versions import (
    LONGEST_VERSION,
    WorkerVersion,
    can_be_released,
    check_app_version,
    version_at,
)


@pytest.mark.parametrize("version", ["1", "2026.11.30-1", "a b", "é" * LONGEST_VERSION])
def test_a_short_printable_text_is_a_version(version: str) -> None:
    assert check_app_version(version) == version


@pytest.mark.parametrize("version", ["", "   ", "1\n2", "x" * (LONGEST_VERSION + 1)])
def test_a_version_that_is_no_line_of_text_is_refused(version: str) -> None:
    with pytest.raises(InvalidOption, match=r"^version=.*: must be 1 to 100 printable characters$"):
        check_app_version(version)


@pytest.mark.parametrize(
    ("started", "version"), [(None, ""), (0, "one"), (5_000, "one"), (9_000, "two"), (20_000, "two")]
)
def test_a_run_has_the_last_version_that_its_worker_reported_before(started: int | None, version: str) -> None:
    reports = [
        WorkerVersion(worker="a", version="one", first=1_000, last=8_000),
        WorkerVersion(worker="a", version="two", first=9_000, last=9_000),
    ]

    assert version_at(reports, started) == version
    assert not version_at([], started)


@pytest.mark.parametrize(
    ("tried", "live", "expected"),
    [
        ({"1"}, {"2"}, True),
        ({"1"}, {"2", ""}, True),
        ({"1"}, {"1", "2"}, False),
        ({"1", "2"}, {"2"}, False),
        ({"1"}, {""}, False),
        ({"1"}, set(), False),
    ],
)
def test_a_held_job_is_released_once_no_worker_runs_a_version_that_was_tried(
    tried: set[str], live: set[str], *, expected: bool
) -> None:
    assert can_be_released(tried, live) is expected
