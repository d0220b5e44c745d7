"""Tests of host nodes, allocations and placed jobs."""

from taskmq.testing.job_store_suite.nodes.allocations import AllocationCases
from taskmq.testing.job_store_suite.nodes.placements import PlacementCases
from taskmq.testing.job_store_suite.nodes.registry import NodeCases

__all__ = ["AllocationCases", "NodeCases", "PlacementCases"]
