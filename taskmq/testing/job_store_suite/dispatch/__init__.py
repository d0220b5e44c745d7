"""Tests of scheduling: partitions, dispatches and their batches, claims, gates, timers, pools, and returns."""

from taskmq.testing.job_store_suite.dispatch.batches import Batches
from taskmq.testing.job_store_suite.dispatch.claims import ClaimCases
from taskmq.testing.job_store_suite.dispatch.dispatches import Dispatches
from taskmq.testing.job_store_suite.dispatch.gates import GateCases
from taskmq.testing.job_store_suite.dispatch.leases import PartitionLeases
from taskmq.testing.job_store_suite.dispatch.order import OrderCases
from taskmq.testing.job_store_suite.dispatch.pools import PoolCases
from taskmq.testing.job_store_suite.dispatch.returns import Returns
from taskmq.testing.job_store_suite.dispatch.starts import StartCases
from taskmq.testing.job_store_suite.dispatch.timers import Timers

__all__ = [
    "Batches",
    "ClaimCases",
    "Dispatches",
    "GateCases",
    "OrderCases",
    "PartitionLeases",
    "PoolCases",
    "Returns",
    "StartCases",
    "Timers",
]
