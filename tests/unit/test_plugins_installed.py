"""The adapters of this distribution, as its metadata names them."""

from importlib.metadata import entry_points

import pytest


@pytest.mark.parametrize("group", ["taskmq.brokers", "taskmq.states", "taskmq.blobs", "taskmq.metrics"])
def test_every_entry_point_of_ours_can_be_loaded(group: str) -> None:
    ours = [point for point in entry_points(group=group) if point.dist and point.dist.name == "taskmq"]

    assert ours
    assert all(callable(point.load()) for point in ours)
