"""Guaranteed minimums of pools and classes. Pure."""

import pytest

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import FAIR, QueuePolicy, TenantPool
from taskmq.scheduler.fairness import Guarantees
from tests.unit.scheduler.fairness.cluster import pools_of

_FIFO = QueuePolicy(policy="fifo")


def test_a_pool_has_its_minimum_and_a_class_its_share_of_the_slots_rounded_down() -> None:
    promised = Guarantees(FAIR, pools_of(TenantPool(name="acme", min={"slots": 2.0})), capacities={"slots": 5.0})

    assert promised.least == {
        "pool acme": {"slots": 2.0},
        "class high": {"slots": 3.0},
        "class medium": {"slots": 1.0},
    }
    assert promised.groups(Lane("work", 9, "acme")) == ("pool acme", "class high")
    assert promised.groups(Lane("work", 0, "else")) == ()


def test_excessive_guarantees_are_reduced_to_the_available_capacity() -> None:
    pools = pools_of(TenantPool(name="a", min={"slots": 8.0, "gpu": 4.0}), TenantPool(name="b", min={"slots": 2.0}))

    promised = Guarantees(_FIFO, pools, capacities={"slots": 5.0, "gpu": 8.0})

    # Nine tenths of 5 slots of the 10 guaranteed ones.
    assert promised.least == {"pool a": {"slots": 4.0, "gpu": pytest.approx(1.8)}, "pool b": {"slots": 1.0}}


def test_a_resource_without_nodes_is_guaranteed_to_no_pool() -> None:
    pools = pools_of(TenantPool(name="lab", min={"gpu": 2.0}))

    assert Guarantees(_FIFO, pools, capacities={"slots": 8.0}).least == {}
