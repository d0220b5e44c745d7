"""The adapters of this distribution, as listed in its metadata."""

from importlib.metadata import entry_points, version

import pytest

from taskmq.client.plugins import _OWN
from taskmq.version import VERSION


@pytest.mark.parametrize("group", ["taskmq.brokers", "taskmq.states", "taskmq.blobs", "taskmq.metrics"])
def test_every_entry_point_of_taskmq_can_be_loaded(group: str) -> None:
    ours = [point for point in entry_points(group=group) if point.dist and point.dist.name == "taskmq"]

    assert ours
    assert all(callable(point.load()) for point in ours)


@pytest.mark.parametrize("group", ["taskmq.brokers", "taskmq.states", "taskmq.blobs"])
def test_builtin_plugins_match_the_entry_points_of_the_metadata(group: str) -> None:
    ours = {
        point.name: point.value for point in entry_points(group=group) if point.dist and point.dist.name == "taskmq"
    }

    assert _OWN[group] == ours


def test_the_version_is_that_of_the_distribution() -> None:
    assert version("taskmq") == VERSION
