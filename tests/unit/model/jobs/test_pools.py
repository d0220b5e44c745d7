"""Policies and pools as operators write them. Pure."""

from typing import Any

import pytest

from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import (
    EVERY_TENANT,
    QueuePolicy,
    Sharing,
    TenantPool,
    check_pools,
    known_reason,
    path_of,
    pool_group,
    preemption_reason,
    read_sharing,
)
from tests.unit.scheduler.fairness.cluster import pools_of


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: QueuePolicy(policy="fare"), "did you mean 'fair'"),  # type: ignore[arg-type]
        (lambda: QueuePolicy(shares={"high": 1.0}), "for each of high, medium, low"),
        (lambda: QueuePolicy(shares={"high": 1.0, "medium": 1.0, "low": 0.0}), "above 0"),
        (lambda: QueuePolicy(ageing=0.0), "more than 0"),
        (lambda: QueuePolicy(preempt_after=-1.0), "preempt_after=-1.0: must be 0 to"),
        (lambda: QueuePolicy(preempt_grace=1e6), "preempt_grace=1000000.0: must be 0 to"),
        (lambda: QueuePolicy(preempt_most=-1), "preempt_most=-1: must be 0"),
        (lambda: TenantPool(name="a\n"), "printable"),
        (lambda: TenantPool(name="a", weight=0.0), "weight=0.0"),
        (lambda: TenantPool(name="a", min={"slots": -1.0}), "min of slots=-1.0"),
        (lambda: TenantPool(name="a", min={"slots": 3.0}, max={"slots": 2.0}), "more than its max"),
        (lambda: TenantPool(name=EVERY_TENANT, min={"slots": 3.0}), "promised to none"),
        (lambda: TenantPool(name="a", max={"": 3.0}).check_amounts(), "pool 'a': max"),
        (lambda: check_pools([TenantPool(name="a"), TenantPool(name="a")]), "defined twice"),
        (
            lambda: check_pools([TenantPool(name="a", parent="b"), TenantPool(name="b", parent="a")]),
            "its own ancestor",
        ),
        (
            lambda: check_pools([TenantPool(name="a", parent=EVERY_TENANT), TenantPool(name=EVERY_TENANT)]),
            "does not exist",
        ),
    ],
)
def test_invalid_values_are_refused_by_name(make: Any, text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        make()


def test_resource_amounts_are_unchanged() -> None:
    pool = TenantPool(name="lab", min={"gpu": 2.0}, max={"slots": 50.0, "gpu": 4.0})

    assert pool.check_amounts() is pool


def test_the_path_of_a_tenant_begins_at_the_queue() -> None:
    pools = pools_of(TenantPool(name="acme"), TenantPool(name="ml", parent="acme"))

    assert [pool.name for pool in path_of("ml", pools)] == ["acme", "ml"]
    assert [pool.name for pool in path_of("other", pools)] == ["other"]


def test_stored_pools_are_read_and_have_unique_names() -> None:
    assert read_sharing(None) == Sharing()
    assert read_sharing('{"version": 3, "pools": {"a": {"name": "a"}}}').pools == pools_of(TenantPool(name="a"))
    # The middle class used to have another name.
    kept = '{"queues": {"q": {"shares": {"high": 5, "default": 3, "low": 2}}, "r": {"strict": true}}}'
    assert read_sharing(kept).queues == {
        "q": QueuePolicy(shares={"high": 5, "medium": 3, "low": 2}),
        "r": QueuePolicy(strict=True),
    }
    with pytest.raises(InvalidOption, match="pool 'a' is listed as 'b'"):
        Sharing(pools={"b": TenantPool(name="a")})


def test_a_tenant_sees_its_own_pool_and_the_classes_of_preempting_jobs() -> None:
    own, foreign = (preemption_reason(pool_group(name)) for name in ("acme", "beta"))
    of_a_class = preemption_reason("class high")

    assert known_reason(own, "acme") == "preempted by pool acme"
    assert known_reason(foreign, "acme") == "preempted by another pool"
    assert known_reason(own, "") == "preempted by another pool"
    assert known_reason(of_a_class, "acme") == "preempted by class high"
